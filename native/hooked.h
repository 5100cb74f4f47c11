// The functions of the driver that are hooked, and the real ones behind them.
#pragma once

#include <atomic>

#include "real.h"

#define HEADWAY_EXPORT extern "C" __attribute__((visibility("default")))

namespace headway {

enum Entry : int {
#define ENTRY(name, base, thread, since) k_##name,
#include "entries.h"
#undef ENTRY
  kEntries
};

struct Row {
  const char* name;  // as exported by the driver
  const char* base;  // as asked for through cuGetProcAddress
  bool thread;       // the variant with per-thread default streams
  int since;         // asked for with an earlier CUDA version the base name means another function
  void* hook;
};

extern Row rows[kEntries];
extern std::atomic<void*> reals[kEntries];

template <typename F>
F real(Entry entry) {
  void* at = reals[entry].load(std::memory_order_acquire);
  if (!at) {
    at = driver_function(rows[entry].name);
    if (at) reals[entry].store(at, std::memory_order_release);
  }
  return reinterpret_cast<F>(at);
}

}  // namespace headway
