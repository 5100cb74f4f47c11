// cuGetProcAddress: a program asks for a base name, a version and a default stream, and is given the function meant.
// Linked with -Bsymbolic, so that a name means the stub's own function even where another library has one of that name.
#include <cstring>

#include "moves.h"
#include "stub.h"

// base name, what it means, what it means with the default stream of each thread
#define NAMES(X)                                                                                       \
  X(cuInit, cuInit, cuInit)                                                                            \
  X(cuLaunchKernel, cuLaunchKernel, cuLaunchKernel_ptsz)                                               \
  X(cuLaunchKernelEx, cuLaunchKernelEx, cuLaunchKernelEx_ptsz)                                         \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz)              \
  X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice,                        \
    cuLaunchCooperativeKernelMultiDevice)                                                              \
  X(cuGraphLaunch, cuGraphLaunch, cuGraphLaunch_ptsz)                                                  \
  X(cuGraphExecDestroy, cuGraphExecDestroy, cuGraphExecDestroy)                                        \
  X(cuMemcpyAsync, cuMemcpyAsync, cuMemcpyAsync_ptsz)                                                  \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz)                                \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz)                                \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz)                                \
  X(cuMemcpy, cuMemcpy, cuMemcpy_ptds)                                                                 \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds)                                               \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds)                                               \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds)                                               \
  X(cuStreamSynchronize, cuStreamSynchronize, cuStreamSynchronize_ptsz)                                \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz)                       \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz)        \
  X(cuStreamEndCapture, cuStreamEndCapture, cuStreamEndCapture_ptsz)                                   \
  X(cuStreamIsCapturing, cuStreamIsCapturing, cuStreamIsCapturing_ptsz)                                \
  X(cuStreamCreate, cuStreamCreate, cuStreamCreate)                                                    \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, cuStreamCreateWithPriority)                \
  X(cuEventCreate, cuEventCreate, cuEventCreate)                                                       \
  X(cuEventRecord, cuEventRecord, cuEventRecord_ptsz)                                                  \
  X(cuEventQuery, cuEventQuery, cuEventQuery)                                                          \
  X(cuEventSynchronize, cuEventSynchronize, cuEventSynchronize)                                        \
  X(cuEventElapsedTime, cuEventElapsedTime_v2, cuEventElapsedTime_v2)                                  \
  X(cuEventDestroy, cuEventDestroy_v2, cuEventDestroy_v2)                                              \
  X(cuCtxSynchronize, cuCtxSynchronize, cuCtxSynchronize)                                              \
  X(cuCtxDestroy, cuCtxDestroy_v2, cuCtxDestroy_v2)                                                    \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset_v2)                   \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2)             \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                      \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode,                              \
    cuThreadExchangeStreamCaptureMode)                                                                 \
  X(cuCtxGetCurrent, cuCtxGetCurrent, cuCtxGetCurrent)                                                 \
  X(cuCtxGetDevice, cuCtxGetDevice, cuCtxGetDevice)                                                    \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange)             \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, cuDeviceGetAttribute)                                  \
  X(cuModuleUnload, cuModuleUnload, cuModuleUnload)                                                    \
  X(cuLibraryUnload, cuLibraryUnload, cuLibraryUnload)                                                 \
  X(cuFuncGetName, cuFuncGetName, cuFuncGetName)                                                       \
  X(cuKernelGetName, cuKernelGetName, cuKernelGetName)                                                 \
  X(cuKernelGetFunction, cuKernelGetFunction, cuKernelGetFunction)                                     \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor,          \
    cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                       \
  X(cuGetProcAddress, cuGetProcAddress_v2, cuGetProcAddress_v2)

extern "C" {
#define DECLARE(base, plain, threads) \
  void plain();                       \
  void threads();
NAMES(DECLARE)
#define DECLARE_MOVE(field, base, name, suffix, arguments) \
  void name();                                            \
  void name##suffix();
MOVES(DECLARE_MOVE)
void cuGetProcAddress();
void cuCtxSynchronize_v2();
void cuDevicePrimaryCtxReset();
void cuDevicePrimaryCtxRelease();
}

namespace {

struct Name {
  const char* base;
  void (*plain)();
  void (*threads)();
};

#define ROW(base, plain, threads) {#base, plain, threads},
#define MOVE(field, base, name, suffix, arguments) {#base, name, name##suffix},
const Name kNames[] = {NAMES(ROW) MOVES(MOVE)};

constexpr uint64_t kPerThread = 2;

}  // namespace

namespace stub {

CUresult find(const char* name, void** function, int version, uint64_t flags) {
  *function = nullptr;
  for (const Name& row : kNames) {
    if (std::strcmp(row.base, name) != 0) continue;
    auto* found = flags & kPerThread ? row.threads : row.plain;
    // Before CUDA 12 this name meant the older form, without a status.
    if (version < 12000 && std::strcmp(name, "cuGetProcAddress") == 0) found = cuGetProcAddress;
    // Since CUDA 13 this one means a function with an argument.
    if (version >= 13000 && std::strcmp(name, "cuCtxSynchronize") == 0) found = cuCtxSynchronize_v2;
    // And before CUDA 11 these.
    if (version < 11000 && std::strcmp(name, "cuDevicePrimaryCtxReset") == 0) found = cuDevicePrimaryCtxReset;
    if (version < 11000 && std::strcmp(name, "cuDevicePrimaryCtxRelease") == 0) found = cuDevicePrimaryCtxRelease;
    *function = reinterpret_cast<void*>(found);
    return CUDA_SUCCESS;
  }
  return kNotFound;
}

}  // namespace stub
