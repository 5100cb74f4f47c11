// A library that stands between a program and the C library, as allocators and profilers do: it calls the next function
// of the same name. RTLD_NEXT means "after the caller", so a dlsym that hides its caller would make it call itself.
#include <dlfcn.h>

#include <ctime>

extern "C" int nanosleep(const timespec* wanted, timespec* left) {
  static int depth = 0;
  if (++depth > 64) __builtin_trap();
  static auto next = reinterpret_cast<int (*)(const timespec*, timespec*)>(dlsym(RTLD_NEXT, "nanosleep"));
  const int result = next(wanted, left);
  --depth;
  return result;
}
