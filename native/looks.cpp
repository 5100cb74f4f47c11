#include "looks.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace headway {
namespace {

constexpr long kMost = 20000;  // enough to prove, little enough to keep

int tape() {
  static const int file = [] {
    const char* path = std::getenv("HEADWAY_LOOKS");
    return path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  }();
  return file;
}

}  // namespace

void record_look(const Look& look, const Verdict& verdict) {
  static const bool on = tape() >= 0;
  static std::atomic<long> written{0};
  if (!on || written.fetch_add(1, std::memory_order_relaxed) >= kMost) return;
  struct {
    Look look;
    Verdict verdict;
  } row{look, verdict};
  static_assert(sizeof row == 28 * sizeof(int64_t), "packed");
  // One record a call: programs that append to one file do not tear each other's.
  if (write(tape(), &row, sizeof row) != static_cast<ssize_t>(sizeof row)) written.store(kMost, std::memory_order_relaxed);
}

}  // namespace headway
