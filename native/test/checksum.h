// What a launch consists of, as one number: the client reckons it before the launch, the stub driver after it, and the two
// must agree, whatever stood between them.
#pragma once

#include <cstring>

#include "../driver.h"

namespace stub {

inline uint64_t stir(uint64_t sum, uint64_t value) {
  uint64_t x = (sum ^ value) * 0x9e3779b97f4a7c15ull;
  return x ^ x >> 31;
}

inline uint64_t stir(uint64_t sum, const void* pointer) { return stir(sum, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer))); }

inline uint64_t stir_bytes(uint64_t sum, const void* bytes, size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) sum = stir(sum, uint64_t{at[i]});
  return sum;
}

// A stub kernel takes two 64-bit numbers, either through `params` or, packed, through `extra`.
inline uint64_t arguments_sum(uint64_t sum, void** params, void** extra) {
  sum = stir(stir(sum, params), extra);
  for (int i = 0; params && i < 2; ++i) {
    uint64_t value;
    std::memcpy(&value, params[i], sizeof value);
    sum = stir(stir(sum, params[i]), value);
  }
  // extra: 1, buffer, 2, pointer to its size, 0
  if (extra) sum = stir_bytes(sum, extra[1], *static_cast<size_t*>(extra[3]));
  return sum;
}

inline uint64_t launch_sum(CUfunction function, const unsigned* shape, CUstream stream, void** params, void** extra) {
  uint64_t sum = stir(stir(1, function), stream);
  for (int i = 0; i < 7; ++i) sum = stir(sum, uint64_t{shape[i]});
  return arguments_sum(sum, params, extra);
}

// A priority may be added on the way; every other attribute must come through as it was.
inline uint64_t config_sum(const CUlaunchConfig* config, CUfunction function, void** params, void** extra) {
  const unsigned shape[7] = {config->grid_x,  config->grid_y,  config->grid_z,      config->block_x,
                             config->block_y, config->block_z, config->shared_bytes};
  uint64_t sum = launch_sum(function, shape, config->stream, params, extra);
  for (unsigned i = 0; i < config->count; ++i) {
    const CUlaunchAttribute& attribute = config->attributes[i];
    if (attribute.id == kAttributePriority) continue;
    sum = stir_bytes(stir(sum, static_cast<uint64_t>(attribute.id)), attribute.value.bytes, sizeof attribute.value.bytes);
  }
  return sum;
}

}  // namespace stub
