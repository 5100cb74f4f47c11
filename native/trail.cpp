#include "trail.h"

#include "decide.h"
#include "spans.h"

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t kSoon = 4000;            // when nothing is known of what follows: soon
constexpr int64_t kBusiest = 100000000;    // nobody is believed to be busy for longer than this ahead
constexpr int64_t kRest = 2000000;         // what other streams may still have to do after a wait for one
constexpr int64_t kApart = 100000;         // who launches more often than this is in the middle of something
constexpr uint32_t kRing = 4096;
constexpr uint32_t kSettled = 4;           // after so many samples a step by its place stands on its own
constexpr uint32_t kSure = 2;              // what has followed a wait so often running will follow it again
constexpr uint32_t kPlaces = kSteps / 4 * 3;  // steps known by their place; the rest is for pairs

// A launch as it came last time at its place since a wait. In order of the places, and so of memory: a program goes
// through a megabyte between two launches, and what lies scattered over tables would be fetched from far away each time.
struct alignas(64) Passed {
  CUfunction function;  // null: a graph, a copy, or one to be looked up again
  Shape shape;
  uint32_t handles;     // handles may come back as something else: see forget_handles
  uint64_t previous;
  uint32_t kernel;      // rows in the slot, each plus one
  uint32_t step;
  bool nccl;
};
static_assert(sizeof(Passed) == 64, "a line");

std::atomic<uint32_t> generation{1};
std::atomic<uint32_t> places{0};
std::atomic<uint64_t> waiters{uint64_t{1} << 32};  // threads that wait for the GPU; above that the generation they are of
std::atomic<uint32_t> waits_over{0};  // of all threads
std::atomic<int64_t> wait_began{0}, wait_ended{0};  // of the one that was over last
constexpr uint32_t kOnce = 1 << 18;    // what has come at least once at a place: two bits of so many, by its key
std::atomic<uint64_t> once[kOnce / 64];
std::atomic<uint32_t> once_set{0};     // so many of them are set; with a quarter all is forgotten

}  // namespace

struct alignas(64) Trail {
  const Slot* slot = nullptr;
  uint64_t previous = 0;
  Step* step = nullptr;    // what follows this launch: known by its place since the last wait, as requests repeat, or,
                           // where there is no room or no place, by the kernel and the one before it;
  Step* pair = nullptr;    // and, while that is new, by these two
  Step* ahead = nullptr;   // of the launch that is on its way, if there is one: looked up once a launch
  uint64_t ahead_key = 1;  // 0: it is as before
  CUfunction function = nullptr;  // of the launch that is on its way
  uint32_t place = 0;      // launches since the last wait
  uint32_t passed = 0;
  int64_t launch_ns = 0;
  int64_t begin_ns = 0;    // first launch since the last wait
  uint64_t kind = 0;       // of what was launched since then
  uint32_t launches = 0;   // and how many
  int64_t waited_ns = 0;   // end of the last wait
  int64_t idle_ns = 0;     // idle GPU time since the last wait
  Shape shape{};
  bool waited = false;     // since the last launch
  bool begins = false;     // the launch that is on its way is the first of a stretch
  bool waiting = false;
  bool counted = false;    // among those who wait
  uint32_t waits = 0;
  uint32_t over = 0;       // waits of all threads that were over when this one launched last
  uint32_t born = 0;
  Passed ring[kRing];
  int64_t idle_before_ns[kRing];
};

namespace {

thread_local Trail* mine __attribute__((tls_model("initial-exec"))) = nullptr;

// The one of this thread, if it has launched anything.
Trail* begun(const Slot* slot) {
  return mine && mine->slot == slot && mine->born == generation.load(relaxed) ? mine : nullptr;
}

// Once a thread, and where its slot has changed.
Trail& fresh_trail(Slot* slot) {
  static thread_local struct Owner {
    ~Owner() { delete mine, mine = nullptr; }
  } owner;
  (void)owner;
  delete mine;
  mine = new Trail{};
  mine->slot = slot;
  mine->born = generation.load(relaxed);
  slot->ledger.threads.fetch_add(1, relaxed);
  return *mine;
}

int64_t blend(int64_t mean, int64_t value, uint32_t seen) {
  if (seen == 0 || mean <= 0 || mean > kLongest) return value;
  value = least(value, 4 * mean + 10000);  // one hiccup of the machine is not the rule
  return mean + (value - mean) / (seen < 8 ? 4 : 8);
}

// The step with that key, made if there is room.
Step* find(Slot* slot, uint64_t key, bool room) {
  for (uint32_t probe = 0; probe < 32; ++probe) {
    Step& step = slot->steps[(key + probe) % kSteps];
    uint64_t held = load(step.key);
    if (held == key) return &step;
    if (held != 0) continue;
    if (!room) return nullptr;
    if (step.key.compare_exchange_strong(held, key, relaxed)) return &step;
    if (held == key) return &step;
  }
  return nullptr;
}

// A stretch begins after a wait of this thread; of one that never waits, as autograd's, after a wait of another one, if
// it launched nothing in it and nothing for a while.
bool stretch_begins(Trail& t) {
  const uint32_t over = waits_over.load(std::memory_order_acquire);
  const bool others = over != t.over && !t.waits && t.launch_ns <= wait_began.load(relaxed) &&
                      t.launch_ns + kApart <= wait_ended.load(relaxed);
  t.over = over;
  return t.waited || others;
}

// Marks it; whether it was marked.
bool mark_once(uint64_t bit) {
  const uint64_t mask = uint64_t{1} << (bit % 64);
  std::atomic<uint64_t>& word = once[bit % kOnce / 64];
  if (word.load(relaxed) & mask) return true;
  word.fetch_or(mask, relaxed);
  if (once_set.fetch_add(1, relaxed) > kOnce / 4) {
    for (std::atomic<uint64_t>& each : once) each.store(0, relaxed);
    once_set.store(0, relaxed);
  }
  return false;
}

// Whether it has come before; now and then it is taken to have, though it has not.
bool seen(uint64_t key) {
  const bool low = mark_once(key), high = mark_once(key >> 32);
  return low && high;
}

// Made only for what comes a second time: a program's first steps come once, and room is scarce.
Step* by_place(Slot* slot, const Trail& t, uint64_t pair) {
  const bool far = t.place > kRing;  // out there all places are one
  const uint64_t key = far ? pair : mix(pair, t.place);
  if (t.ahead && t.ahead_key == key) return t.ahead;
  if (!far && !seen(key)) return nullptr;
  Step* step = far ? nullptr : find(slot, key, places.load(relaxed) < kPlaces);
  if (step && load(step->samples) == 0) places.fetch_add(1, relaxed);
  return step ? step : find(slot, pair, true);
}

void learn_step(const Trail& t, Step* step, int64_t now) {
  const uint32_t seen = load(step->samples);
  if (t.waited) {
    step->think_ns.store(blend(load(step->think_ns), now - t.waited_ns, seen), relaxed);
    step->waits.store(1, relaxed);
  } else {
    step->gap_ns.store(blend(load(step->gap_ns), now - t.launch_ns, seen), relaxed);
    step->waits.store(0, relaxed);
  }
  step->samples.store(seen + 1, relaxed);
}

// The stretch since the last launch is over: the next launch is here.
void close_stretch(const Trail& t, int64_t now) {
  if (t.step) learn_step(t, t.step, now);
  if (t.pair) learn_step(t, t.pair, now);
}

// Remembers the launch at its place, and fetches what is going to be needed at the next one if that is as before.
void remember(Trail& t, Slot* slot, const Known& known) {
  if (t.place > kRing) return;
  const uint32_t at = t.place - 1;
  t.idle_before_ns[at] = t.idle_ns;
  t.passed = t.place;
  if (t.ahead_key) {
    Passed& here = t.ring[at];
    here.function = t.step && known.kernel && !known.fresh ? t.function : nullptr;
    here.shape = t.shape;
    here.handles = handles_now();
    here.previous = t.previous;
    here.kernel = known.kernel ? static_cast<uint32_t>(known.kernel - slot->kernels) + 1 : 0;
    here.step = t.step ? static_cast<uint32_t>(t.step - slot->steps) + 1 : 0;
    here.nccl = known.nccl;
  }
  if (at + 2 < kRing) __builtin_prefetch(&t.ring[at + 2]);
  if (at + 1 >= kRing) return;
  const Passed& next = t.ring[at + 1];
  if (!next.kernel || !next.step) return;
  __builtin_prefetch(&slot->steps[next.step - 1], 1);
  __builtin_prefetch(&slot->kernels[next.kernel - 1], 1);
}

// A wait is over and the next request begins: what it begins with, after what the one before it ended with.
void follows(const Slot* slot, Step* ended, const Step* begins) {
  const uint32_t row = begins ? static_cast<uint32_t>(begins - slot->steps) + 1 : 0;
  const uint32_t sure = load(ended->after) == row ? load(ended->sure) + 1 : 0;
  ended->after.store(row, relaxed);
  ended->sure.store(least(sure, kSure), relaxed);
}

// What the request after a wait absorbs, if it is the one that has come there before; else nothing.
int64_t slack_after(const Slot* slot, const Step* ended) {
  if (!ended || load(ended->sure) < kSure) return 0;
  const uint32_t row = load(ended->after);
  return row && row <= kSteps ? within(load(slot->steps[row - 1].slack_ns), kLongest) : 0;
}

// How many threads wait, by what this one does; of another generation none does.
uint32_t waiting_now(uint32_t born, int change) {
  uint64_t before = waiters.load();
  do {
    const uint32_t count = static_cast<uint32_t>(before);
    if (before >> 32 != born || (change < 0 && !count)) return 0;
    if (!change) return count;
  } while (!waiters.compare_exchange_weak(before, before + static_cast<uint64_t>(int64_t{change})));
  return static_cast<uint32_t>(before) + static_cast<uint32_t>(change);
}

// Those below are told since when somebody waits; a wait that is over shows that the others are for the GPU too. Threads
// may come and go meanwhile: told is what holds in the end.
void tell_waiting(Slot* slot, int64_t now, bool over) {
  uint64_t count = 0;
  do {
    count = waiters.load();
    const bool some = static_cast<uint32_t>(count) != 0;
    const int64_t since = slot->pulse.waiting_ns.load();
    if (some != (since != 0) || (some && over)) slot->pulse.waiting_ns.store(some ? now : 0);
  } while (waiters.load() != count);
}

// What is expected after this launch, from the step that knows.
const Step* expected(const Trail& t) {
  if (t.step && load(t.step->samples)) return t.step;
  return t.pair && load(t.pair->samples) ? t.pair : nullptr;
}

// From the end of a wait to the next launch, as a step knows it.
int64_t think_ns(const Step* known) { return known ? within(load(known->think_ns), kLongest) : 0; }

}  // namespace

void forget_trail() {
  waiters.store(uint64_t{generation.fetch_add(1, relaxed) + 1} << 32);
  places.store(0, relaxed);
}

Trail& trail(Slot* slot) {
  Trail* found = begun(slot);
  return found ? *found : fresh_trail(slot);
}

bool as_before(Trail& t, Slot* slot, CUfunction function, const Shape& shape, Known* known) {
  t.begins = stretch_begins(t);
  const uint32_t at = t.begins ? 0 : t.place;
  t.ahead_key = 1;
  t.function = function;
  t.shape = shape;
  if (!function || at >= kRing) return false;  // places of graphs and copies have no function either
  const Passed& here = t.ring[at];
  if (here.function != function || here.previous != t.previous || !(here.shape == shape)) return false;
  if (here.handles != handles_now()) return false;
  known->kernel = &slot->kernels[here.kernel - 1];
  known->nccl = here.nccl;
  known->fresh = false;
  t.ahead = &slot->steps[here.step - 1];
  t.ahead_key = 0;
  return true;
}

Step* step_ahead(Trail& t, Slot* slot, const Known& known) {
  if (!t.ahead_key) return t.ahead;
  if (!t.function) t.begins = stretch_begins(t);
  const uint64_t pair = mix(t.previous, known.kernel ? load(known.kernel->id) : 1);
  const uint32_t place = t.begins ? 1 : t.place + 1;
  t.ahead_key = place > kRing ? pair : mix(pair, place);
  return t.ahead = find(slot, t.ahead_key, false);
}

Step* observe_launch(Trail& t, Slot* slot, const Known& launched, int64_t now, int64_t work_ns) {
  close_stretch(t, now);
  const Kernel* kernel = launched.kernel;
  const uint64_t id = kernel ? load(kernel->id) : 1;
  if (t.begins || t.place == 0) {
    t.place = 0;
    t.begin_ns = now;
    t.launches = 0;
    t.kind = 0;
  }
  if (t.place <= kRing) ++t.place;  // a thread may never wait: far out all places are one
  const uint64_t pair = mix(t.previous, id);
  Step* ended = t.waited ? (t.step ? t.step : t.pair) : nullptr;
  t.step = t.ahead_key ? by_place(slot, t, pair) : t.ahead;
  t.pair = t.step && load(t.step->samples) >= kSettled ? nullptr : find(slot, pair, true);
  if (t.pair == t.step) t.pair = nullptr;
  if (ended) follows(slot, ended, t.step ? t.step : t.pair);
  Pulse& pulse = slot->pulse;
  const int64_t reaches = now + within(load(slot->rules.latency_ns), kMillion);
  int64_t busy = within(load(pulse.busy_ns), kLatest);
  if (t.begins) t.idle_ns = 0;
  if (reaches > busy) {
    if (!t.begins) t.idle_ns += reaches - busy;
    busy = reaches;
  }
  // Streams that overlap and predictions that are too long add up.
  busy = least(busy + work_ns, now + most(kBusiest, 2 * work_ns));
  remember(t, slot, launched);
  t.previous = id;
  t.launches += 1;
  t.kind = mix(t.kind, id);
  launch_in_request(id);
  t.launch_ns = now;
  t.waited = t.waiting = t.begins = false;
  t.ahead_key = 1;  // the next one is not known yet
  t.function = nullptr;
  const Step* known = expected(t);
  int64_t next = now + kSoon;
  if (known) next = load(known->waits) ? busy + think_ns(known) : now + within(load(known->gap_ns), kLongest);
  // Five plain stores on a line of our own: all that those below need to know.
  pulse.launch_ns.store(now, relaxed);
  pulse.busy_ns.store(busy, relaxed);
  pulse.next_ns.store(next, relaxed);
  pulse.slack_ns.store(known ? within(load(known->slack_ns), kLongest) : 0, relaxed);
  pulse.launches.store(load(pulse.launches) + 1, relaxed);
  return t.step;
}

void observe_wait(Slot* slot, int64_t now) {
  Trail* found = begun(slot);
  if (!found || found->counted || !found->launch_ns) return;
  Trail& t = *found;
  t.counted = true;
  waiting_now(t.born, 1);
  tell_waiting(slot, now, false);
  slot->pulse.slack_ns.store(0, relaxed);
  if (t.waited) return;  // nothing was launched since the last wait: nothing is learnt
  t.waiting = true;
  // From each launch since the last wait: how much the GPU idled until this one. The GPU is at work now, the
  // program waits for it: there is time for this.
  const bool due = t.waits < kSettled || t.waits % 8 == 0;
  t.waits += 1;
  for (uint32_t i = 0; due && i < t.passed; ++i) {
    if (!t.ring[i].step) continue;
    Step* step = &slot->steps[t.ring[i].step - 1];
    const int64_t mean = within(load(step->slack_ns), kLongest);
    const int64_t seen = t.idle_ns - t.idle_before_ns[i];
    const int64_t slack = mean > 0 ? least(seen, 4 * mean + 100000) : seen;
    step->slack_ns.store(mean > 0 ? mean + (slack - mean) / 4 : slack, relaxed);
  }
  t.passed = 0;
  const Step* known = expected(t);
  Pulse& pulse = slot->pulse;
  pulse.next_ns.store(within(load(pulse.busy_ns), kLatest) + think_ns(known), relaxed);
}

void observe_waited(Slot* slot, int64_t began, int64_t now, Over over) {
  Ledger& ledger = slot->ledger;
  ledger.syncs.store(load(ledger.syncs) + 1, relaxed);
  int64_t think = 0, slack = -1;
  wait_in_request(began, now);
  if (Trail* t = begun(slot)) {  // else others have launched what this thread has waited for
    Step* step = t->step ? t->step : t->pair;
    if (t->waiting) record_span(slot, t->begin_ns, now, began - t->begin_ns, t->launches, t->kind, false);
    if (t->counted) waiting_now(t->born, -1);
    t->counted = t->waiting = false;
    t->waited = t->launch_ns != 0;
    t->waited_ns = now;
    think = think_ns(expected(*t));
    // What those below launch in the pause may run on beyond it, and delay the next request: by what that one absorbs.
    // Where other threads are at work it is theirs that counts.
    if (!waiting_now(t->born, 0) && load(slot->pulse.launch_ns) == t->launch_ns) slack = slack_after(slot, step);
  }
  Pulse& pulse = slot->pulse;
  const int64_t rest = over == Over::kEverything ? 0 : kRest;
  wait_began.store(began, relaxed);
  wait_ended.store(now, relaxed);
  waits_over.fetch_add(1, std::memory_order_release);
  if (over != Over::kEvent && load(pulse.busy_ns) > now + rest) pulse.busy_ns.store(now + rest, relaxed);
  pulse.next_ns.store(now + (think > 0 ? think : kSoon), relaxed);
  if (slack >= 0) pulse.slack_ns.store(slack, relaxed);
  pulse.epoch.store(load(pulse.epoch) + 1, relaxed);
  tell_waiting(slot, now, true);  // last: who sees nobody wait sees what follows, too
}

}  // namespace headway
