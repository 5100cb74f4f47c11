// The shim's decision and its account, outside the shim: packed 64-bit integers on standard input and on standard output,
// in the order of the fields of decide.h and account.h. `replay decide` takes looks of 24 numbers and answers with 4 for
// each; `replay choose` takes count, room, and count times (priority, fill, served), and answers with 1; `replay turn`
// takes count, a look, and the same, and answers with 1. `replay account` takes steps of one account (1: begin anew; the
// terms; the requests above; a look; the verdict on it) and answers with the account when it was looked at and the lag
// that counted, and with the account after that.
#include <cstdio>
#include <cstring>
#include <vector>

#include "account.h"

using namespace headway;

namespace {

static_assert(sizeof(Look) == 24 * sizeof(int64_t) && sizeof(Verdict) == 4 * sizeof(int64_t), "plain numbers");
static_assert(sizeof(Terms) == 3 * sizeof(int64_t) && sizeof(Account) == 7 * sizeof(int64_t), "plain numbers");
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

bool get_waiters(std::vector<Waiter>& waiters, int64_t count) {
  if (count < 0 || count > kMostWaiters) return false;
  waiters.resize(static_cast<size_t>(count));
  return waiters.empty() || get(waiters.data(), waiters.size() * sizeof(Waiter));
}

int replay_choose() {
  std::vector<Waiter> waiters;
  for (int64_t head[2]; get(head, sizeof head);) {
    if (!get_waiters(waiters, head[0])) return 2;
    const int64_t chosen = choose(waiters.data(), head[0], head[1]);
    put(&chosen, sizeof chosen);
  }
  return 0;
}

int replay_turn() {
  std::vector<Waiter> waiters;
  Look look;
  for (int64_t count; get(&count, sizeof count);) {
    if (!get(&look, sizeof look) || !get_waiters(waiters, count)) return 2;
    const int64_t first = comes_first(look, waiters.data(), count);
    put(&first, sizeof first);
  }
  return 0;
}

int replay_account() {
  struct {
    int64_t anew;
    Terms terms;
    uint64_t epoch;
    Look look;
    Verdict verdict;
  } step;
  Account account;
  while (get(&step, sizeof step)) {
    if (step.anew) account = Account{};
    Look& look = step.look;
    accrue(account, tame(step.terms), look.above > 0, look.fill_ns, look.now_ns);
    look.lag_ns = lag_in(account, step.epoch, look);
    put(&account, sizeof account);
    put(&look.lag_ns, sizeof look.lag_ns);
    if (step.verdict.go) pay(account, look, step.verdict);
    put(&account, sizeof account);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const char* what = count == 2 ? arguments[1] : "";
  if (std::strcmp(what, "decide") == 0) return replay_decide();
  if (std::strcmp(what, "choose") == 0) return replay_choose();
  if (std::strcmp(what, "turn") == 0) return replay_turn();
  if (std::strcmp(what, "account") == 0) return replay_account();
  std::fprintf(stderr, "usage: replay decide|choose|turn|account < numbers > answers\n");
  return 2;
}
