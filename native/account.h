// The account of a gated program: what it may delay those above, what it has delayed them, what its floor owes it, and
// whose turn it is. Pure, integers only, no clock, no shared memory. kernels/account.py is the same in Python;
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
  int64_t lag_ns = 0;        // delay caused and not yet absorbed
  int64_t lag_slack_ns = 0;  // idle time that those above had left when it was
  int64_t served_ns = 0;     // when a kernel last went
  uint64_t epoch = 0;        // requests above, as of the lag
};

// Time has passed: tamed terms; times and spans that are none below zero.
inline void accrue(Account& a, const Terms& t, bool above, int64_t fill_ns, int64_t now) {
  if (above && a.accrued_ns) {
    const int64_t passed = within(now - a.accrued_ns, kAway), earned = passed * t.credit_ppm / kMillion;
    a.credit_ns = least(t.credit_cap_ns, a.credit_ns + earned);
    // Those above may never wait, and never be seen to make it up: as fast as they may be delayed it is forgotten.
    a.lag_ns = most(0, a.lag_ns - earned);
    // Owed at most what this kernel needs and a bit: a program that slept does not come back with a flood.
    a.debt_ns = least(a.debt_ns + passed * t.floor_ppm / kMillion, within(fill_ns, kLongest) + kSurplus);
  }
  if (!above) a.debt_ns = 0;
  a.accrued_ns = now;
}

// The lag that counts now. Of what the last request above absorbed there remains, when the next one begins, the part still
// in flight; of any lag that part which the idle time since then has not made up.
inline int64_t lag_in(Account& a, uint64_t epoch, const Look& k) {
  if (a.epoch != epoch) {
    a.lag_ns = least(a.lag_ns, most(0, k.filled_ns - most(k.now_ns, k.next_ns)));
    a.lag_slack_ns = k.slack_ns;
    a.epoch = epoch;
  }
  return most(0, a.lag_ns - most(0, a.lag_slack_ns - k.slack_ns));
}

// A kernel goes.
inline void pay(Account& a, const Look& k, const Verdict& v) {
  a.served_ns = k.now_ns;
  if (!k.above) return;
  a.debt_ns = most(-kSurplus, a.debt_ns - within(k.fill_ns, kLatest));
  if (v.reason == kCredit) a.credit_ns -= v.harm_ns;
  if (lags(k, v)) {
    // What is owed is not held up by what came before, and does not add up.
    a.lag_ns = v.reason == kFloor ? most(k.lag_ns, v.harm_ns) : k.lag_ns + v.harm_ns;
    a.lag_slack_ns = k.slack_ns;
  }
}

// Whether the first of those who wait comes first: of those that fit into the gap, or of all where none does.
inline int64_t comes_first(const Look& k, const Waiter* waiters, int64_t count) {
  const int64_t start = most(k.now_ns + k.latency_ns, k.filled_ns);
  int64_t chosen = choose(waiters, count, most(k.next_ns + k.latency_ns, k.busy_ns) - start);
  if (chosen < 0) chosen = choose(waiters, count, INT64_MAX);
  return chosen == 0 ? 1 : 0;
}

}  // namespace headway
