// Copies of boxes and between devices, and memsets: a field of the client, the base name, the driver's name, what is added
// to it for the default stream of each thread, and the arguments.
#pragma once

#include "../driver.h"

#define MOVES(X) \
  X(copy_2d_async, cuMemcpy2DAsync, cuMemcpy2DAsync_v2, _ptsz, (const void*, CUstream)) \
  X(copy_3d_async, cuMemcpy3DAsync, cuMemcpy3DAsync_v2, _ptsz, (const void*, CUstream)) \
  X(peer_async, cuMemcpyPeerAsync, cuMemcpyPeerAsync, _ptsz, (CUdeviceptr, void*, CUdeviceptr, void*, size_t, CUstream)) \
  X(peer_3d_async, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, _ptsz, (const void*, CUstream)) \
  X(copy_2d, cuMemcpy2D, cuMemcpy2D_v2, _ptds, (const void*)) \
  X(copy_2d_unaligned, cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, _ptds, (const void*)) \
  X(copy_3d, cuMemcpy3D, cuMemcpy3D_v2, _ptds, (const void*)) \
  X(peer, cuMemcpyPeer, cuMemcpyPeer, _ptds, (CUdeviceptr, void*, CUdeviceptr, void*, size_t)) \
  X(peer_3d, cuMemcpy3DPeer, cuMemcpy3DPeer, _ptds, (const void*)) \
  X(set_8_async, cuMemsetD8Async, cuMemsetD8Async, _ptsz, (CUdeviceptr, unsigned char, size_t, CUstream)) \
  X(set_2d_8_async, cuMemsetD2D8Async, cuMemsetD2D8Async, _ptsz, (CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream)) \
  X(set_8, cuMemsetD8, cuMemsetD8_v2, _ptds, (CUdeviceptr, unsigned char, size_t)) \
  X(set_2d_8, cuMemsetD2D8, cuMemsetD2D8_v2, _ptds, (CUdeviceptr, size_t, unsigned char, size_t, size_t)) \
  X(set_16_async, cuMemsetD16Async, cuMemsetD16Async, _ptsz, (CUdeviceptr, unsigned short, size_t, CUstream)) \
  X(set_2d_16_async, cuMemsetD2D16Async, cuMemsetD2D16Async, _ptsz, (CUdeviceptr, size_t, unsigned short, size_t, size_t, CUstream)) \
  X(set_16, cuMemsetD16, cuMemsetD16_v2, _ptds, (CUdeviceptr, unsigned short, size_t)) \
  X(set_2d_16, cuMemsetD2D16, cuMemsetD2D16_v2, _ptds, (CUdeviceptr, size_t, unsigned short, size_t, size_t)) \
  X(set_32_async, cuMemsetD32Async, cuMemsetD32Async, _ptsz, (CUdeviceptr, unsigned, size_t, CUstream)) \
  X(set_2d_32_async, cuMemsetD2D32Async, cuMemsetD2D32Async, _ptsz, (CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream)) \
  X(set_32, cuMemsetD32, cuMemsetD32_v2, _ptds, (CUdeviceptr, unsigned, size_t)) \
  X(set_2d_32, cuMemsetD2D32, cuMemsetD2D32_v2, _ptds, (CUdeviceptr, size_t, unsigned, size_t, size_t))

// What the driver takes for a copy of a box.
struct Box2D {
  size_t from_x, from_y;
  unsigned from_type;
  const void* from_host;
  CUdeviceptr from;
  void* from_array;
  size_t from_pitch, to_x, to_y;
  unsigned to_type;
  void* to_host;
  CUdeviceptr to;
  void* to_array;
  size_t to_pitch, width, height;
};

struct Box3D {
  size_t from_place[4];
  unsigned from_type;
  const void* from_host;
  CUdeviceptr from;
  void *from_array, *from_context;
  size_t from_pitch, from_height, to_place[4];
  unsigned to_type;
  void* to_host;
  CUdeviceptr to;
  void *to_array, *to_context;
  size_t to_pitch, to_height, width, height, depth;
};
constexpr unsigned kHostMemory = 1, kDeviceMemory = 2, kUnifiedMemory = 4;
