// Copies of boxes and between devices, and memsets, of the stub driver: device memory is the host's.
#include <cstring>

#include "moves.h"
#include "stub.h"

using namespace stub;

namespace {

char* host(CUdeviceptr at) { return reinterpret_cast<char*>(static_cast<uintptr_t>(at)); }

// Queues so many bytes, and does what is to be done unless it is captured. Where it waits: until that is over.
template <typename Do>
CUresult move(const char* call, bool per_thread, size_t bytes, CUstream where, bool waits, Do act) {
  int64_t end = 0;
  {
    std::lock_guard<Lock> hold(lock);
    if (waits && breaks_capture()) {
      count("broken capture");
      return kCaptureUnsupported;
    }
    Stream* stream = stream_of(where, per_thread);
    Entry entry{call, "move"};
    entry.value = static_cast<int64_t>(bytes);
    if (!stream->capturing) act();
    queue(stream, static_cast<int64_t>(bytes) / kBytesPerNs, &entry);
    end = entry.end_ns;
    note(std::move(entry));
  }
  if (waits) wait_until(end);
  return CUDA_SUCCESS;
}

CUresult box(const char* call, bool per_thread, const Box2D* b, CUstream where, bool waits) {
  if (!b) return kInvalidValue;
  const char* from = b->from_type == kHostMemory ? static_cast<const char*>(b->from_host) : host(b->from);
  char* to = b->to_type == kHostMemory ? static_cast<char*>(b->to_host) : host(b->to);
  return move(call, per_thread, b->width * b->height, where, waits, [&] {
    for (size_t y = 0; y < b->height; ++y)
      std::memcpy(to + b->to_x + (b->to_y + y) * b->to_pitch, from + b->from_x + (b->from_y + y) * b->from_pitch, b->width);
  });
}

CUresult box(const char* call, bool per_thread, const Box3D* b, CUstream where, bool waits) {
  if (!b) return kInvalidValue;
  const char* from = b->from_type == kHostMemory ? static_cast<const char*>(b->from_host) : host(b->from);
  char* to = b->to_type == kHostMemory ? static_cast<char*>(b->to_host) : host(b->to);
  return move(call, per_thread, b->width * b->height * b->depth, where, waits, [&] {
    for (size_t z = 0; z < b->depth; ++z)
      for (size_t y = 0; y < b->height; ++y)
        std::memcpy(to + (z * b->to_height + y) * b->to_pitch, from + (z * b->from_height + y) * b->from_pitch, b->width);
  });
}

template <typename T>
CUresult set(const char* call, bool per_thread, CUdeviceptr to, size_t pitch, T value, size_t width, size_t height,
             CUstream where) {
  return move(call, per_thread, sizeof(T) * width * height, where, false, [&] {
    for (size_t y = 0; y < height; ++y)
      for (size_t x = 0; x < width; ++x) std::memcpy(host(to) + y * pitch + x * sizeof(T), &value, sizeof(T));
  });
}

}  // namespace

#define BOX(name, type, suffix, per_thread) \
  CUresult name##suffix(const type* b) { return box(#name #suffix, per_thread, b, nullptr, true); }
#define BOX_ASYNC(name, type, suffix, per_thread) \
  CUresult name##suffix(const type* b, CUstream stream) { return box(#name #suffix, per_thread, b, stream, false); }
#define PEER(suffix, per_thread)                                                                          \
  CUresult cuMemcpyPeer##suffix(CUdeviceptr to, void*, CUdeviceptr from, void*, size_t bytes) {           \
    return move("cuMemcpyPeer" #suffix, per_thread, bytes, nullptr, true,                                 \
                [&] { std::memcpy(host(to), host(from), bytes); });                                       \
  }
#define PEER_ASYNC(suffix, per_thread)                                                                                   \
  CUresult cuMemcpyPeerAsync##suffix(CUdeviceptr to, void*, CUdeviceptr from, void*, size_t bytes, CUstream stream) {    \
    return move("cuMemcpyPeerAsync" #suffix, per_thread, bytes, stream, false,                                           \
                [&] { std::memcpy(host(to), host(from), bytes); });                                                      \
  }
#define SET(bits, type, suffix, per_thread)                                                                              \
  CUresult cuMemsetD##bits##_v2##suffix(CUdeviceptr to, type value, size_t width) {                                      \
    return set("cuMemsetD" #bits "_v2" #suffix, per_thread, to, 0, value, width, 1, nullptr);                            \
  }                                                                                                                      \
  CUresult cuMemsetD2D##bits##_v2##suffix(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {       \
    return set("cuMemsetD2D" #bits "_v2" #suffix, per_thread, to, pitch, value, width, height, nullptr);                 \
  }
#define SET_ASYNC(bits, type, suffix, per_thread)                                                                        \
  CUresult cuMemsetD##bits##Async##suffix(CUdeviceptr to, type value, size_t width, CUstream stream) {                   \
    return set("cuMemsetD" #bits "Async" #suffix, per_thread, to, 0, value, width, 1, stream);                           \
  }                                                                                                                      \
  CUresult cuMemsetD2D##bits##Async##suffix(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,       \
                                            CUstream stream) {                                                           \
    return set("cuMemsetD2D" #bits "Async" #suffix, per_thread, to, pitch, value, width, height, stream);                \
  }
#define NOW(suffix, per_thread)                             \
  BOX(cuMemcpy2D_v2, Box2D, suffix, per_thread)             \
  BOX(cuMemcpy2DUnaligned_v2, Box2D, suffix, per_thread)    \
  BOX(cuMemcpy3D_v2, Box3D, suffix, per_thread)             \
  BOX(cuMemcpy3DPeer, Box3D, suffix, per_thread)            \
  PEER(suffix, per_thread)                                  \
  SET(8, unsigned char, suffix, per_thread)                 \
  SET(16, unsigned short, suffix, per_thread)               \
  SET(32, unsigned, suffix, per_thread)
#define LATER(suffix, per_thread)                           \
  BOX_ASYNC(cuMemcpy2DAsync_v2, Box2D, suffix, per_thread)  \
  BOX_ASYNC(cuMemcpy3DAsync_v2, Box3D, suffix, per_thread)  \
  BOX_ASYNC(cuMemcpy3DPeerAsync, Box3D, suffix, per_thread) \
  PEER_ASYNC(suffix, per_thread)                            \
  SET_ASYNC(8, unsigned char, suffix, per_thread)           \
  SET_ASYNC(16, unsigned short, suffix, per_thread)         \
  SET_ASYNC(32, unsigned, suffix, per_thread)

extern "C" {
NOW(, false)
NOW(_ptds, true)
LATER(, false)
LATER(_ptsz, true)
}
