// The shim's decision, outside the shim: looks on standard input, verdicts on standard output, both as packed 64-bit
// integers in the order of decide.h's fields. `replay decide` takes records of 22 numbers and answers with 4 for each;
// `replay choose` takes count, room, and count times (priority, fill, served), and answers with 1.
#include <cstdio>
#include <cstring>
#include <vector>

#include "decide.h"

using namespace headway;

namespace {

static_assert(sizeof(Look) == 22 * sizeof(int64_t) && sizeof(Verdict) == 4 * sizeof(int64_t), "plain numbers");
constexpr int64_t kMostWaiters = 1 << 20;

bool get(void* to, size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }
void put(const void* from, size_t bytes) { std::fwrite(from, 1, bytes, stdout); }

int replay_decide() {
  for (Look look; get(&look, sizeof look);) {
    const Verdict verdict = decide(look);
    put(&verdict, sizeof verdict);
  }
  return 0;
}

int replay_choose() {
  std::vector<Waiter> waiters;
  for (int64_t head[2]; get(head, sizeof head);) {
    if (head[0] < 0 || head[0] > kMostWaiters) return 2;
    waiters.resize(static_cast<size_t>(head[0]));
    if (!waiters.empty() && !get(waiters.data(), waiters.size() * sizeof(Waiter))) return 2;
    const int64_t chosen = choose(waiters.data(), head[0], head[1]);
    put(&chosen, sizeof chosen);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const char* what = count == 2 ? arguments[1] : "";
  if (std::strcmp(what, "decide") == 0) return replay_decide();
  if (std::strcmp(what, "choose") == 0) return replay_choose();
  std::fprintf(stderr, "usage: replay decide|choose < looks > verdicts\n");
  return 2;
}
