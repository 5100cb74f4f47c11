#include "looks.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace headway {
namespace {

constexpr long kMost = 20000;  // enough to prove, little enough to keep

FILE* tape() {
  static FILE* file = [] {
    const char* path = std::getenv("HEADWAY_LOOKS");
    return path && *path ? std::fopen(path, "abe") : nullptr;
  }();
  return file;
}

}  // namespace

void record_look(const Look& look, const Verdict& verdict) {
  static const bool on = tape() != nullptr;
  static std::atomic<long> written{0};
  if (!on || written.fetch_add(1, std::memory_order_relaxed) >= kMost) return;
  struct {
    Look look;
    Verdict verdict;
  } row{look, verdict};
  static_assert(sizeof row == 26 * sizeof(int64_t), "packed");
  std::fwrite(&row, sizeof row, 1, tape());
}

}  // namespace headway
