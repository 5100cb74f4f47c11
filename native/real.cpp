#include "real.h"

#include <dlfcn.h>

#include <initializer_list>

namespace headway {

Dlsym real_dlsym() {
  // dlsym is what is hooked, so the real one is found by its version: 2.34 where it moved into libc, the first one before.
  static const Dlsym real = [] {
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"})
      if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Dlsym>(found);
    return static_cast<Dlsym>(nullptr);
  }();
  return real;
}

void* driver_library() {
  static std::atomic<void*> library{nullptr};
  void* held = library.load(std::memory_order_acquire);
  if (!held) {
    held = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (held) library.store(held, std::memory_order_release);
  }
  return held;
}

void* driver_function(const char* name) {
  void* library = driver_library();
  const Dlsym find = real_dlsym();
  return library && find ? find(library, name) : nullptr;
}

Driver& driver() {
  static Driver all;
  return all;
}

}  // namespace headway
