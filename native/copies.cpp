// Copies and memsets: counted and gated as kernels are. Those that wait for the GPU are waits as well; a memset never is.
#include "hooked.h"
#include "launches.h"

using namespace headway;

namespace {

// As the driver has them: from, to (each with its memory's type), and how much. The same for copies between devices.
struct Copy2D {
  size_t from_x, from_y;
  unsigned from_type;
  void* from[3];
  size_t from_pitch, to_x, to_y;
  unsigned to_type;
  void* to[3];
  size_t to_pitch, width, height;
};
static_assert(sizeof(Copy2D) == 128, "as the driver has it");

struct Copy3D {
  size_t from_place[4];
  unsigned from_type;
  void* from[4];
  size_t from_pitch, from_height, to_place[4];
  unsigned to_type;
  void* to[4];
  size_t to_pitch, to_height, width, height, depth;
};
static_assert(sizeof(Copy3D) == 200, "as the driver has it");

constexpr unsigned kHost = 1, kUnified = 4;

// Which way it goes. Of unified addresses that is not known here.
Move move_of(unsigned from, unsigned to) {
  if (from == kUnified || to == kUnified) return Move::kCopy;
  if (from == kHost || to == kHost) return from == to ? Move::kCopy : from == kHost ? Move::kToDevice : Move::kToHost;
  return Move::kWithin;
}

Move move_of(const Copy2D& c) { return move_of(c.from_type, c.to_type); }
Move move_of(const Copy3D& c) { return move_of(c.from_type, c.to_type); }
uint64_t bytes_of(const Copy2D& c) { return uint64_t{c.width} * c.height; }
uint64_t bytes_of(const Copy3D& c) { return uint64_t{c.width} * c.height * c.depth; }

// The driver's function of that type, called between the two halves of a launch.
template <typename... Types>
CUresult moved(Entry entry, Move move, uint64_t bytes, CUstream stream, Types... given) {
  auto call = real<CUresult (*)(Types...)>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  Launch launch(kCopy, stream, rows[entry].thread);
  launch.copy(move, bytes);
  launch.ready();
  const CUresult result = call(given...);
  launch.done();
  return result;
}

// One that waits for the GPU itself, but for copies within a GPU and between GPUs: they return before they are done.
template <typename... Types>
CUresult moved_now(Entry entry, Move move, uint64_t bytes, Types... given) {
  if (move == Move::kWithin || move == Move::kPeer) return moved(entry, move, bytes, nullptr, given...);
  auto call = real<CUresult (*)(Types...)>(entry);
  if (!call) return CUDA_ERROR_NOT_INITIALIZED;
  {
    Launch launch(kCopy, nullptr, rows[entry].thread);
    launch.copy(move, bytes);
    launch.untimed();
    launch.ready();
    launch.done();  // before the call: it waits, and when it returns there is nothing left in flight
  }
  Wait wait(Over::kStream, nullptr, rows[entry].thread);
  return call(given...);
}

}  // namespace

#define COPY_ASYNC(name, move)                                                                    \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) { \
    return moved(k_##name, Move::move, bytes, stream, to, from, bytes, stream);                   \
  }
COPY_ASYNC(cuMemcpyAsync, kCopy)
COPY_ASYNC(cuMemcpyAsync_ptsz, kCopy)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, kToDevice)
COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, kToDevice)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, kToHost)
COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, kToHost)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, kWithin)
COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, kWithin)

#define COPY_NOW(name, move)                                                     \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes) { \
    return moved_now(k_##name, Move::move, bytes, to, from, bytes);              \
  }
COPY_NOW(cuMemcpy, kCopy)
COPY_NOW(cuMemcpy_ptds, kCopy)
COPY_NOW(cuMemcpyHtoD_v2, kToDevice)
COPY_NOW(cuMemcpyHtoD_v2_ptds, kToDevice)
COPY_NOW(cuMemcpyDtoH_v2, kToHost)
COPY_NOW(cuMemcpyDtoH_v2_ptds, kToHost)
COPY_NOW(cuMemcpyDtoD_v2, kWithin)
COPY_NOW(cuMemcpyDtoD_v2_ptds, kWithin)

// What to copy may be null: that is the driver's to say.
#define BOX_ASYNC(name, type, move)                                                             \
  HEADWAY_EXPORT CUresult name(const type* what, CUstream stream) {                             \
    return moved(k_##name, what ? move : Move::kCopy, what ? bytes_of(*what) : 0, stream, what, stream); \
  }
BOX_ASYNC(cuMemcpy2DAsync_v2, Copy2D, move_of(*what))
BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, Copy2D, move_of(*what))
BOX_ASYNC(cuMemcpy3DAsync_v2, Copy3D, move_of(*what))
BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, Copy3D, move_of(*what))
BOX_ASYNC(cuMemcpy3DPeerAsync, Copy3D, Move::kPeer)
BOX_ASYNC(cuMemcpy3DPeerAsync_ptsz, Copy3D, Move::kPeer)

#define BOX_NOW(name, type, move)                                                             \
  HEADWAY_EXPORT CUresult name(const type* what) {                                            \
    return moved_now(k_##name, what ? move : Move::kCopy, what ? bytes_of(*what) : 0, what);  \
  }
BOX_NOW(cuMemcpy2D_v2, Copy2D, move_of(*what))
BOX_NOW(cuMemcpy2D_v2_ptds, Copy2D, move_of(*what))
BOX_NOW(cuMemcpy2DUnaligned_v2, Copy2D, move_of(*what))
BOX_NOW(cuMemcpy2DUnaligned_v2_ptds, Copy2D, move_of(*what))
BOX_NOW(cuMemcpy3D_v2, Copy3D, move_of(*what))
BOX_NOW(cuMemcpy3D_v2_ptds, Copy3D, move_of(*what))
BOX_NOW(cuMemcpy3DPeer, Copy3D, Move::kPeer)
BOX_NOW(cuMemcpy3DPeer_ptds, Copy3D, Move::kPeer)

#define PEER_ASYNC(name)                                                                                         \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, void* there, CUdeviceptr from, void* here, size_t bytes, CUstream stream) { \
    return moved(k_##name, Move::kPeer, bytes, stream, to, there, from, here, bytes, stream);                    \
  }
PEER_ASYNC(cuMemcpyPeerAsync)
PEER_ASYNC(cuMemcpyPeerAsync_ptsz)

#define PEER_NOW(name)                                                                                   \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, void* there, CUdeviceptr from, void* here, size_t bytes) { \
    return moved_now(k_##name, Move::kPeer, bytes, to, there, from, here, bytes);                        \
  }
PEER_NOW(cuMemcpyPeer)
PEER_NOW(cuMemcpyPeer_ptds)

// Memsets return before they are done, with a stream or without.
#define SET_ASYNC(name, type)                                                                     \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, type value, size_t count, CUstream stream) {       \
    return moved(k_##name, Move::kSet, sizeof(type) * uint64_t{count}, stream, to, value, count, stream); \
  }
#define SET(name, type)                                                                           \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, type value, size_t count) {                        \
    return moved(k_##name, Move::kSet, sizeof(type) * uint64_t{count}, nullptr, to, value, count); \
  }
#define SET_2D_ASYNC(name, type)                                                                                      \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) { \
    return moved(k_##name, Move::kSet, sizeof(type) * uint64_t{width} * height, stream, to, pitch, value, width, height, \
                 stream);                                                                                             \
  }
#define SET_2D(name, type)                                                                                            \
  HEADWAY_EXPORT CUresult name(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {               \
    return moved(k_##name, Move::kSet, sizeof(type) * uint64_t{width} * height, nullptr, to, pitch, value, width, height); \
  }
#define SETS(bits, type)                      \
  SET_ASYNC(cuMemsetD##bits##Async, type)     \
  SET_ASYNC(cuMemsetD##bits##Async_ptsz, type) \
  SET_2D_ASYNC(cuMemsetD2D##bits##Async, type) \
  SET_2D_ASYNC(cuMemsetD2D##bits##Async_ptsz, type) \
  SET(cuMemsetD##bits##_v2, type)             \
  SET(cuMemsetD##bits##_v2_ptds, type)        \
  SET_2D(cuMemsetD2D##bits##_v2, type)        \
  SET_2D(cuMemsetD2D##bits##_v2_ptds, type)
SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned)
