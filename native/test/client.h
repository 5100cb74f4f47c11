// A program that uses the driver as real ones do: what it was asked to do, and the driver's functions however reached.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../driver.h"
#include "moves.h"

namespace client {

struct Asked {
  std::string reach = "direct";  // direct, dlsym, next, default, proc0, proc2, old0, nested
  std::string verb = "launch";   // or one of those in verbs.cpp
  std::vector<std::pair<std::string, int64_t>> kernels;  // name, duration in ns
  int64_t launches = 100;
  int64_t for_ms = 0;            // instead of a number of launches
  int64_t gap_us = 0;
  int64_t think_us = 0;          // after each wait for the GPU
  int64_t sync_every = 10;
  int64_t load_ms = 0;
  int64_t sleep_ms = 0;
  int threads = 1;
  unsigned grid = 132, block = 256;
  bool handles = false;          // CUkernel handles
  bool through_ex = false;
  int own_priority = -1000;      // a launch attribute that the program sets itself
  std::string wait_for;          // a file: begin when it is there
  std::string until;             // a file: go on until it is there
};

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                            void**);
using Cooperative = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                                 void**);
using LaunchEx = CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**);

// The entry points by base name; null where this way does not lead to one.
struct Reached {
  Launch launch = nullptr;
  Cooperative cooperative = nullptr;
  LaunchEx launch_ex = nullptr;
  CUresult (*multi_device)(void*, unsigned, unsigned) = nullptr;
  CUresult (*graph_launch)(CUgraphExec, CUstream) = nullptr;
  CUresult (*graph_destroy)(CUgraphExec) = nullptr;
  CUresult (*copy_async)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = nullptr;
  CUresult (*to_device_async)(CUdeviceptr, const void*, size_t, CUstream) = nullptr;
  CUresult (*to_host_async)(void*, CUdeviceptr, size_t, CUstream) = nullptr;
  CUresult (*within_async)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = nullptr;
  CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t) = nullptr;
  CUresult (*to_device)(CUdeviceptr, const void*, size_t) = nullptr;
  CUresult (*to_host)(void*, CUdeviceptr, size_t) = nullptr;
  CUresult (*within)(CUdeviceptr, CUdeviceptr, size_t) = nullptr;
#define FIELD(field, base, name, threads, arguments) CUresult(*field) arguments = nullptr;
  MOVES(FIELD)
#undef FIELD
  CUresult (*stream_wait)(CUstream) = nullptr;
  CUresult (*event_wait)(CUevent) = nullptr;
  CUresult (*context_wait)() = nullptr;
  CUresult (*context_wait_of)(void*) = nullptr;  // the function of CUDA 13; null where this way has none
  CUresult (*begin_capture)(CUstream, int) = nullptr;
  CUresult (*begin_capture_to)(CUstream, void*, const void*, const void*, size_t, int) = nullptr;
  CUresult (*end_capture)(CUstream, void**) = nullptr;
  CUresult (*is_capturing)(CUstream, int*) = nullptr;
  CUresult (*stream_create)(CUstream*, unsigned) = nullptr;
  CUresult (*stream_create_with)(CUstream*, unsigned, int) = nullptr;
  CUresult (*module_unload)(void*) = nullptr;
  CUresult (*library_unload)(void*) = nullptr;
  CUresult (*event_create)(CUevent*, unsigned) = nullptr;
  CUresult (*event_record)(CUevent, CUstream) = nullptr;
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*context)(void**) = nullptr;
  CUresult (*context_destroy)(void*) = nullptr;
  CUresult (*primary_reset)(CUdevice) = nullptr;
  CUresult (*primary_release)(CUdevice) = nullptr;
  CUresult (*primary_retain)(void**, CUdevice) = nullptr;
};

// The stub's own calls.
struct Stub {
  CUfunction (*function)(const char*, int64_t, int64_t, int) = nullptr;
  void (*rename)(CUfunction, const char*, int64_t) = nullptr;
  void (*load)(CUfunction, int64_t) = nullptr;
  CUgraphExec (*graph)(int64_t) = nullptr;
  uint64_t (*sum)() = nullptr;
  uint64_t (*count)(const char*) = nullptr;
};

Reached reach(const std::string& way);
Stub reach_stub();

// What was done, as one thread or several did it.
struct Done {
  uint64_t launches = 0, graphs = 0, copies = 0, captured = 0, nccl = 0, syncs = 0;
  uint64_t sum = 0;       // of all that was passed to the driver
  uint64_t errors = 0;    // results that are not what the driver gives
  std::vector<int64_t> requests_ns;
  void add(const Done& other);
};

using Verb = Done (*)(const Asked&, const Reached&, const Stub&);
// Those of situations.cpp by name, null for any other.
Verb situation(const std::string& name);

void expect(Done* done, bool right);
std::vector<CUfunction> functions(const Asked& asked, const Stub& stub);

Done run_verb(const Asked& asked, const Reached& driver, const Stub& stub);

// One launch of `function`; its arguments live until the call returns, as the driver requires.
CUresult launch_one(const Asked& asked, const Reached& driver, CUfunction function, CUstream stream, uint64_t seed, Done* done);

void pause_us(int64_t us);

}  // namespace client
