// The two exported forms of cuGetProcAddress; apart from the table, which declares every function without its arguments.
#include "stub.h"

namespace stub {
CUresult find(const char* name, void** function, int version, uint64_t flags);
}

using namespace stub;

extern "C" {

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  {
    std::lock_guard<Lock> hold(lock);
    count("cuGetProcAddress_v2");
  }
  const CUresult result = find(name, function, version, flags);
  if (status) *status = result == CUDA_SUCCESS ? 0 : 1;
  return status ? CUDA_SUCCESS : result;
}

CUresult cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  {
    std::lock_guard<Lock> hold(lock);
    count("cuGetProcAddress");
  }
  return find(name, function, version, flags);
}

}  // extern "C"
