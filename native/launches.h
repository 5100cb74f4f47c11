// What happens around each launch: counted, gated, timed, learnt.
#pragma once

#include <cstdint>

#include "driver.h"
#include "identity.h"
#include "trail.h"

namespace headway {


// A launch on its way through the hook. `ready` is what comes before the driver's function, `done` what comes after.
class Launch {
 public:
  Launch(Kind kind, CUstream stream, bool per_thread);
  void kernel(CUfunction function, const Shape& shape);
  void graph(CUgraphExec graph);
  void copy(uint64_t bytes);
  void together();  // on several devices: never gated
  bool raised() const { return raised_; }
  void ready();
  void done();

 private:
  void count();

  Kind kind_;
  Slot* slot_ = nullptr;
  Trail* trail_ = nullptr;
  Step* step_ = nullptr;
  CUstream stream_;
  Known known_;
  int64_t fill_ns_ = 0, go_ns_ = 0, hook_ns_ = 0, before_ns_ = 0;
  bool idle_ = true;       // there is no slot, or the stream is capturing: leave the launch alone
  bool gated_ = false;     // it has asked
  bool gpu_idle_ = false, raised_ = false, measured_ = false;
  uint32_t tenure_ = 0;    // in which the slot is ours
  uint32_t era_ = 0;       // of the context's events
  CUevent begun_ = nullptr;
};

// Around the driver's functions that wait for the GPU.
class Wait {
 public:
  // `what` cannot still run after it: anything of the program, what is in the stream, what came before an event.
  explicit Wait(Over what, CUstream stream = nullptr, bool per_thread = false);
  ~Wait();

 private:
  Over over() const;

  Over over_;
  CUstream stream_;
  int64_t begin_ns_ = 0;
};

// Around the driver's functions by which a context may go, and its events with it. Null: the primary one of a device.
class Parting {
 public:
  explicit Parting(void* context);
  ~Parting();
};

void capture_began();
void capture_ended();

// The launch attribute that raises a kernel above others, or 0 where the driver has none.
int highest_priority();
// The priority a stream of this program gets where it asked for `asked`: the highest, if others are to yield to it.
int stream_priority(int asked);
// It was refused: never try again.
void priority_refused();

}  // namespace headway
