// A record of everything that a program launches, for `headway profile kernels`: switched on by HEADWAY_TRACE=<path>,
// else one load of a flag. Launches and waits go to memory, each thread to chunks of its own, and to <path>.<process>
// at exit; where CUPTI can be loaded, what it says of each kernel's start and end goes along.
//
// The file: a head, then sections, each a Section and its rows. src/headway/profiling/kernels_file.py reads it.
#pragma once

#include <atomic>
#include <cstdint>

#include "protocol.h"

namespace headway {

constexpr uint64_t kTraceMagic = 0x4543415254574448ull;  // "HDWTRACE"
constexpr uint32_t kTraceVersion = 1;

struct TraceHead {
  uint64_t magic;
  uint32_t version;
  uint32_t process;
};

enum TraceSection : uint32_t {
  kAboutSection = 1,     // text: "key value" lines
  kLaunchSection = 2,
  kWaitSection = 3,
  kGateSection = 4,
  kKernelSection = 5,
  kActivitySection = 6,
  kNameSection = 7,      // text: names of activities, a zero byte after each
  kClockSection = 8,
  kStepSection = 9,
};

struct Section {
  uint32_t what;
  uint32_t row_bytes;
  uint64_t rows;
};

struct TraceLaunch {
  uint64_t kernel;
  int64_t launch_ns;
  uint32_t kind;
  uint32_t thread;
};

// A wait for the GPU, or a stretch in which a launch was held back (then with the reason).
struct TraceSpan {
  int64_t begin_ns;
  int64_t end_ns;
  uint32_t reason;
  uint32_t thread;
};

struct TraceKernel {
  uint64_t id;
  uint32_t kind;
  uint32_t blocks;
  uint32_t per_sm;
  uint32_t spare;
  int64_t work_ns;       // what the shim measured itself, by sampling
  int64_t longest_ns;
  uint64_t samples;
  char name[kNameBytes];
};

struct TraceStep {
  uint64_t key;
  int64_t gap_ns, think_ns, slack_ns;
  uint32_t samples;
  uint32_t waits;
};

struct TraceActivity {
  uint64_t start;        // by CUPTI's clock
  uint64_t end;
  uint32_t correlation;
  uint32_t stream;
  uint32_t name;         // place in the section of names
  uint32_t kind;         // CUPTI's: 1 copy, 10 kernel
  int32_t grid[3];
  int32_t block[3];
  uint64_t bytes;        // of a copy; of a kernel its dynamic shared memory
};

struct TraceClock {
  int64_t monotonic_ns;
  uint64_t cupti_ns;
};

static_assert(sizeof(TraceHead) == 16 && sizeof(Section) == 16 && sizeof(TraceLaunch) == 24, "as they are read");
static_assert(sizeof(TraceSpan) == 24 && sizeof(TraceKernel) == 160 && sizeof(TraceActivity) == 64, "as they are read");
static_assert(sizeof(TraceStep) == 40 && sizeof(TraceClock) == 16, "as they are read");

extern std::atomic<bool> trace_on;  // set once, when the library is loaded

inline bool tracing() { return trace_on.load(std::memory_order_relaxed); }

// At the first launch, before it goes to the driver; further calls do nothing.
void trace_start();

// One launch that runs (not one into a capturing stream). Its kernel's row is looked up in the slot, once a kernel.
void trace_launch(uint64_t kernel_id, uint32_t kind, int64_t launch_ns);

void trace_wait(int64_t begin_ns, int64_t end_ns);
void trace_gate(int64_t begin_ns, int64_t end_ns, uint32_t reason);

// Write what there is and stop recording. Called at exit, and after HEADWAY_TRACE_SECONDS where that is set.
void trace_flush();

// A slot that belongs to nobody, for tracing without a broker: kernels are identified into it, and its ledger counts.
Slot* trace_slot();

// After a fork: the child records nothing until it launches something itself.
void trace_forget();

}  // namespace headway
