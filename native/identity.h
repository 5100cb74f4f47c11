// Which kernel is this: name + grid + block + shared memory, from the driver. The same from run to run.
#pragma once

#include <cstring>

#include "driver.h"
#include "protocol.h"

namespace headway {

struct Shape {
  uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  bool operator==(const Shape& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};

enum Kind : uint32_t { kKernel = 1, kGraph = 2, kCopy = 3 };
// What a copy does: of kCopy only the driver knows which way it goes.
enum class Move : uint32_t { kCopy, kToDevice, kToHost, kWithin, kPeer, kSet };

struct Known {
  Kernel* kernel = nullptr;  // its row in this program's slot; null: the table is full
  bool nccl = false;
  bool fresh = false;        // first launch in this process: the driver may load its code now
  bool untimed = false;      // no event can be left behind it
};

// The row of a kernel. Cheap from the second launch on.
Known identify(Slot* slot, CUfunction function, const Shape& shape);
Known identify_graph(Slot* slot, CUgraphExec graph);
// Copies are known by what they do and by the magnitude of their size.
Known identify_copy(Slot* slot, Move move, uint64_t bytes);

// A graph is destroyed: its handle may come back as another graph.
void forget_graph(CUgraphExec graph);

// A handle may come back as another function: forget what was remembered by handle.
void forget_handles();
// Another number each time that happens.
uint32_t handles_now();
// After a fork: nothing is known yet.
void forget_rows();

// How long a kernel is expected to take at this place, and how much of the GPU it holds for how long.
int64_t predicted_ns(const Kernel* kernel, const Step* step);
// SMs of the GPU, and those of them that the program may use.
struct Sms {
  uint32_t all, own;
};
Sms sms_of(uint32_t all, uint32_t limit_ppm);
int64_t wave_ns(const Kernel* kernel, int64_t fill_ns, const Sms& sms);
int64_t width_ppm(const Kernel* kernel, const Sms& sms);

// Mix a duration into a kernel's mean, and into that of its place.
void learn(Kernel* kernel, Step* step, int64_t work_ns);
// A kernel ran far longer than expected: until it is timed again it counts as that long.
void surprise(Kernel* kernel, Step* step, int64_t work_ns);

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x2545f4914f6cdd1dull);
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 32;
  return x ? x : 1;
}

}  // namespace headway
