// What the stub driver launches: kernels, graphs, copies.
#include <cstring>

#include "checksum.h"
#include "stub.h"

using namespace stub;

void stub::queue(Stream* stream, int64_t work_ns, Entry* entry) {
  entry->at_ns = headway::now_ns();
  entry->stream = stream;
  entry->captured = stream->capturing;
  if (stream->capturing) {
    stream->captured_ns += work_ns;
    return;
  }
  const int64_t soonest = entry->at_ns + kLatency;
  entry->start_ns = soonest > stream->end_ns ? soonest : stream->end_ns;
  entry->end_ns = entry->start_ns + work_ns;
  stream->end_ns = entry->end_ns;
}

namespace {

CUresult launch(const char* call, bool per_thread, CUfunction handle, CUstream where, uint64_t sum, int priority) {
  int64_t load_ns = 0;
  {
    std::lock_guard<Lock> hold(lock);
    Function* function = function_of(handle);
    if (!function) return kInvalidHandle;
    if (function->launches++ == 0) load_ns = function->load_ns;
  }
  if (load_ns) {
    {
      std::lock_guard<Lock> hold(lock);
      count("loading");
    }
    headway::sleep_ns(load_ns);
  }
  std::lock_guard<Lock> hold(lock);
  Function* function = function_of(handle);
  Entry entry{call, function->name};
  entry.sum = sum;
  entry.priority = priority;
  add_sum(sum);
  if (function->broken) {
    entry.at_ns = headway::now_ns();
    entry.result = kLaunchFailed;
  } else {
    queue(stream_of(where, per_thread), function->work_ns, &entry);
  }
  const CUresult result = entry.result;
  note(std::move(entry));
  return result;
}

CUresult launch_config(const char* call, bool per_thread, const CUlaunchConfig* config, CUfunction function, void** params,
                       void** extra) {
  int priority = kNoPriority;
  for (unsigned i = 0; i < config->count; ++i)
    if (config->attributes[i].id == kAttributePriority) priority = config->attributes[i].value.priority;
  return launch(call, per_thread, function, config->stream, config_sum(config, function, params, extra), priority);
}

CUresult launch_graph(const char* call, bool per_thread, CUgraphExec handle, CUstream where) {
  std::lock_guard<Lock> hold(lock);
  Entry entry{call, "graph"};
  entry.sum = stir(stir(7, handle), where);
  add_sum(entry.sum);
  queue(stream_of(where, per_thread), static_cast<Graph*>(handle)->work_ns, &entry);
  note(std::move(entry));
  return CUDA_SUCCESS;
}

// The stub's device memory is the host's: a copy is a copy.
CUresult copy(const char* call, bool per_thread, void* to, const void* from, size_t bytes, CUstream where, bool waits) {
  int64_t end = 0;
  {
    std::lock_guard<Lock> hold(lock);
    if (waits && breaks_capture()) {
      count("broken capture");
      return kCaptureUnsupported;
    }
    Stream* stream = stream_of(where, per_thread);
    Entry entry{call, "copy"};
    entry.value = static_cast<int64_t>(bytes);
    if (!stream->capturing) std::memcpy(to, from, bytes);
    queue(stream, static_cast<int64_t>(bytes) / kBytesPerNs, &entry);
    end = entry.end_ns;
    note(std::move(entry));
  }
  if (waits) wait_until(end);
  return CUDA_SUCCESS;
}

void* host(CUdeviceptr at) { return reinterpret_cast<void*>(static_cast<uintptr_t>(at)); }

struct DeviceLaunch {
  CUfunction function;
  unsigned shape[7];
  CUstream stream;
  void** params;
};

}  // namespace

#define SHAPE unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared

#define LAUNCHES(suffix, per_thread)                                                                                     \
  CUresult cuLaunchKernel##suffix(CUfunction f, SHAPE, CUstream stream, void** params, void** extra) {                   \
    const unsigned shape[7] = {gx, gy, gz, bx, by, bz, shared};                                                          \
    return launch("cuLaunchKernel" #suffix, per_thread, f, stream, launch_sum(f, shape, stream, params, extra),          \
                  kNoPriority);                                                                                          \
  }                                                                                                                      \
  CUresult cuLaunchCooperativeKernel##suffix(CUfunction f, SHAPE, CUstream stream, void** params) {                      \
    const unsigned shape[7] = {gx, gy, gz, bx, by, bz, shared};                                                          \
    return launch("cuLaunchCooperativeKernel" #suffix, per_thread, f, stream,                                            \
                  launch_sum(f, shape, stream, params, nullptr), kNoPriority);                                           \
  }                                                                                                                      \
  CUresult cuLaunchKernelEx##suffix(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {           \
    return launch_config("cuLaunchKernelEx" #suffix, per_thread, config, f, params, extra);                              \
  }                                                                                                                      \
  CUresult cuGraphLaunch##suffix(CUgraphExec graph, CUstream stream) {                                                   \
    return launch_graph("cuGraphLaunch" #suffix, per_thread, graph, stream);                                             \
  }                                                                                                                      \
  CUresult cuMemcpyAsync##suffix(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {                      \
    return copy("cuMemcpyAsync" #suffix, per_thread, host(to), host(from), bytes, stream, false);                        \
  }                                                                                                                      \
  CUresult cuMemcpyHtoDAsync_v2##suffix(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {               \
    return copy("cuMemcpyHtoDAsync_v2" #suffix, per_thread, host(to), from, bytes, stream, false);                       \
  }                                                                                                                      \
  CUresult cuMemcpyDtoHAsync_v2##suffix(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {                     \
    return copy("cuMemcpyDtoHAsync_v2" #suffix, per_thread, to, host(from), bytes, stream, false);                       \
  }                                                                                                                      \
  CUresult cuMemcpyDtoDAsync_v2##suffix(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {               \
    return copy("cuMemcpyDtoDAsync_v2" #suffix, per_thread, host(to), host(from), bytes, stream, false);                 \
  }

#define COPIES(suffix, per_thread)                                                                                       \
  CUresult cuMemcpy##suffix(CUdeviceptr to, CUdeviceptr from, size_t bytes) {                                            \
    return copy("cuMemcpy" #suffix, per_thread, host(to), host(from), bytes, nullptr, true);                             \
  }                                                                                                                      \
  CUresult cuMemcpyHtoD_v2##suffix(CUdeviceptr to, const void* from, size_t bytes) {                                     \
    return copy("cuMemcpyHtoD_v2" #suffix, per_thread, host(to), from, bytes, nullptr, true);                            \
  }                                                                                                                      \
  CUresult cuMemcpyDtoH_v2##suffix(void* to, CUdeviceptr from, size_t bytes) {                                           \
    return copy("cuMemcpyDtoH_v2" #suffix, per_thread, to, host(from), bytes, nullptr, true);                            \
  }                                                                                                                      \
  CUresult cuMemcpyDtoD_v2##suffix(CUdeviceptr to, CUdeviceptr from, size_t bytes) {                                     \
    return copy("cuMemcpyDtoD_v2" #suffix, per_thread, host(to), host(from), bytes, nullptr, true);                      \
  }

extern "C" {

LAUNCHES(, false)
LAUNCHES(_ptsz, true)
COPIES(, false)
COPIES(_ptds, true)

CUresult cuLaunchCooperativeKernelMultiDevice(void* list, unsigned devices, unsigned) {
  auto* each = static_cast<DeviceLaunch*>(list);
  for (unsigned i = 0; i < devices; ++i) {
    const uint64_t sum = launch_sum(each[i].function, each[i].shape, each[i].stream, each[i].params, nullptr);
    launch("cuLaunchCooperativeKernelMultiDevice", false, each[i].function, each[i].stream, sum, kNoPriority);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
  std::lock_guard<Lock> hold(lock);
  count("cuGraphExecDestroy");
  delete static_cast<Graph*>(graph);
  return CUDA_SUCCESS;
}

}  // extern "C"
