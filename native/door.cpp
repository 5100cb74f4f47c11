#include "door.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace headway {
namespace {

int awaited = -1;  // a connection on which the broker has not answered yet; used by one thread at a time, as all here is
uint64_t awaited_door = 0;

void hang_up() {
  if (awaited >= 0) close(awaited);
  awaited = -1;
}

// Fills in the address; a path that is too long for one is named by its folder's handle, which is returned, else -1.
int address_of(const char* path, sockaddr_un* to) {
  std::memset(to, 0, sizeof *to);
  to->sun_family = AF_UNIX;
  if (std::strlen(path) < sizeof to->sun_path) {
    std::memcpy(to->sun_path, path, std::strlen(path));
    return -1;
  }
  const char* name = std::strrchr(path, '/');
  char folder[4096];
  if (!name || static_cast<size_t>(name - path) >= sizeof folder) return -1;
  std::memcpy(folder, path, static_cast<size_t>(name - path));
  folder[name - path] = 0;
  const int handle = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  std::snprintf(to->sun_path, sizeof to->sun_path, "/proc/self/fd/%d%s", handle, name);
  return handle;
}

bool connect_to(const char* path, Missing* why) {
  awaited = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (awaited < 0) return false;
  sockaddr_un address;
  const int folder = address_of(path, &address);
  const int refused = connect(awaited, reinterpret_cast<const sockaddr*>(&address), sizeof address) ? errno : 0;
  if (folder >= 0) close(folder);
  if (refused) {
    *why = refused == EACCES || refused == EPERM ? Missing::kRefused : refused == EAGAIN ? Missing::kSilent : Missing::kNone;
    return false;
  }
  // Whoever made the socket is who answers: this user, or root. Root may look after everybody's programs.
  ucred peer{};
  socklen_t bytes = sizeof peer;
  const bool known = getsockopt(awaited, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
  if (known && (geteuid() == 0 || peer.uid == 0 || peer.uid == geteuid())) {
    send(awaited, "p", 1, MSG_NOSIGNAL | MSG_DONTWAIT);  // as what: a program, which wants a slot
    return true;
  }
  *why = Missing::kRefused;
  return false;
}

// The handle that the broker sends, or -1.
int receive(int from) {
  char byte = 0;
  iovec text{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0) return -1;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS || part->cmsg_len != CMSG_LEN(sizeof(int))) continue;
    int handle = -1;
    std::memcpy(&handle, CMSG_DATA(part), sizeof handle);
    return handle;
  }
  return -1;
}

// Maps memory that is a block of ours and that cannot shrink; null where it is not.
Block* map_sealed(int handle) {
  struct stat about{};
  const bool sized = fstat(handle, &about) == 0 && static_cast<size_t>(about.st_size) == sizeof(Block);
  const int seals = fcntl(handle, F_GET_SEALS);
  if (!sized || seals < 0 || !(seals & F_SEAL_SHRINK)) return nullptr;
  void* at = mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* block = static_cast<Block*>(at);
  const Header& header = block->header;
  if (load(header.magic) == kMagic && load(header.version) == kVersion && load(header.slots) == kSlots &&
      load(header.slot_bytes) == sizeof(Slot))
    return block;
  munmap(at, sizeof(Block));
  return nullptr;
}

}  // namespace

uint64_t door_at(const char* path) {
  struct stat about{};
  if (lstat(path, &about) != 0) return 0;
  // A number alone may be given to the next file; its time is another one then.
  const auto time = static_cast<uint64_t>(about.st_ctim.tv_sec) * 1000000000u + static_cast<uint64_t>(about.st_ctim.tv_nsec);
  return (static_cast<uint64_t>(about.st_ino) * 0x9e3779b97f4a7c15ull ^ time) | 1;
}

Block* ask_for_block(const char* path, int wait_ms, Missing* why) {
  struct stat about{};
  *why = Missing::kNone;
  if (lstat(path, &about) != 0) return nullptr;
  if (!S_ISSOCK(about.st_mode)) {  // a file is the block of an earlier version; a link is not followed
    *why = S_ISREG(about.st_mode) ? Missing::kVersion : Missing::kNone;
    return nullptr;
  }
  const uint64_t door = door_at(path);
  if (door != awaited_door) hang_up();
  awaited_door = door;
  if (awaited < 0 && !connect_to(path, why)) {
    hang_up();
    return nullptr;
  }
  pollfd answer{awaited, POLLIN, 0};
  if (poll(&answer, 1, wait_ms) <= 0) {
    *why = Missing::kSilent;
    return nullptr;
  }
  const int handle = receive(awaited);
  hang_up();
  if (handle < 0) return nullptr;
  Block* block = map_sealed(handle);
  close(handle);
  *why = block ? Missing::kNot : Missing::kVersion;
  return block;
}

void retire_block(Block* block) {
  mmap(block, sizeof(Block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void forget_door() { hang_up(); }

}  // namespace headway
