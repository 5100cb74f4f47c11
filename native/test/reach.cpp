// The ways by which programs come to the driver's functions.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client.h"

namespace client {
namespace {

using Find = void* (*)(const char* base, const char* plain, const char* threads);
using Ask = CUresult (*)(const char*, void**, int, uint64_t, int*);
using AskOld = CUresult (*)(const char*, void**, int, uint64_t);

void* library() {
  static void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!handle) {
    std::fprintf(stderr, "client: %s\n", dlerror());
    std::exit(9);
  }
  return handle;
}

void* by_name(const char*, const char* plain, const char*) { return dlsym(library(), plain); }
void* by_thread_name(const char*, const char*, const char* threads) { return dlsym(library(), threads); }
void* by_default(const char*, const char* plain, const char*) { return library() ? dlsym(RTLD_DEFAULT, plain) : nullptr; }
void* by_next(const char*, const char* plain, const char*) { return library() ? dlsym(RTLD_NEXT, plain) : nullptr; }

Ask ask_by_name() { return reinterpret_cast<Ask>(dlsym(library(), "cuGetProcAddress_v2")); }

void* asked(Ask ask, const char* base, uint64_t flags) {
  void* found = nullptr;
  int status = 0;
  // One base name that means two functions: the plain one to a program of CUDA 12, the other to one of CUDA 13.
  const bool plain = std::strcmp(base, "cuCtxSynchronize") == 0;
  if (std::strcmp(base, "cuCtxSynchronize_v2") == 0) base = "cuCtxSynchronize";
  if (ask(base, &found, plain ? 12000 : 13000, flags, &status) != CUDA_SUCCESS || status != 0) return nullptr;
  return found;
}

void* by_proc0(const char* base, const char*, const char*) { return asked(ask_by_name(), base, 0); }
void* by_proc2(const char* base, const char*, const char*) { return asked(ask_by_name(), base, 2); }

// The older form, by name.
void* by_old0(const char* base, const char*, const char*) {
  auto ask = reinterpret_cast<AskOld>(dlsym(library(), "cuGetProcAddress"));
  void* found = nullptr;
  return ask(base, &found, 11030, 0) == CUDA_SUCCESS ? found : nullptr;
}

// cuGetProcAddress, asked for by cuGetProcAddress_v2, as the runtime does.
void* by_nested(const char* base, const char*, const char*) {
  auto inner = reinterpret_cast<Ask>(asked(ask_by_name(), "cuGetProcAddress", 0));
  return inner ? asked(inner, base, 0) : nullptr;
}

void* by_nested_old(const char* base, const char*, const char*) {
  void* inner = nullptr;
  int status = 0;
  if (ask_by_name()("cuGetProcAddress", &inner, 11030, 0, &status) != CUDA_SUCCESS || !inner) return nullptr;
  void* found = nullptr;
  return reinterpret_cast<AskOld>(inner)(base, &found, 11030, 2) == CUDA_SUCCESS ? found : nullptr;
}

// As the CUDA runtime asks: for each function with the version in which it came.
int came(const char* base) {
  const std::pair<const char*, int> versions[] = {
      {"cuLaunchKernel", 4000},        {"cuLaunchKernelEx", 11060},  {"cuGraphLaunch", 10000},
      {"cuGraphExecDestroy", 10000},   {"cuMemcpyAsync", 4000},      {"cuMemcpyHtoDAsync", 3020},
      {"cuMemcpyDtoHAsync", 3020},     {"cuMemcpyDtoDAsync", 3020},  {"cuMemcpy", 4000},
      {"cuMemcpyHtoD", 3020},          {"cuMemcpyDtoH", 3020},       {"cuMemcpyDtoD", 3020},
      {"cuStreamSynchronize", 2000},   {"cuEventSynchronize", 2000}, {"cuCtxSynchronize", 2000},
      {"cuCtxSynchronize_v2", 13000},  {"cuStreamCreate", 2000},     {"cuStreamCreateWithPriority", 5050},
      {"cuModuleUnload", 2000},        {"cuEventCreate", 2000},      {"cuEventRecord", 2000},
      {"cuInit", 2000},                {"cuCtxGetCurrent", 4000},    {"cuCtxDestroy", 4000},
      {"cuStreamBeginCapture", 10010}, {"cuStreamEndCapture", 10000}, {"cuDevicePrimaryCtxReset", 7000},
      {"cuDevicePrimaryCtxRelease", 7000}, {"cuDevicePrimaryCtxRetain", 7000}};
  for (const auto& [name, version] : versions)
    if (std::strcmp(name, base) == 0) return version;
  if (std::strstr(base, "Peer")) return 4000;
  if (std::strncmp(base, "cuMem", 5) == 0) return 3020;
  return 13000;
}

void* as_runtime(const char* base, uint64_t flags) {
  void* found = nullptr;
  int status = 0;
  const int version = came(base);
  if (std::strcmp(base, "cuCtxSynchronize_v2") == 0) base = "cuCtxSynchronize";
  return ask_by_name()(base, &found, flags && version < 7000 ? 7000 : version, flags, &status) == CUDA_SUCCESS ? found : nullptr;
}

void* by_runtime0(const char* base, const char*, const char*) { return as_runtime(base, 0); }
void* by_runtime2(const char* base, const char*, const char*) { return as_runtime(base, 2); }

#ifdef LINKED
extern "C" {
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                        void**);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                                   void**);
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**);
CUresult cuLaunchCooperativeKernelMultiDevice(void*, unsigned, unsigned);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, size_t);
#define DECLARE(field, base, name, threads, arguments) CUresult name arguments;
MOVES(DECLARE)
#undef DECLARE
CUresult cuStreamSynchronize(CUstream);
CUresult cuEventSynchronize(CUevent);
CUresult cuCtxSynchronize();
CUresult cuCtxSynchronize_v2(void*);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamBeginCaptureToGraph(CUstream, void*, const void*, const void*, size_t, int);
CUresult cuStreamEndCapture(CUstream, void**);
CUresult cuStreamIsCapturing(CUstream, int*);
CUresult cuStreamCreate(CUstream*, unsigned);
CUresult cuStreamCreateWithPriority(CUstream*, unsigned, int);
CUresult cuModuleUnload(void*);
CUresult cuLibraryUnload(void*);
CUresult cuEventCreate(CUevent*, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuInit(unsigned);
CUresult cuCtxGetCurrent(void**);
CUresult cuCtxDestroy_v2(void*);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuDevicePrimaryCtxRetain(void**, CUdevice);
}

Reached linked() {
  return {cuLaunchKernel,         cuLaunchCooperativeKernel, cuLaunchKernelEx,           cuLaunchCooperativeKernelMultiDevice,
          cuGraphLaunch,          cuGraphExecDestroy,        cuMemcpyAsync,              cuMemcpyHtoDAsync_v2,
          cuMemcpyDtoHAsync_v2,   cuMemcpyDtoDAsync_v2,      cuMemcpy,                   cuMemcpyHtoD_v2,
          cuMemcpyDtoH_v2,        cuMemcpyDtoD_v2,
#define NAMED(field, base, name, threads, arguments) name,
          MOVES(NAMED)
#undef NAMED
          cuStreamSynchronize,        cuEventSynchronize,
          cuCtxSynchronize,       cuCtxSynchronize_v2,       cuStreamBeginCapture_v2,    cuStreamBeginCaptureToGraph,
          cuStreamEndCapture,     cuStreamIsCapturing,       cuStreamCreate,             cuStreamCreateWithPriority,
          cuModuleUnload,         cuLibraryUnload,           cuEventCreate,              cuEventRecord,
          cuInit,                 cuCtxGetCurrent,           cuCtxDestroy_v2,            cuDevicePrimaryCtxReset_v2,
          cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain};
}
#endif

Reached found_by(Find find) {
  Reached r;
#define FIND(field, base, plain, threads) r.field = reinterpret_cast<decltype(r.field)>(find(base, plain, threads))
#define SAME(field, base) FIND(field, base, base, base)
#define STREAM(field, base) FIND(field, base, base, base "_ptsz")
  STREAM(launch, "cuLaunchKernel");
  STREAM(cooperative, "cuLaunchCooperativeKernel");
  STREAM(launch_ex, "cuLaunchKernelEx");
  SAME(multi_device, "cuLaunchCooperativeKernelMultiDevice");
  STREAM(graph_launch, "cuGraphLaunch");
  SAME(graph_destroy, "cuGraphExecDestroy");
  STREAM(copy_async, "cuMemcpyAsync");
  FIND(to_device_async, "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2_ptsz");
  FIND(to_host_async, "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz");
  FIND(within_async, "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2_ptsz");
  FIND(copy, "cuMemcpy", "cuMemcpy", "cuMemcpy_ptds");
  FIND(to_device, "cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds");
  FIND(to_host, "cuMemcpyDtoH", "cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds");
  FIND(within, "cuMemcpyDtoD", "cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds");
#define MOVE(field, base, name, threads, arguments) FIND(field, #base, #name, #name #threads);
  MOVES(MOVE)
#undef MOVE
  STREAM(stream_wait, "cuStreamSynchronize");
  SAME(event_wait, "cuEventSynchronize");
  SAME(context_wait_of, "cuCtxSynchronize_v2");  // first: whoever comes second must not be given the first one's
  SAME(context_wait, "cuCtxSynchronize");
  FIND(begin_capture, "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz");
  STREAM(begin_capture_to, "cuStreamBeginCaptureToGraph");
  STREAM(end_capture, "cuStreamEndCapture");
  STREAM(is_capturing, "cuStreamIsCapturing");
  SAME(stream_create, "cuStreamCreate");
  SAME(stream_create_with, "cuStreamCreateWithPriority");
  SAME(module_unload, "cuModuleUnload");
  SAME(library_unload, "cuLibraryUnload");
  SAME(event_create, "cuEventCreate");
  STREAM(event_record, "cuEventRecord");
  SAME(init, "cuInit");
  SAME(context, "cuCtxGetCurrent");
  FIND(context_destroy, "cuCtxDestroy", "cuCtxDestroy_v2", "cuCtxDestroy_v2");
  FIND(primary_reset, "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset_v2");
  FIND(primary_release, "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease_v2");
  SAME(primary_retain, "cuDevicePrimaryCtxRetain");
  return r;
}

}  // namespace

Reached reach(const std::string& way) {
#ifdef LINKED
  if (way == "direct") return linked();
#endif
  const std::pair<const char*, Find> ways[] = {{"dlsym", by_name},         {"dlsym-threads", by_thread_name},
                                               {"default", by_default},    {"next", by_next},
                                               {"proc0", by_proc0},        {"proc2", by_proc2},
                                               {"old0", by_old0},          {"nested", by_nested},
                                               {"nested-old2", by_nested_old},
                                               {"runtime0", by_runtime0},  {"runtime2", by_runtime2}};
  for (const auto& [name, find] : ways)
    if (way == name) return found_by(find);
  std::fprintf(stderr, "client: no way %s to the driver in this build\n", way.c_str());
  std::exit(9);
}

Stub reach_stub() {
  Stub stub;
  stub.function = reinterpret_cast<decltype(stub.function)>(dlsym(library(), "stubFunction"));
  stub.rename = reinterpret_cast<decltype(stub.rename)>(dlsym(library(), "stubRename"));
  stub.load = reinterpret_cast<decltype(stub.load)>(dlsym(library(), "stubLoad"));
  stub.graph = reinterpret_cast<decltype(stub.graph)>(dlsym(library(), "stubGraph"));
  stub.sum = reinterpret_cast<decltype(stub.sum)>(dlsym(library(), "stubSum"));
  stub.count = reinterpret_cast<decltype(stub.count)>(dlsym(library(), "stubCount"));
  return stub;
}

}  // namespace client
