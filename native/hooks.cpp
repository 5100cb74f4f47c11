// The way in: every function of the driver that launches, waits or captures, however a program gets hold of it: linked,
// by dlsym, by cuGetProcAddress. A hook is handed out only where the driver has the function itself.
#include <dlfcn.h>

#include <cstring>

#include "hooked.h"
#include "launches.h"

using namespace headway;

#define ENTRY(name, base, thread, since) extern "C" void name();
#include "copies.h"
#undef ENTRY

#define ENTRY(name, base, thread, since) {#name, base, thread, since, nullptr},
Row headway::rows[kEntries] = {
#include "entries.h"
};
#undef ENTRY

std::atomic<void*> headway::reals[kEntries];

namespace {

using LaunchKernel = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                                  void**, void**);
using LaunchEx = CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**);
using LaunchCooperative = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       CUstream, void**);

constexpr unsigned kMostAttributes = 24;

// The same launch with the highest priority among its attributes. Falls back to the plain one where refused.
CUresult raised(LaunchEx call, const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  const int priority = highest_priority();
  if (!priority || !call || config->count >= kMostAttributes) return -1;
  CUlaunchAttribute attributes[kMostAttributes + 1];
  for (unsigned i = 0; i < config->count; ++i) {
    attributes[i] = config->attributes[i];
    if (attributes[i].id == kAttributePriority) return -1;  // the program has its own mind
  }
  std::memset(&attributes[config->count], 0, sizeof(CUlaunchAttribute));
  attributes[config->count].id = kAttributePriority;
  attributes[config->count].value.priority = priority;
  CUlaunchConfig copy = *config;
  copy.attributes = attributes;
  copy.count = config->count + 1;
  const CUresult result = call(&copy, f, params, extra);
  if (result == CUDA_SUCCESS) return result;
  priority_refused();
  return -1;
}

CUresult launch_kernel(Entry entry, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, CUstream stream, void** params, void** extra) {
  auto call = real<LaunchKernel>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  const bool thread = rows[entry].thread;
  Launch launch(kKernel, stream, thread);
  launch.kernel(f, Shape{gx, gy, gz, bx, by, bz, shared});
  launch.ready();
  CUresult result = -1;
  if (launch.raised()) {
    const CUlaunchConfig config{gx, gy, gz, bx, by, bz, shared, stream, nullptr, 0};
    result = raised(thread ? driver().launch_ex_thread.get() : driver().launch_ex.get(), &config, f, params, extra);
  }
  if (result == -1) result = call(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
  launch.done();
  return result;
}

CUresult launch_ex(Entry entry, const CUlaunchConfig* c, CUfunction f, void** params, void** extra) {
  auto call = real<LaunchEx>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  if (!c) return call(c, f, params, extra);
  Launch launch(kKernel, c->stream, rows[entry].thread);
  launch.kernel(f, Shape{c->grid_x, c->grid_y, c->grid_z, c->block_x, c->block_y, c->block_z, c->shared_bytes});
  launch.ready();
  CUresult result = launch.raised() ? raised(call, c, f, params, extra) : -1;
  if (result == -1) result = call(c, f, params, extra);
  launch.done();
  return result;
}

CUresult launch_cooperative(Entry entry, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream stream, void** params) {
  auto call = real<LaunchCooperative>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  Launch launch(kKernel, stream, rows[entry].thread);
  launch.kernel(f, Shape{gx, gy, gz, bx, by, bz, shared});
  launch.ready();
  const CUresult result = call(f, gx, gy, gz, bx, by, bz, shared, stream, params);
  launch.done();
  return result;
}

CUresult launch_graph(Entry entry, CUgraphExec graph, CUstream stream) {
  auto call = real<CUresult (*)(CUgraphExec, CUstream)>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  Launch launch(kGraph, stream, rows[entry].thread);
  launch.graph(graph);
  launch.ready();
  const CUresult result = call(graph, stream);
  launch.done();
  return result;
}

CUresult wait_one(Entry entry, void* what, bool everything) {
  auto call = real<CUresult (*)(void*)>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  Wait wait(everything ? Over::kEverything : Over::kStream, everything ? nullptr : what, rows[entry].thread);
  return call(what);
}

CUresult begin_capture(Entry entry, CUstream stream, int mode) {
  auto call = real<CUresult (*)(CUstream, int)>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  capture_began();  // before the driver's own: nothing of ours may fall into it
  const CUresult result = call(stream, mode);
  if (result != CUDA_SUCCESS) capture_ended();
  return result;
}

}  // namespace

#define KERNEL(name)                                                                                                      \
  HEADWAY_EXPORT CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                               unsigned shared, CUstream stream, void** params, void** extra) {                           \
    return launch_kernel(k_##name, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);                             \
  }
KERNEL(cuLaunchKernel)
KERNEL(cuLaunchKernel_ptsz)

#define KERNEL_EX(name)                                                                                    \
  HEADWAY_EXPORT CUresult name(const CUlaunchConfig* c, CUfunction f, void** params, void** extra) { \
    return launch_ex(k_##name, c, f, params, extra);                                                       \
  }
KERNEL_EX(cuLaunchKernelEx)
KERNEL_EX(cuLaunchKernelEx_ptsz)

#define COOPERATIVE(name)                                                                                                 \
  HEADWAY_EXPORT CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                               unsigned shared, CUstream stream, void** params) {                                         \
    return launch_cooperative(k_##name, f, gx, gy, gz, bx, by, bz, shared, stream, params);                               \
  }
COOPERATIVE(cuLaunchCooperativeKernel)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz)

#define GRAPH(name) \
  HEADWAY_EXPORT CUresult name(CUgraphExec graph, CUstream stream) { return launch_graph(k_##name, graph, stream); }
GRAPH(cuGraphLaunch)
GRAPH(cuGraphLaunch_ptsz)

#define WAIT(name, everything) \
  HEADWAY_EXPORT CUresult name(void* what) { return wait_one(k_##name, what, everything); }
WAIT(cuStreamSynchronize, false)
WAIT(cuStreamSynchronize_ptsz, false)

HEADWAY_EXPORT CUresult cuEventSynchronize(CUevent event) {
  auto call = real<CUresult (*)(CUevent)>(k_cuEventSynchronize);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  Wait wait(Over::kEvent);
  return call(event);
}

// With a context as its argument since CUDA 13, under the same base name: another function, so another entry.
WAIT(cuCtxSynchronize_v2, true)
WAIT(cuCtxSynchronize, true)

#define CAPTURE(name) \
  HEADWAY_EXPORT CUresult name(CUstream stream, int mode) { return begin_capture(k_##name, stream, mode); }
CAPTURE(cuStreamBeginCapture)
CAPTURE(cuStreamBeginCapture_ptsz)
CAPTURE(cuStreamBeginCapture_v2)
CAPTURE(cuStreamBeginCapture_v2_ptsz)

#define CAPTURE_TO(name)                                                                                                  \
  HEADWAY_EXPORT CUresult name(CUstream stream, void* graph, const void* dependencies, const void* edges, size_t count,   \
                               int mode) {                                                                                \
    auto call = real<CUresult (*)(CUstream, void*, const void*, const void*, size_t, int)>(k_##name);                     \
    if (!call) return CUDA_ERROR_NOT_INITIALIZED;                                                                         \
    capture_began();                                                                                                  \
    const CUresult result = call(stream, graph, dependencies, edges, count, mode);                                        \
    if (result != CUDA_SUCCESS) capture_ended();                                                                          \
    return result;                                                                                                        \
  }
CAPTURE_TO(cuStreamBeginCaptureToGraph)
CAPTURE_TO(cuStreamBeginCaptureToGraph_ptsz)

#define CAPTURED(name)                                          \
  HEADWAY_EXPORT CUresult name(CUstream stream, void** graph) { \
    auto call = real<CUresult (*)(CUstream, void**)>(k_##name); \
    if (!call) return CUDA_ERROR_NOT_INITIALIZED;               \
    const CUresult result = call(stream, graph);                \
    capture_ended();                                            \
    return result;                                              \
  }
CAPTURED(cuStreamEndCapture)
CAPTURED(cuStreamEndCapture_ptsz)

#define UNLOAD(name)                                  \
  HEADWAY_EXPORT CUresult name(void* what) {          \
    auto call = real<CUresult (*)(void*)>(k_##name);  \
    if (!call) return CUDA_ERROR_NOT_INITIALIZED;     \
    forget_handles();                                 \
    return call(what);                                \
  }
HEADWAY_EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph) {
  auto call = real<CUresult (*)(CUgraphExec)>(k_cuGraphExecDestroy);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  forget_graph(graph);
  return call(graph);
}

#define CONTEXT(name, type, context)                 \
  HEADWAY_EXPORT CUresult name(type what) {          \
    auto call = real<CUresult (*)(type)>(k_##name);  \
    if (!call) return CUDA_ERROR_NOT_INITIALIZED;    \
    const Parting parting(context);                  \
    return call(what);                               \
  }
CONTEXT(cuCtxDestroy, void*, what)
CONTEXT(cuCtxDestroy_v2, void*, what)
CONTEXT(cuDevicePrimaryCtxReset, CUdevice, nullptr)
CONTEXT(cuDevicePrimaryCtxReset_v2, CUdevice, nullptr)
CONTEXT(cuDevicePrimaryCtxRelease, CUdevice, nullptr)
CONTEXT(cuDevicePrimaryCtxRelease_v2, CUdevice, nullptr)

UNLOAD(cuModuleUnload)
UNLOAD(cuLibraryUnload)

HEADWAY_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(void* list, unsigned devices, unsigned flags) {
  // Several devices at once: never gated (its parts wait for each other), only seen.
  auto call = real<CUresult (*)(void*, unsigned, unsigned)>(k_cuLaunchCooperativeKernelMultiDevice);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  Launch launch(kKernel, nullptr, false);
  launch.together();
  launch.ready();
  const CUresult result = call(list, devices, flags);
  launch.done();
  return result;
}

HEADWAY_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  auto call = real<CUresult (*)(CUstream*, unsigned, int)>(k_cuStreamCreateWithPriority);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  const int raised_to = stream_priority(priority);
  const CUresult result = call(stream, flags, raised_to);
  return result == CUDA_SUCCESS || raised_to == priority ? result : call(stream, flags, priority);
}

HEADWAY_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  auto call = real<CUresult (*)(CUstream*, unsigned)>(k_cuStreamCreate);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  const int raised_to = stream_priority(0);
  auto with = real<CUresult (*)(CUstream*, unsigned, int)>(k_cuStreamCreateWithPriority);
  if (raised_to && with && with(stream, flags, raised_to) == CUDA_SUCCESS) return CUDA_SUCCESS;
  return call(stream, flags);
}

namespace {

// Our hook for a function that was asked for, if it is one of ours; remembers the real one that was found.
void* ours(int entry, void* found) {
  void* none = nullptr;
  reals[entry].compare_exchange_strong(none, found);
  return rows[entry].hook;
}

bool fill_hooks() {
#define ENTRY(name, base, thread, since) rows[k_##name].hook = reinterpret_cast<void*>(&name);
#include "entries.h"
#undef ENTRY
  return true;
}

int by_name(const char* name) {
  for (int i = 0; i < kEntries; ++i)
    if (std::strcmp(rows[i].name, name) == 0) return i;
  return -1;
}

int by_base(const char* base, bool thread) {
  int plain = -1;
  for (int i = 0; i < kEntries; ++i) {
    if (!rows[i].base || std::strcmp(rows[i].base, base) != 0) continue;
    if (rows[i].thread == thread) return i;
    plain = i;
  }
  return thread ? plain : -1;  // a function without a per-thread variant is the same either way
}

constexpr uint64_t kPerThread = 2;
using GetProc1 = CUresult (*)(const char*, void**, int, uint64_t);
using GetProc2 = CUresult (*)(const char*, void**, int, uint64_t, int*);
std::atomic<void*> real_proc1{nullptr}, real_proc2{nullptr};

template <typename F>
F proc(std::atomic<void*>& cell, const char* name) {
  void* at = cell.load(std::memory_order_acquire);
  if (!at) {
    at = driver_function(name);
    if (at) cell.store(at, std::memory_order_release);
  }
  return reinterpret_cast<F>(at);
}

}  // namespace

HEADWAY_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status);
HEADWAY_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags);

namespace {

void replace(const char* symbol, void** function, int version, uint64_t flags) {
  static const bool filled = fill_hooks();
  (void)filled;
  if (!symbol || !function || !*function) return;
  if (std::strcmp(symbol, "cuGetProcAddress") == 0) {
    // Since CUDA 12 the base name means the second version, with one argument more.
    std::atomic<void*>& cell = version >= 12000 ? real_proc2 : real_proc1;
    void* none = nullptr;
    cell.compare_exchange_strong(none, *function);
    *function = version >= 12000 ? reinterpret_cast<void*>(&cuGetProcAddress_v2) : reinterpret_cast<void*>(&cuGetProcAddress);
    return;
  }
  int entry = by_base(symbol, (flags & kPerThread) != 0 && version >= 7000);
  if (entry == k_cuCtxSynchronize && *function == driver_function("cuCtxSynchronize_v2")) entry = k_cuCtxSynchronize_v2;
  // An older function may be the one that is exported under the base name.
  if (entry >= 0 && version < rows[entry].since) entry = *function == driver_function(symbol) ? by_name(symbol) : -1;
  if (entry >= 0) *function = ours(entry, *function);
}

}  // namespace

HEADWAY_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  auto call = proc<GetProc2>(real_proc2, "cuGetProcAddress_v2");
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = call(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) replace(symbol, function, version, flags);
  return result;
}

HEADWAY_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  auto call = proc<GetProc1>(real_proc1, "cuGetProcAddress");
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = call(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) replace(symbol, function, version, flags);
  return result;
}

namespace {

// What dlsym is to answer for a name of the driver's; null: what it would have answered.
[[gnu::noinline]] void* answer(void* handle, const char* name) {
  if (!name || name[0] != 'c' || name[1] != 'u') return nullptr;
  static const bool filled = fill_hooks();
  (void)filled;
  const bool first = std::strcmp(name, "cuGetProcAddress") == 0, second = std::strcmp(name, "cuGetProcAddress_v2") == 0;
  const int entry = first || second ? -1 : by_name(name);
  if (entry < 0 && !first && !second) return nullptr;
  void* found = real_dlsym()(handle, name);
  // Asked of everything or of the next one, the answer may be this library's own hook: then the driver's is the real one.
  if (found && entry >= 0 && found == rows[entry].hook) return found;
  if (!found) return nullptr;
  if (entry >= 0) return ours(entry, found);
  void* hook = second ? reinterpret_cast<void*>(&cuGetProcAddress_v2) : reinterpret_cast<void*>(&cuGetProcAddress);
  if (found == hook) return found;
  void* none = nullptr;
  (second ? real_proc2 : real_proc1).compare_exchange_strong(none, found);
  return hook;
}

}  // namespace

// A sibling call at the end, so that the real dlsym sees who asked: RTLD_NEXT means "after the caller".
HEADWAY_EXPORT void* dlsym(void* handle, const char* name) noexcept {
  if (void* hook = answer(handle, name)) return hook;
  return real_dlsym()(handle, name);
}
