// The account of a gated program: what it may delay those above, what its floor owes it, and whose turn it is; and the lag
// of a program above: what all of those below have delayed it. Pure, integers only, no clock, no shared memory. kernels/account.py is the same in Python;
// native/replay.cpp plays recorded sequences through this one, and a test proves that the two agree. Change both or neither.
#pragma once

#include "decide.h"

namespace headway {

constexpr int64_t kSurplus = 5000000;  // what was had in good times is not held against a program for longer
constexpr int64_t kAway = 100 * kMillion;  // a program that did not look for longer earns no more

// Of the rules those that an account goes by.
struct Terms {
  int64_t credit_ppm, credit_cap_ns, floor_ppm;
};

inline Terms tame(const Terms& t) {
  return {within(t.credit_ppm, kWidest), within(t.credit_cap_ns, kLongest), within(t.floor_ppm, kMillion)};
}

struct Account {
  int64_t accrued_ns = 0;    // until when it was reckoned
  int64_t credit_ns = 0;     // delay that may be caused
  int64_t debt_ns = 0;       // GPU time owed by the floor; negative: had more
  int64_t served_ns = 0;     // when a kernel last went
};

// Of one program above, shared by all below: see Book.
struct Lag {
  int64_t lag_ns = 0;    // delay caused and not yet absorbed
  int64_t slack_ns = 0;  // idle time that it had left when it was
  uint64_t epoch = 0;    // its requests, as of the lag
};

// Time has passed: tamed terms; times and spans that are none below zero. Tells the credit that was earned.
inline int64_t accrue(Account& a, const Terms& t, bool above, int64_t fill_ns, int64_t now) {
  int64_t earned = 0;
  if (above && a.accrued_ns) {
    const int64_t passed = within(now - a.accrued_ns, kAway);
    earned = passed * t.credit_ppm / kMillion;
    a.credit_ns = least(t.credit_cap_ns, a.credit_ns + earned);
    // Owed at most what this kernel needs and a bit: a program that slept does not come back with a flood.
    a.debt_ns = least(a.debt_ns + passed * t.floor_ppm / kMillion, within(fill_ns, kLongest) + kSurplus);
  }
  if (!above) a.debt_ns = 0;
  a.accrued_ns = now;
  return earned;
}

// Those above may never wait, and never be seen to make it up: as fast as they may be delayed it is forgotten. Each of
// those below has a part of the credit, and forgets as much.
inline void forget(Lag& l, int64_t earned) { l.lag_ns = most(0, l.lag_ns - earned); }

// The lag of a program that counts now, by its own next launch and slack. Of what its last request absorbed there remains,
// when the next one begins, the part still in flight; of any lag that part which the idle time since then has not made up.
inline int64_t lag_in(Lag& l, uint64_t epoch, const Look& k, int64_t next_ns, int64_t slack_ns) {
  if (l.epoch != epoch) {
    l.lag_ns = least(l.lag_ns, most(0, k.filled_ns - most(k.now_ns, next_ns)));
    l.slack_ns = slack_ns;
    l.epoch = epoch;
  }
  return most(0, l.lag_ns - most(0, l.slack_ns - slack_ns));
}

// A kernel goes.
inline void pay(Account& a, const Look& k, const Verdict& v) {
  a.served_ns = k.now_ns;
  if (!k.above) return;
  a.debt_ns = most(-kSurplus, a.debt_ns - within(k.fill_ns, kLatest));
  if (v.reason == kCredit) a.credit_ns -= v.harm_ns;
}

// And a program above, whose lag is that now, is delayed by it.
inline void delay(Lag& l, int64_t lag_ns, int64_t slack_ns, const Look& k, const Verdict& v) {
  if (!k.above || !lags(k, v)) return;
  // What is owed is not held up by what came before, and does not add up.
  l.lag_ns = least(v.reason == kFloor ? most(lag_ns, v.harm_ns) : lag_ns + v.harm_ns, kLatest);
  l.slack_ns = slack_ns;
}

// Whether the first of those who wait comes first: of those that fit into the gap, or of all where none does.
inline int64_t comes_first(const Look& k, const Waiter* waiters, int64_t count) {
  const int64_t start = most(k.now_ns + k.latency_ns, k.filled_ns);
  int64_t chosen = choose(waiters, count, most(k.next_ns + k.latency_ns, k.busy_ns) - start);
  if (chosen < 0) chosen = choose(waiters, count, INT64_MAX);
  return chosen == 0 ? 1 : 0;
}

}  // namespace headway
