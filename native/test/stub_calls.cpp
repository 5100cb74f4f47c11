// The rest of the stub driver: waiting, events, capture, questions, and the way to a function by its name.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "stub.h"

using namespace stub;

namespace {

CUresult wait_for(const char* call, CUstream handle, bool per_thread, bool all) {
  int64_t end = 0;
  {
    std::lock_guard<Lock> hold(lock);
    if (breaks_capture()) {
      count("broken capture");
      return kCaptureUnsupported;
    }
    Entry entry{call, ""};
    Stream* stream = all ? nullptr : stream_of(handle, per_thread);
    end = all ? last_end() : stream->end_ns;
    entry.at_ns = headway::now_ns();
    entry.end_ns = end;
    entry.stream = stream;
    note(std::move(entry));
  }
  wait_until(end);
  return CUDA_SUCCESS;
}

CUresult begin(const char* call, CUstream handle, bool per_thread, int mode) {
  std::lock_guard<Lock> hold(lock);
  Stream* stream = stream_of(handle, per_thread);
  Entry entry{call, ""};
  entry.at_ns = headway::now_ns();
  entry.stream = stream;
  entry.value = mode;
  note(std::move(entry));
  begin_capture(stream, mode);
  return CUDA_SUCCESS;
}

CUresult finish(const char* call, CUstream handle, bool per_thread, void** graph) {
  std::lock_guard<Lock> hold(lock);
  Stream* stream = stream_of(handle, per_thread);
  Entry entry{call, ""};
  entry.at_ns = headway::now_ns();
  entry.stream = stream;
  entry.value = stream->captured_ns;
  stream->capturing = false;
  entry.result = stream->invalidated ? kCaptureInvalidated : CUDA_SUCCESS;
  const CUresult result = entry.result;
  note(std::move(entry));
  *graph = result == CUDA_SUCCESS ? new Graph{stream->captured_ns} : nullptr;
  return result;
}

CUresult is_capturing(const char* call, CUstream handle, bool per_thread, int* status) {
  std::lock_guard<Lock> hold(lock);
  count(call);
  Stream* stream = stream_of(handle, per_thread);
  *status = stream->capturing ? (stream->invalidated ? 2 : 1) : 0;
  return CUDA_SUCCESS;
}

// An event that was destroyed or whose context is gone: with the real driver the program may crash here, and here it does.
Event* living(const char* call, CUevent handle) {
  auto* event = static_cast<Event*>(handle);
  if (!event->destroyed && event->context == context_number()) return event;
  std::fprintf(stderr, "stub: %s of a dead event\n", call);
  std::abort();
}

CUresult record(const char* call, CUevent event, CUstream handle, bool per_thread) {
  std::lock_guard<Lock> hold(lock);
  count(call);
  Event* at = living(call, event);
  Stream* stream = stream_of(handle, per_thread);
  if (stream->context && stream->context != context_number()) {
    std::fprintf(stderr, "stub: %s in a dead stream\n", call);
    std::abort();
  }
  if (stream->capturing) {
    count("event in a capture");
    return CUDA_SUCCESS;
  }
  const int64_t now = headway::now_ns();
  at->point_ns = stream->end_ns > now + kLatency / 4 ? stream->end_ns : now + kLatency / 4;
  return CUDA_SUCCESS;
}

}  // namespace

#define STREAMS(suffix, per_thread)                                                                                      \
  CUresult cuStreamSynchronize##suffix(CUstream stream) {                                                                \
    return wait_for("cuStreamSynchronize" #suffix, stream, per_thread, false);                                           \
  }                                                                                                                      \
  CUresult cuStreamBeginCapture_v2##suffix(CUstream stream, int mode) {                                                  \
    return begin("cuStreamBeginCapture_v2" #suffix, stream, per_thread, mode);                                           \
  }                                                                                                                      \
  CUresult cuStreamBeginCapture##suffix(CUstream stream) {                                                               \
    return begin("cuStreamBeginCapture" #suffix, stream, per_thread, 0);                                                 \
  }                                                                                                                      \
  CUresult cuStreamBeginCaptureToGraph##suffix(CUstream stream, void*, const void*, const void*, size_t, int mode) {     \
    return begin("cuStreamBeginCaptureToGraph" #suffix, stream, per_thread, mode);                                       \
  }                                                                                                                      \
  CUresult cuStreamEndCapture##suffix(CUstream stream, void** graph) {                                                   \
    return finish("cuStreamEndCapture" #suffix, stream, per_thread, graph);                                              \
  }                                                                                                                      \
  CUresult cuStreamIsCapturing##suffix(CUstream stream, int* status) {                                                   \
    return is_capturing("cuStreamIsCapturing" #suffix, stream, per_thread, status);                                      \
  }                                                                                                                      \
  CUresult cuEventRecord##suffix(CUevent event, CUstream stream) {                                                       \
    return record("cuEventRecord" #suffix, event, stream, per_thread);                                                   \
  }

#define COUNTED(name)                         \
  std::lock_guard<Lock> hold(lock);     \
  count(name)

extern "C" {

STREAMS(, false)
STREAMS(_ptsz, true)

CUresult cuCtxSynchronize() { return wait_for("cuCtxSynchronize", nullptr, false, true); }

// The same base name since CUDA 13, with an argument: called as if it had none it would get whatever lies there.
CUresult cuCtxSynchronize_v2(void* context) {
  {
    std::lock_guard<Lock> hold(lock);
    if (context != context_handle()) return kInvalidContext;
  }
  return wait_for("cuCtxSynchronize_v2", nullptr, false, true);
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  std::lock_guard<Lock> hold(lock);
  count("cuThreadExchangeStreamCaptureMode");
  if (*mode < 0 || *mode > 2) return kInvalidValue;
  *mode = exchange_capture_mode(*mode);
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(void* context) {
  std::lock_guard<Lock> hold(lock);
  count("cuCtxDestroy_v2");
  if (context != context_handle()) return kInvalidContext;
  next_context();
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(void* context) {
  std::lock_guard<Lock> hold(lock);
  count("cuCtxDestroy");
  if (context != context_handle()) return kInvalidContext;
  next_context();
  return CUDA_SUCCESS;
}

// Going takes a while, in which the context is still there.
#define PRIMARY(name, goes)           \
  CUresult name(CUdevice) {           \
    headway::sleep_ns(1000000);       \
    std::lock_guard<Lock> hold(lock); \
    count(#name);                     \
    goes();                           \
    return CUDA_SUCCESS;              \
  }
PRIMARY(cuDevicePrimaryCtxReset, next_context)
PRIMARY(cuDevicePrimaryCtxReset_v2, next_context)
PRIMARY(cuDevicePrimaryCtxRelease, release_context)
PRIMARY(cuDevicePrimaryCtxRelease_v2, release_context)

CUresult cuDevicePrimaryCtxRetain(void** context, CUdevice) {
  std::lock_guard<Lock> hold(lock);
  count("cuDevicePrimaryCtxRetain");
  retain_context();
  *context = context_handle();
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned) {
  COUNTED("cuInit");
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  COUNTED("cuEventCreate");
  *event = new Event{0, context_number(), false};
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  COUNTED("cuEventDestroy_v2");
  living("cuEventDestroy", event)->destroyed = true;  // its memory is kept: who touches it later is found out
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }

CUresult cuEventQuery(CUevent event) {
  COUNTED("cuEventQuery");
  if (breaks_capture()) {
    count("broken capture");
    return kCaptureUnsupported;
  }
  if (any_capture()) count("query beside a capture");
  return headway::now_ns() >= living("cuEventQuery", event)->point_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
  int64_t point = 0;
  {
    std::lock_guard<Lock> hold(lock);
    if (breaks_capture()) {
      count("broken capture");
      return kCaptureUnsupported;
    }
    point = living("cuEventSynchronize", event)->point_ns;
    Entry entry{"cuEventSynchronize", ""};
    entry.at_ns = headway::now_ns();
    entry.end_ns = point;
    note(std::move(entry));
  }
  wait_until(point);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  COUNTED("cuEventElapsedTime");
  const int64_t begin = living("cuEventElapsedTime", from)->point_ns, end = living("cuEventElapsedTime", to)->point_ns;
  if (!begin || !end) return kInvalidHandle;
  if (headway::now_ns() < begin || headway::now_ns() < end) return CUDA_ERROR_NOT_READY;
  *ms = static_cast<float>(end - begin) / 1e6f;
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* ms, CUevent from, CUevent to) { return cuEventElapsedTime(ms, from, to); }

CUresult cuModuleUnload(void*) {
  COUNTED("cuModuleUnload");
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(void*) {
  COUNTED("cuLibraryUnload");
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  COUNTED("cuFuncGetName");
  Function* function = function_of(handle);
  if (!function || function->kernel) return kInvalidHandle;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, void* handle) {
  COUNTED("cuKernelGetName");
  Function* function = function_of(handle);
  if (!function || !function->kernel) return kInvalidHandle;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* inner, void* handle) {
  COUNTED("cuKernelGetFunction");
  Function* function = function_of(handle);
  if (!function || !function->kernel) return kInvalidHandle;
  *inner = function->inner;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t) {
  COUNTED("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  Function* function = function_of(handle);
  if (!function || function->kernel || threads <= 0) return kInvalidHandle;
  *blocks = threads > 1024 ? 1 : 2048 / threads;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  COUNTED("cuCtxGetDevice");
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  COUNTED("cuDeviceGetAttribute");
  constexpr int kMultiprocessors = 16;
  *value = attribute == kMultiprocessors ? 132 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(void** context) {
  COUNTED("cuCtxGetCurrent");
  *context = context_handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  COUNTED("cuCtxGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

}  // extern "C"
