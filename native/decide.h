// The reflex: may this kernel of a lower-priority program go to the GPU now? Pure, integers only, no clock, no memory.
// kernels/reflex.py is the same function in Python; native/replay.cpp runs this one over recorded looks, and a test
// proves that the two agree on every one. Change both or neither.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace headway {

constexpr int64_t kMillion = 1000000;
constexpr int64_t kHeavy = 500000;  // a kernel of half a millisecond is long
constexpr int64_t kClear = 100000;  // and keeps this far from the end of what runs above, which is known no better
constexpr int64_t kPoll = 3000;  // look again after so long, where nothing says when

enum Reason : int32_t {
  kOff = 0,        // this program is not gated
  kAlone = 1,      // nobody above is at work
  kFits = 2,       // ends before the next kernel above is due
  kAbsorbed = 3,   // delays it, by no more than its program idles before it next waits
  kCredit = 4,     // delays it, paid from what the dial allows
  kFloor = 5,      // its guaranteed share is owed
  kHold = 6,       // waits: those above are being watched alone
  kDepth = 7,      // waits: enough in flight
  kBusy = 8,       // waits: a kernel above runs
  kGap = 9,        // waits: does not fit
  kTurn = 10,      // waits: another one's turn
  kThreshold = 11, // waits: the gap is not worth it
  kLong = 12,      // waits: longer than may go while somebody above is at work
};

struct Look {
  int64_t now_ns;
  int64_t above;        // programs of higher priority at work
  int64_t busy_ns;      // predicted end of what they launched
  int64_t next_ns;      // their predicted next launch
  int64_t slack_ns;     // idle time left before one of them waits
  int64_t filled_ns;    // predicted end of the fills in flight
  int64_t fill_ns;      // predicted time of this kernel
  int64_t wave_ns;      // of one wave of its blocks
  int64_t width_ppm;    // share of the GPU that its blocks take
  int64_t lag_ns;       // delay caused and not yet absorbed
  int64_t credit_ns;    // delay that may be caused
  int64_t debt_ns;      // GPU time owed by the floor
  int64_t turn;         // 1: nobody else comes first
  // the rules
  int64_t gate, hold, threshold_ns, latency_ns, depth_ns, idle_depth_ns, absorb_ppm, overlap_ppm, whole, longest_ns;
  int64_t contention_ppm;  // delay of those above by this kernel's time beside them, beyond what is reckoned
};

struct Verdict {
  int64_t go;
  int64_t reason;
  int64_t until_ns;     // when waiting: look again then
  int64_t harm_ns;      // predicted delay of those above
};

inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The time of a kernel started at `start` that runs beside kernels above: those that still run then, and the next one, due
// at `due`.
inline int64_t beside_ns(const Look& k, int64_t start, int64_t due) {
  const int64_t running = most(0, least(k.busy_ns, start + k.fill_ns) - start);
  return least(k.fill_ns, running + most(0, start + k.fill_ns - due));
}

// The delay that a kernel started at `start` causes: what it takes from the kernels above that still run then, and what
// the next one, due at `due`, waits for its blocks to leave; and, while it runs beside either, what no wait shows: caches, memory, power.
inline int64_t harm(const Look& k, int64_t start, int64_t due) {
  int64_t beside = most(0, least(k.busy_ns, start + k.fill_ns) - start);
  int64_t total = beside * k.overlap_ppm / kMillion * k.width_ppm / kMillion;
  int64_t late = start + k.fill_ns - due;
  if (late > 0) {
    const int64_t held = least(late, k.whole ? k.fill_ns : k.wave_ns);
    total += held * k.width_ppm / kMillion;
  }
  return total + beside_ns(k, start, due) * k.contention_ppm / kMillion;
}

// When a kernel would start if it went now, and when the next one above is due.
struct Times {
  int64_t start, due;
};

inline Times times(const Look& k) {
  // A launch that is overdue is expected after half of the time it is overdue: the longer the silence, the longer still.
  const int64_t next = k.now_ns > k.next_ns ? k.now_ns + (k.now_ns - k.next_ns) / 2 : k.next_ns;
  return {most(k.now_ns + k.latency_ns, k.filled_ns), most(next + k.latency_ns, k.busy_ns)};
}

constexpr int64_t kLongest = 100000000000;           // a hundred seconds
constexpr int64_t kLatest = 4000000000000000000;     // a clock never shows more
constexpr int64_t kWidest = 4 * kMillion;              // the longest, twice this wide, still fits into 64 bits

inline int64_t within(int64_t value, int64_t top) { return value < 0 ? 0 : least(value, top); }

// Any numbers at all, made ones that can be reckoned with: nothing below overflows, whatever the shared memory holds.
inline Look tame(Look k) {
  for (int64_t* time : {&k.now_ns, &k.busy_ns, &k.next_ns, &k.filled_ns}) *time = within(*time, kLatest);
  for (int64_t* span : {&k.slack_ns, &k.fill_ns, &k.wave_ns, &k.lag_ns, &k.credit_ns, &k.debt_ns, &k.threshold_ns,
                        &k.latency_ns, &k.depth_ns, &k.idle_depth_ns, &k.longest_ns})
    *span = within(*span, kLongest);
  for (int64_t* share : {&k.width_ppm, &k.absorb_ppm, &k.overlap_ppm, &k.contention_ppm}) *share = within(*share, kWidest);
  return k;
}

// How much of its work may be in flight. With nobody above it goes far ahead with short kernels only: whoever comes then
// waits for one of them at a time, and a long one keeps the GPU busy by itself.
inline int64_t depth_ns(const Look& k) {
  if (k.above) return k.depth_ns;
  return k.fill_ns > k.idle_depth_ns / 32 ? k.idle_depth_ns / 4 : k.idle_depth_ns;
}

// A kernel so long that even one of them is felt.
inline bool heavy(const Look& k) { return k.fill_ns >= kHeavy; }

// Whether what it delays those above is still to be made up by them: absorbed, or, of a long one, paid for or owed.
inline bool lags(const Look& k, const Verdict& v) {
  return v.reason == kAbsorbed || (heavy(k) && (v.reason == kCredit || v.reason == kFloor));
}

inline Verdict decide(const Look& raw) {
  const Look k = tame(raw);
  if (!k.gate) return {1, kOff, 0, 0};
  const int64_t queued = most(0, k.filled_ns - k.now_ns);
  if (k.above == 0) {
    const int64_t depth = depth_ns(k);
    if (queued > depth) return {0, kDepth, k.filled_ns - depth / 2, 0};
    return {1, kAlone, 0, 0};
  }
  if (k.hold) return {0, kHold, k.now_ns + 100 * kPoll, 0};
  const auto [start, due] = times(k);
  int64_t cost = harm(k, start, due);
  // A long one that comes a moment too soon holds up all that is still to run: near work above it is in its way, though
  // it would start later, behind another one that holds that work up already.
  const int64_t clear = heavy(k) ? k.busy_ns + kClear : k.busy_ns, from = heavy(k) ? k.now_ns + k.latency_ns : start;
  if (from < clear && heavy(k)) cost = most(cost, (k.whole ? k.fill_ns : k.wave_ns) * k.width_ppm / kMillion);
  // What the floor owes comes before anybody's turn: with a floor nobody starves.
  if (k.debt_ns >= k.fill_ns && queued == 0) return {1, kFloor, 0, cost};
  if (k.longest_ns && k.fill_ns > k.longest_ns) return {0, kLong, k.now_ns + kPoll, cost};
  if (!k.turn) return {0, kTurn, k.now_ns + kPoll, 0};
  if (queued > k.depth_ns) return {0, kDepth, k.filled_ns - k.depth_ns / 2, 0};
  // Where programs never overlap (nothing may be in flight ahead) there is no filling without a gap.
  const bool fits = cost == 0, narrow = due - most(start, k.busy_ns) < k.threshold_ns;
  if (narrow && k.depth_ns == 0) return {0, kThreshold, k.now_ns + kPoll, 0};
  if (fits) {
    if (!narrow || k.busy_ns > start) return {1, kFits, 0, 0};
    cost = k.threshold_ns - most(0, due - start);  // in a gap shorter than a switch: what the switch takes beyond it
  }
  // Of long ones one at a time: what one delays is to be made up, but for a fifth, before another one may delay.
  const bool on_top = heavy(k) && k.lag_ns > k.fill_ns / 5;
  if (!on_top && k.lag_ns + cost <= k.slack_ns * k.absorb_ppm / kMillion) return {1, kAbsorbed, 0, cost};
  if (!on_top && cost <= k.credit_ns) return {1, kCredit, 0, cost};
  if (fits) return {0, kThreshold, k.now_ns + kPoll, 0};
  if (from < clear) return {0, kBusy, most(k.now_ns + kPoll, clear - k.latency_ns), cost};
  return {0, kGap, k.now_ns + kPoll, cost};
}

// BestPrioFit among those who wait: the highest priority that has one which fits into `room`; within it the one served
// longest ago, then the longest. Who waits for nothing has fill_ns 0. Returns -1 if none fits.
struct Waiter {
  int64_t priority, fill_ns, served_ns;
};

inline int64_t choose(const Waiter* waiters, int64_t count, int64_t room_ns) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    const Waiter& w = waiters[i];
    if (w.fill_ns <= 0 || w.fill_ns > room_ns) continue;
    if (best < 0) { best = i; continue; }
    const Waiter& b = waiters[best];
    if (w.priority != b.priority) { if (w.priority < b.priority) best = i; continue; }
    if (w.served_ns != b.served_ns) { if (w.served_ns < b.served_ns) best = i; continue; }
    if (w.fill_ns > b.fill_ns) best = i;
  }
  return best;
}

}  // namespace headway
