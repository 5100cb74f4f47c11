// A driver without a GPU: streams are queues in the time of CLOCK_MONOTONIC, kernels are durations. It does what the shim
// can see of the real one, and writes down every call, so that a test can ask what reached the driver and when.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "../clock.h"
#include "../driver.h"

namespace stub {

constexpr CUresult kInvalidValue = 1;
constexpr CUresult kInvalidContext = 201;
constexpr CUresult kInvalidHandle = 400;
constexpr CUresult kNotFound = 500;
constexpr CUresult kLaunchFailed = 719;
constexpr CUresult kCaptureUnsupported = 900;
constexpr CUresult kCaptureInvalidated = 901;
constexpr int64_t kLatency = 4000;   // from a launch to its start
constexpr int64_t kBytesPerNs = 20;  // of copies
constexpr int kNoPriority = -1000;

// A function as the program names it; `kernel` is a handle that only cuKernelGetName knows.
struct Function {
  uint64_t mark;
  std::string name;
  int64_t work_ns;
  int64_t load_ns;  // its first launch takes so much longer: its code is loaded then
  bool kernel;
  bool broken;
  uint64_t launches = 0;
  Function* inner = nullptr;
};
constexpr uint64_t kFunctionMark = 0x66756e6374696f6eull;

struct Stream {
  int64_t end_ns = 0;
  int priority = 0;
  bool capturing = false;
  bool invalidated = false;
  int mode = 0;
  int thread = 0;  // that began the capture
  int64_t captured_ns = 0;
  uint64_t context = 0;  // that it was made in; 0: a default stream, one in each
};

struct Event {
  int64_t point_ns = 0;
  uint64_t context = 0;  // that it was made in
  bool destroyed = false;
};

struct Graph {
  int64_t work_ns = 0;
};

struct Entry {
  const char* call;
  std::string name;
  int64_t at_ns = 0, start_ns = 0, end_ns = 0;
  const void* stream = nullptr;
  int priority = kNoPriority;
  bool captured = false;
  uint64_t sum = 0;
  int64_t value = 0;
  CUresult result = CUDA_SUCCESS;
};

// All state is behind one lock, held for a moment; waiting is done without it. It is one that the thread sanitizer does not
// know: else every call of the driver would put the program's threads in order, and hide their races from it.
class Lock {
 public:
  void lock() {
    while (held_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};
extern Lock lock;

int thread_number();
Stream* stream_of(CUstream handle, bool per_thread);
Function* function_of(CUfunction handle);
void note(Entry entry);
void count(const char* call);
void wait_until(int64_t point_ns);
int64_t last_end();  // of all streams
// A call that breaks a capture which is under way, as the driver's rules have it: true if it did.
bool breaks_capture();
bool any_capture();
// How this thread's calls bear on captures, as the driver numbers it; what it was before.
int exchange_capture_mode(int mode);
// Contexts come one after the other: the number of the one that is there now, and its handle.
uint64_t context_number();
void* context_handle();
void next_context();
// The primary context is there as long as it is retained: so often, and once from the beginning.
void retain_context();
void release_context();
void begin_capture(Stream* stream, int mode);
void add_sum(uint64_t sum);
// Puts `work_ns` at the end of a stream's queue, or into its capture; fills in the entry.
void queue(Stream* stream, int64_t work_ns, Entry* entry);

}  // namespace stub
