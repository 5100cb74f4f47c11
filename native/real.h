// The real driver behind the hooks: every function by name, found once.
#pragma once

#include <atomic>

#include "driver.h"

namespace headway {

using Dlsym = void* (*)(void*, const char*) noexcept;  // so that a call of it can be a sibling call
Dlsym real_dlsym();

// The driver library if the program has loaded it, else null. Never loads it.
void* driver_library();

// The driver's own function of that name, or null.
void* driver_function(const char* name);

// Functions the shim itself calls. Each is looked up at its first use; a null one is not there in this driver.
template <typename F>
struct Own {
  const char* name;
  std::atomic<void*> at{nullptr};
  F get() {
    void* p = at.load(std::memory_order_acquire);
    if (!p) {
      p = driver_function(name);
      at.store(p, std::memory_order_release);
    }
    return reinterpret_cast<F>(p);
  }
};

struct Driver {
  Own<CUresult (*)(const char**, CUfunction)> function_name{"cuFuncGetName"};
  Own<CUresult (*)(const char**, void*)> kernel_name{"cuKernelGetName"};
  Own<CUresult (*)(CUfunction*, void*)> kernel_function{"cuKernelGetFunction"};
  Own<CUresult (*)(int*, CUfunction, int, size_t)> per_sm{"cuOccupancyMaxActiveBlocksPerMultiprocessor"};
  Own<CUresult (*)(CUdevice*)> device{"cuCtxGetDevice"};
  Own<CUresult (*)(int*, int, CUdevice)> device_attribute{"cuDeviceGetAttribute"};
  Own<CUresult (*)(void**)> context{"cuCtxGetCurrent"};
  Own<CUresult (*)(int*, int*)> priorities{"cuCtxGetStreamPriorityRange"};
  Own<CUresult (*)(CUevent*, unsigned)> event_create{"cuEventCreate"};
  Own<CUresult (*)(CUevent, CUstream)> event_record{"cuEventRecord"};
  Own<CUresult (*)(CUevent)> event_query{"cuEventQuery"};
  Own<CUresult (*)(CUevent)> event_destroy{"cuEventDestroy_v2"};
  Own<CUresult (*)(float*, CUevent, CUevent)> event_elapsed{"cuEventElapsedTime"};
  Own<CUresult (*)(CUstream, int*)> capturing{"cuStreamIsCapturing"};
  Own<CUresult (*)(int*)> capture_mode{"cuThreadExchangeStreamCaptureMode"};
  Own<CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**)> launch_ex{"cuLaunchKernelEx"};
  Own<CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**)> launch_ex_thread{"cuLaunchKernelEx_ptsz"};
};
Driver& driver();

}  // namespace headway
