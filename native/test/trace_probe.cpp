// A program that traces launches it makes up, for tests/profiling: rounds of two kernels, a graph of three kernels and a
// wait, from two threads one after the other. Launches, GPU times and names are round numbers, so that a reader can say
// what it must find. With "idle" it launches nothing; with "fork" a child comes and goes; with "wait" it never ends.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../clock.h"
#include "../real.h"
#include "../share.h"
#include "../trace.h"

namespace headway {

Dlsym real_dlsym() { return &dlsym; }
void* driver_library() { return nullptr; }

namespace {
int device_name(char* name, int bytes, CUdevice) {
  std::snprintf(name, static_cast<size_t>(bytes), "Stub GPU");
  return 0;
}
int device_attribute(int* value, int, CUdevice) {
  *value = 132;
  return 0;
}

using Kernels = void (*)(uint32_t, const char*, int64_t, int64_t, const int32_t*, const int32_t*, int32_t);
Kernels report;
uint32_t correlation = 100;
const int32_t kGrid[3] = {264, 1, 1}, kBlock[3] = {128, 1, 1};

void enter(uint64_t id, uint32_t kind, const char* name, uint32_t blocks) {
  Kernel& k = trace_slot()->kernels[id % kKernels];
  k.id.store(id);
  k.kind.store(kind);
  k.blocks.store(blocks);
  k.per_sm.store(2);
  k.work_ns.store(1000 * static_cast<int64_t>(id));
  k.samples.store(4);
  std::snprintf(k.name, sizeof k.name, "%s", name);
}

void launch(uint64_t id, uint32_t kind, int64_t at, const char* name, int kernels, int64_t each) {
  trace_launch(id, kind, at);
  trace_slot()->ledger.kernels.fetch_add(kind == 1);
  trace_slot()->ledger.graphs.fetch_add(kind == 2);
  trace_slot()->ledger.hook_ns.fetch_add(150);
  trace_slot()->ledger.hooked.fetch_add(1);
  ++correlation;
  for (int i = 0; report && i < kernels; ++i) {
    const int64_t start = at + 5000 + i * each;
    report(correlation, name, start, start + each, kGrid, kBlock, 0);
  }
}

void rounds(int64_t begin, int count) {
  for (int i = 0; i < count; ++i) {
    const int64_t at = begin + i * 200000;
    launch(17, 1, at, "alpha", 1, 10000);
    launch(18, 1, at + 20000, "beta", 1, 20000);
    launch(19, 2, at + 50000, "gamma", 3, 10000);
    trace_wait(at + 60000, at + 90000);
    trace_gate(at + 45000, at + 50000, 9);
  }
}
}  // namespace

void* driver_function(const char* name) {
  if (!std::strcmp(name, "cuDeviceGetName")) return reinterpret_cast<void*>(&device_name);
  if (!std::strcmp(name, "cuDeviceGetAttribute")) return reinterpret_cast<void*>(&device_attribute);
  return nullptr;
}
Driver& driver() {
  static Driver made;
  return made;
}

}  // namespace headway

int main(int count, char** words) {
  using namespace headway;
  const char* how = count > 1 ? words[1] : "";
  if (!std::strcmp(how, "idle")) return 0;
  if (!tracing()) return 3;
  trace_start();
  if (void* stub = dlopen(std::getenv("HEADWAY_CUPTI") ? std::getenv("HEADWAY_CUPTI") : "", RTLD_NOW | RTLD_NOLOAD))
    report = reinterpret_cast<Kernels>(dlsym(stub, "cupti_stub_kernel"));
  enter(17, 1, "alpha (264,1,1)x(128,1,1)+0", 264);
  enter(18, 1, "beta (264,1,1)x(128,1,1)+0", 264);
  enter(19, 2, "graph 0", 0xffffffffu);
  Step& step = trace_slot()->steps[5];
  step.key.store(5);
  step.gap_ns.store(20000);
  step.samples.store(99);
  const int64_t begin = now_ns();
  rounds(begin, 50);
  std::thread([begin] { rounds(begin + 10000000, 50); }).join();
  if (!std::strcmp(how, "fork")) {
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    waitpid(child, nullptr, 0);
  }
  if (!std::strcmp(how, "wait")) sleep(60);
  return 0;
}
