#include "gate.h"

#include <sched.h>
#include <sys/prctl.h>

#include <new>

#include "clock.h"
#include "looks.h"
#include "trace.h"

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t kRelist = 1000000;    // look for newcomers once a millisecond
constexpr int64_t kFresh = 50000000;    // who has not looked for so long is not waiting
constexpr int64_t kSpin = 80000;        // shorter waits are spent awake
constexpr int64_t kStray = 1000000000;  // a time of another program later than this is none
constexpr int64_t kBelieved = 1000000000;  // who waits for longer may wait for something else than the GPU
constexpr int64_t kPatience = 100000000;  // with nobody above, a launch waits no longer for work of its own
constexpr int64_t kNap = 1000000;       // nobody sleeps longer than this without looking
constexpr int64_t kMark = 60000;        // after half of what may be in flight an event is left behind, but not after less
constexpr int64_t kIdleMark = 400000;   // nor, and with nobody above always, after more
constexpr int64_t kGlance = 50000;      // who waits for work of its own looks this often, or eight times in what may be in
                                        // flight, whether it is done

template <typename T, typename V>
void add(T& cell, V more) {
  cell.store(load(cell) + more, relaxed);
}

Lag lag_of(const Book& book) {
  return Lag{within(load(book.lag_ns), kLatest), within(load(book.slack_ns), kLongest), load(book.epoch)};
}

// Changes a book that others below may change at the same time: what one adds is not lost by what another does, nobody
// waits for anybody, and who dies on the way leaves it as good as before.
template <typename Change>
void change_book(Book& book, Change change) {
  for (int tries = 0; tries < 16; ++tries) {
    int64_t held = load(book.lag_ns);
    const Lag before{within(held, kLatest), within(load(book.slack_ns), kLongest), load(book.epoch)};
    Lag after = before;
    change(after);
    if (!book.lag_ns.compare_exchange_strong(held, after.lag_ns, relaxed)) continue;
    if (after.slack_ns != before.slack_ns) book.slack_ns.store(after.slack_ns, relaxed);
    if (after.epoch != before.epoch) book.epoch.store(after.epoch, relaxed);
    return;
  }
}

// Waits until then, or a little less: looks at no other program's memory meanwhile.
void wait_until(int64_t until, int64_t now, bool for_long) {
  const int64_t left = least(until - now, kNap);
  if (left > kSpin) {
    static thread_local bool precise = false;
    if (!precise) {  // the kernel adds 50 microseconds to each sleep unless told otherwise
      prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
      precise = true;
    }
    sleep_ns(left - kSpin / 2);
    return;
  }
  const int64_t end = now + most(left, 500);
  do {
    if (for_long) sched_yield();  // somebody whose turn it is may be waiting for this very core
    for (int i = 0; i < 8; ++i) pause_core();
  } while (now_ns() < end);
}

}  // namespace

Gate& gate() {
  alignas(Gate) static unsigned char room[sizeof(Gate)];
  static Gate* only = new (room) Gate;  // never destroyed: threads may launch while the process exits
  return *only;
}

void Gate::forget() { new (this) Gate; }

// Those above that are at work: the last to finish, the first to come, the least that absorbs.
void Gate::above(Share& share, const Slot& own, Look& look, int64_t now) {
  if (now - listed_ns_ > kRelist) {
    listed_ns_ = now;
    count_ = 0;
    Block* block = share.block;
    for (uint32_t i = 0; block && i < kSlots; ++i) {
      Slot& slot = block->slots[i];
      if (slot.state.load(std::memory_order_acquire) == 2 && &slot != &own) others_[count_++] = &slot;
    }
  }
  const int64_t silence = within(load(own.rules.silence_ns), kLongest);
  at_work_count_ = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    Slot& slot = *others_[i];
    if (load(slot.priority) >= share.priority) continue;
    const Pulse& pulse = slot.pulse;
    const int64_t since = pulse.waiting_ns.load(std::memory_order_acquire);  // first: it is told last
    const bool waits = since > 0 && since < now + kStray && now - since < kBelieved;
    seen_ns_[i] = load(pulse.launch_ns);
    const int64_t launched = within(seen_ns_[i], kLatest);
    int64_t busy = within(load(pulse.busy_ns), kLatest);
    if (launched == 0 || (now - launched > silence && busy < now && !waits)) continue;
    if (launched > now + kStray || (now - launched > silence && busy > now + kLongest)) continue;  // nobody's numbers
    // It waits for the GPU, so its work is not over: the later it is the longer it is expected to last.
    if (waits && busy < now) busy = now + least((now - busy) / 2, kNap);
    const int64_t next = within(load(pulse.next_ns), kLatest), slack = within(load(pulse.slack_ns), kLongest);
    look.busy_ns = most(look.busy_ns, least(busy, now + kLongest));
    look.next_ns = look.above ? least(look.next_ns, next) : next;
    look.slack_ns = look.above ? least(look.slack_ns, slack) : slack;
    look.above += 1;
    at_work_[at_work_count_++] = AtWork{&slot, load(pulse.epoch), next, slack};
    launched_above_ns_ = most(launched_above_ns_, launched);
  }
}

// Whether nobody else who waits comes first; and when everybody's fills end.
int64_t Gate::turn(const Share& share, const Look& look, int64_t now) {
  Waiter waiters[kSlots + 1];
  int64_t count = 0;
  waiters[count++] = Waiter{int64_t{share.priority}, look.fill_ns, account_.served_ns};
  for (uint32_t i = 0; i < count_; ++i) {
    const Slot& slot = *others_[i];
    const Want& want = slot.want;
    const int64_t fill = load(want.fill_ns);
    const int64_t unseen = now - within(load(want.seen_ns), kLatest);
    if (fill <= 0 || unseen > kFresh || unseen < -kStray || !load(slot.rules.gate)) continue;
    waiters[count++] = Waiter{int64_t{load(slot.priority)}, fill, load(want.served_ns)};
  }
  return count == 1 ? 1 : comes_first(look, waiters, count);
}

// The most that one of those at work lags, by whomever it was delayed.
int64_t Gate::lag(const Look& k, int64_t earned) {
  int64_t worst = 0;
  for (uint32_t i = 0; i < at_work_count_; ++i) {
    const AtWork& one = at_work_[i];
    Book& book = one.slot->book;
    Lag now = lag_of(book);
    if (now.epoch != one.epoch || (now.lag_ns && earned))
      change_book(book, [&](Lag& l) {
        headway::forget(l, earned);
        lag_in(l, one.epoch, k, one.next_ns, one.slack_ns);
        now = l;
      });
    worst = most(worst, lag_in(now, one.epoch, k, one.next_ns, one.slack_ns));
  }
  return worst;
}

// What went on the pass is in flight now, and the program was served then.
void Gate::take_back() {
  const Pass::Spent spent = pass.settle();
  if (!spent.work_ns) return;
  flight.passed(spent.work_ns, spent.last_ns, spent.end_ns);
  account_.served_ns = most(account_.served_ns, spent.last_ns);
}

// With nobody above launches may go on without asking: for half of what may be in flight, or until an event is due.
void Gate::grant(Slot& slot, const Look& k) {
  const int64_t queued = most(0, k.filled_ns - k.now_ns);
  const int64_t room = least(kIdleMark - flight.unmarked_ns(), depth_ns(k) / 2 - queued) - k.fill_ns;
  if (room <= 0 || k.hold || flight.careful()) return;
  const int64_t end = most(flight.end_ns(k.now_ns, k.latency_ns), k.now_ns + k.latency_ns) + k.fill_ns;
  pass.grant(slot, others_, seen_ns_, count_, room, end, listed_ns_ + kRelist);
}

Look Gate::look(Share& share, Slot& slot, const Known& known, int64_t fill_ns, int64_t now, bool again) {
  const Rules& rules = slot.rules;
  Look k{};
  k.now_ns = now;
  k.gate = load(rules.gate);
  k.hold = load(rules.hold);
  k.threshold_ns = load(rules.threshold_ns);
  k.latency_ns = within(load(rules.latency_ns), kMillion);
  k.depth_ns = load(rules.depth_ns);
  k.idle_depth_ns = load(rules.idle_depth_ns);
  k.absorb_ppm = load(rules.absorb_ppm);
  k.overlap_ppm = load(rules.overlap_ppm);
  k.whole = load(rules.whole);
  k.longest_ns = load(rules.longest_ns);
  k.contention_ppm = known.kernel ? load(known.kernel->contention_ppm) : 0;
  above(share, slot, k, now);
  // One that was never timed may be of any length: beside others it goes as a long one, until it is known.
  if (k.above && known.kernel && !load(known.kernel->work_ns)) fill_ns = most(fill_ns, kHeavy);
  k.fill_ns = fill_ns;
  const Block* block = share.block;
  const Sms sms = sms_of(block ? load(block->header.sms) : 1, load(slot.sms_ppm));
  k.wave_ns = wave_ns(known.kernel, fill_ns, sms);
  // What the dial has found of delays: they are worse, or milder, than reckoned.
  int64_t scale = within(load(rules.scale_ppm), kWidest);
  if (!scale || (scale < kMillion && heavy(k))) scale = kMillion;  // a long one is never milder
  width_ppm_ = width_ppm(known.kernel, sms);
  k.width_ppm = width_ppm_ * scale / kMillion;
  if (anew_.load(relaxed) && anew_.exchange(false)) account_ = Account{};
  take_back();
  const Terms terms{load(rules.credit_ppm), load(rules.credit_cap_ns), load(rules.floor_ppm)};
  const int64_t earned = accrue(account_, tame(terms), k.above > 0, fill_ns, now);
  crowd_ = false;  // others below hang on what is told of this program's work: it has to be told well
  for (uint32_t i = 0; i < count_; ++i) crowd_ = crowd_ || load(others_[i]->rules.gate) != 0;
  // Programs above launch ahead: what they launched before may still run, and holds up what goes now.
  flight.disturbed(most(launched_above_ns_, least(k.busy_ns, now)));
  k.filled_ns = flight.end_ns(now, k.latency_ns);
  // What is reckoned will do as long as nothing hangs on it: each question to the driver costs a microsecond or more.
  if (again || crowd_ || flight.overdue(now, k.latency_ns) || k.filled_ns - now > depth_ns(k) / 2) {
    flight.collect(share, now);
    k.filled_ns = flight.end_ns(now, k.latency_ns);
  }
  for (uint32_t i = 0; i < count_; ++i)
    if (load(others_[i]->rules.gate)) {
      const int64_t end = load(others_[i]->want.end_ns);
      if (end < now + kLongest) k.filled_ns = most(k.filled_ns, end);
    }
  k.lag_ns = lag(k, earned);
  k.credit_ns = account_.credit_ns;
  k.debt_ns = most(0, account_.debt_ns);
  k.turn = k.above ? turn(share, k, now) : 1;
  return k;
}

// The fill before this one is over or nearly: did one above launch while it ran?
void Gate::blame(Slot& slot, int64_t now) {
  if (!last_ || launched_above_ns_ <= last_go_ns_) return;
  const int64_t end = least(now, last_go_ns_ + last_fill_ns_);
  if (launched_above_ns_ < end) {
    add(last_->blamed_ns, end - launched_above_ns_);
    add(slot.ledger.delay_ns, end - launched_above_ns_);
  }
  last_ = nullptr;
}

// What runs beside those above, and the delay that is reckoned for it: what they lose beyond that is contention.
void Gate::note(Slot& slot, const Known& known, const Look& raw) {
  Look look = tame(raw);
  look.contention_ppm = 0;
  look.width_ppm = within(width_ppm_, kWidest);
  const auto [start, due] = times(look);
  const int64_t beside = beside_ns(look, start, due);
  if (!beside) return;
  add(slot.ledger.harm_ns, harm(look, start, due));
  if (known.kernel) add(known.kernel->beside_ns, beside);
}

void Gate::go(Slot& slot, const Known& known, const Look& look, const Verdict& verdict) {
  Ledger& ledger = slot.ledger;
  add(ledger.reasons[verdict.reason & (kReasons - 1)], uint64_t{1});
  mark_ns_ = !look.above ? kIdleMark : crowd_ ? kMark / 2 : least(most(kMark, look.depth_ns / 2), kIdleMark - 1);
  pay(account_, look, verdict);
  for (uint32_t i = 0; lags(look, verdict) && i < at_work_count_; ++i) {
    const AtWork& one = at_work_[i];
    change_book(one.slot->book, [&](Lag& l) {
      const int64_t lag = lag_in(l, one.epoch, look, one.next_ns, one.slack_ns);
      delay(l, lag, one.slack_ns, look, verdict);
    });
  }
  slot.want.served_ns.store(account_.served_ns, relaxed);
  if (!look.above) return;
  add(ledger.harvested_ns, look.fill_ns);
  note(slot, known, look);
  last_ = known.kernel;
  last_go_ns_ = look.now_ns;
  last_fill_ns_ = look.fill_ns;
}

void Gate::publish(Slot& slot, int64_t now) {
  slot.want.end_ns.store(flight.end_ns(now, within(load(slot.rules.latency_ns), kMillion)), relaxed);
}

int64_t Gate::enter(Share& share, Slot& slot, const Known& known, int64_t fill_ns) {
  Ledger& ledger = slot.ledger;
  const int64_t begin = now_ns();
  int64_t now = begin;
  bool waited = false;
  uint32_t why = 0;
  for (uint32_t looks = 0;; ++looks, now = now_ns()) {
    ledger.beat_ns.store(now, relaxed);
    if (looks % 16 == 0 && !trusted(share, now)) {
      ledger.open.store(1, relaxed);
      mark_ns_ = kIdleMark;  // nothing hangs on what is in flight
      break;
    }
    const Look seen = look(share, slot, known, fill_ns, now, looks > 0);
    const Verdict verdict = decide(seen);
    if (verdict.go || looks == 0) record_look(seen, verdict);
    blame(slot, now);
    const bool alone = !verdict.go && seen.above == 0 && now - begin > kPatience;
    if (verdict.go || alone) {
      ledger.open.store(0, relaxed);
      go(slot, known, seen, verdict);
      if (verdict.go && verdict.reason == kAlone) grant(slot, seen);
      break;
    }
    if (!waited) {
      waited = true;
      why = static_cast<uint32_t>(verdict.reason);
      add(ledger.reasons[verdict.reason & (kReasons - 1)], uint64_t{1});
      slot.want.since_ns.store(now, relaxed);
      slot.want.kernel.store(known.kernel ? load(known.kernel->id) : 0, relaxed);
    }
    // One that may not go at all, however wide the gap, is nobody's turn: it keeps no other one waiting.
    slot.want.fill_ns.store(verdict.reason == kLong ? 0 : fill_ns, relaxed);
    slot.want.seen_ns.store(now, relaxed);
    slot.want.end_ns.store(flight.end_ns(now, seen.latency_ns), relaxed);
    // The longer it waits the less often it looks: those above pay for each look with a cache miss.
    const int64_t patience = least(now - begin, 20 * kMillion) / 4000;
    // What was reckoned too long is over sooner: a wait for the end of it is no reason to sleep all that time.
    const int64_t glance = most(kGlance, within(depth_ns(seen), 8 * kNap) / 8);
    const int64_t until = verdict.reason == kDepth ? least(verdict.until_ns, now + glance) : verdict.until_ns;
    wait_until(most(until, now + kPoll + patience), now, now - begin > kSpin);
  }
  at_once_ = !waited;
  if (waited) {
    slot.want.fill_ns.store(0, relaxed);
    add(ledger.waits, uint64_t{1});
    add(ledger.waited_ns, now - begin);
    if (tracing()) trace_gate(begin, now, why);
  }
  return now;
}

}  // namespace headway
