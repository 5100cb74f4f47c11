// As much of the CUDA driver's interface as the shim needs, declared here so that no CUDA toolkit is needed to build it.
#pragma once

#include <cstddef>
#include <cstdint>

using CUresult = int;
using CUfunction = void*;
using CUstream = void*;
using CUevent = void*;
using CUgraphExec = void*;
using CUdevice = int;
using CUdeviceptr = unsigned long long;

constexpr CUresult CUDA_SUCCESS = 0;
constexpr CUresult CUDA_ERROR_NOT_INITIALIZED = 3;
constexpr CUresult CUDA_ERROR_NOT_READY = 600;

inline CUstream legacy_stream() { return reinterpret_cast<CUstream>(uintptr_t{1}); }
inline CUstream thread_stream() { return reinterpret_cast<CUstream>(uintptr_t{2}); }

struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int priority;
  } value;
};
static_assert(sizeof(CUlaunchAttribute) == 72, "as the driver has it");
constexpr int kAttributePriority = 8;

struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(CUlaunchConfig) == 56, "as the driver has it");
