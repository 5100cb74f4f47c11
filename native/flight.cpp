#include "flight.h"

#include "clock.h"
#include "decide.h"
#include "real.h"

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint64_t kEager = 4;            // so many samples of a kernel at once, then one in so many launches
constexpr int64_t kNotable = 200000;      // a surprise is at least this long
constexpr int64_t kOwn = 30000;          // who is so long, and half a mark, has an event of its own
constexpr int64_t kIdle = 400000;         // unless marks are as far apart as this: with nobody above, and only then
constexpr uint32_t kCareful = 64;         // so many launches have one each, after several together took far too long
constexpr int64_t kAbsurd = 20000000000;  // no kernel takes twenty seconds
constexpr int64_t kStuck = 20000000;      // what is late by this much waits for something: it is no measure of work

void add(U64& cell, uint64_t more) { cell.store(load(cell) + more, relaxed); }

// Calls on events would break a capture that another thread of the program has begun, unless this thread is relaxed.
class Relaxed {
 public:
  Relaxed() { swap(); }
  ~Relaxed() { swap(); }

 private:
  void swap() {
    if (auto exchange = driver().capture_mode.get()) exchange(&mode_);
  }
  int mode_ = 2;
};

// 900 to 908: somebody captures. Not a fault, not an answer either.
bool of_capture(CUresult result) { return result >= 900 && result <= 908; }

}  // namespace

// Whether a launch is to be timed: the first few of a kernel; one whose time depends on its place, where that place has
// come back and is not known yet; and then one in so many.
bool due(const Slot* slot, const Known& known, const Step* step) {
  const Kernel* kernel = known.kernel;
  if (!kernel || known.nccl || known.untimed) return false;  // NCCL waits for its peers
  const uint64_t launches = load(kernel->launches), samples = load(kernel->samples);
  if (samples < kEager && launches < 64) return true;
  if (load(kernel->varied) && step && !load(step->work_ns) && load(step->samples)) return true;
  const uint64_t every = static_cast<uint64_t>(load(slot->rules.sample_every));
  if (every == 0 || every > (uint64_t{1} << 40)) return false;
  const uint64_t mask = (uint64_t{1} << (63 - __builtin_clzll(every))) - 1;
  return (launches & mask) == mask;
}

CUevent Flight::event() {
  if (spares_) return spare_[--spares_];
  auto create = driver().event_create.get();
  if (broken_ || !create || made_ >= 2 * kEntries) return nullptr;
  CUevent made = nullptr;
  if (create(&made, 0) != CUDA_SUCCESS) {
    broken_ = true;
    return nullptr;
  }
  ++made_;
  return made;
}

// Events belong to a context: the first one seen is the one whose work is followed.
bool Flight::here() {
  void* context = nullptr;
  if (auto current = driver().context.get()) current(&context);
  if (!context_) context_ = context;
  return context == context_;
}

CUevent Flight::left(CUstream stream) {
  CUevent at = going_ ? nullptr : event();
  if (!at) return nullptr;
  const CUresult result = driver().event_record.get()(at, stream);
  if (result == CUDA_SUCCESS) return at;
  if (!of_capture(result)) broken_ = true;
  spare_[spares_++] = at;
  return nullptr;
}

CUevent Flight::begin(Slot* slot, const Known& known, const Step* step, CUstream stream) {
  if (broken_ || count_ == kEntries || !due(slot, known, step)) return nullptr;
  if (known.fresh) {  // its code may be loaded in the middle of it: a time that says nothing
    add(slot->ledger.dropped, 1);
    return nullptr;
  }
  const Relaxed relaxed_here;
  return here() ? left(stream) : nullptr;
}

void Flight::end(const Known& known, Step* step, CUstream stream, CUevent begun, int64_t go_ns, int64_t fill_ns,
                 int64_t mark_after_ns, bool gpu_idle) {
  const bool single = unmarked_ns_ == 0;
  // Without events all there is is what was predicted: what has run out by now is gone.
  if (count_ == 0 && unmarked_ns_) unmarked_ns_ = most(0, unmarked_go_ns_ + unmarked_ns_ - go_ns);
  if (single || count_ == 0) unmarked_go_ns_ = go_ns;
  unmarked_ns_ += fill_ns;
  if (careful_ && mark_after_ns < INT64_MAX) mark_after_ns = 0, --careful_;
  // One that is long by itself, or of whose time nothing is known at this place, has an event of its own.
  const bool varied = known.kernel && load(known.kernel->varied) && !(step && load(step->work_ns));
  const bool own = mark_after_ns < kIdle && (fill_ns >= most(kOwn, mark_after_ns / 2) || varied);
  if (known.nccl || (!begun && !own && unmarked_ns_ < mark_after_ns)) return;
  const Relaxed relaxed_here;
  CUevent at = !broken_ && count_ < kEntries && here() ? left(stream) : nullptr;
  if (!at) {
    if (begun) spare_[spares_++] = begun;
    return;
  }
  // On an idle GPU the begin event is reached at once and the kernel only when the processor has launched it: that
  // stretch is not the kernel's.
  const int64_t between = begun && gpu_idle ? now_ns() - go_ns : 0;
  if (tenure() != tenure_) forget_rows_in_flight();
  ring_[(first_ + count_) % kEntries] = Entry{begun, at, known.kernel, step, unmarked_go_ns_, unmarked_ns_, between, single};
  ++count_;
  unmarked_ns_ = 0;
}

void Flight::passed(int64_t work_ns, int64_t last_ns, int64_t end_ns) {
  if (!count_) {  // without events what has run out by now is gone
    unmarked_go_ns_ = last_ns;
    unmarked_ns_ = most(0, end_ns - last_ns);
    return;
  }
  if (!unmarked_ns_) unmarked_go_ns_ = last_ns;
  unmarked_ns_ += work_ns;
}

void Flight::finish(Slot& slot, Entry& entry, int64_t now) {
  // A program above may have run beside it; beside one with nobody above those below do, unless they are held.
  const Rules& rules = slot.rules;
  const bool filled = !load(rules.gate) && !load(rules.watched);
  const bool beside = filled || above_ns_ >= entry.go_ns;
  if (entry.begin && !entry.kernel) {  // of a slot that is not ours any more
    spare_[spares_++] = entry.begin;
  } else if (entry.begin) {
    float ms = 0;
    if (driver().event_elapsed.get()(&ms, entry.begin, entry.end) == CUDA_SUCCESS) {
      const int64_t raw = static_cast<int64_t>(static_cast<double>(ms) * 1e6 + 0.5);
      const int64_t took = most(1000, raw - least(entry.between_ns, raw * 3 / 4));
      // One that ran beside another program was held up by it: no news, unless nothing was known or it was quicker.
      const bool by_place = entry.step && load(entry.kernel->varied);
      const int64_t before = by_place ? int64_t{load(entry.step->work_ns)} : load(entry.kernel->work_ns);
      if (raw > 0 && took < kAbsurd && !(beside && before && took > before)) {
        learn(entry.kernel, entry.step, took);
        add(slot.ledger.samples, 1);
      } else {
        add(slot.ledger.dropped, 1);
      }
    }
    spare_[spares_++] = entry.begin;
  } else if (!beside && entry.kernel) {
    // Seen from outside only: good enough to notice that it took many times what was expected.
    const int64_t took = now - most(entry.go_ns, free_ns_);
    if (took > 3 * entry.fill_ns + kNotable && now - looked_ns_ < kNotable) {
      if (entry.single) surprise(entry.kernel, entry.step, took);
      else careful_ = kCareful;
    }
  }
  spare_[spares_++] = entry.end;
  // It ended when it was expected to, unless it was seen at work after that; noticed is only that it has ended.
  const int64_t began = most(entry.go_ns, free_ns_);
  free_ns_ = most(least(now, began + entry.fill_ns), least(now, looked_ns_));
}

bool Flight::overdue(int64_t now, int64_t latency_ns) const {
  if (!count_) return false;
  const Entry& head = ring_[first_];
  return now >= most(head.go_ns + latency_ns, free_ns_) + head.fill_ns;
}

void Flight::collect(Share& share, int64_t now) {
  auto query = driver().event_query.get();
  Slot* slot = share.slot;
  if (!query || !count_ || !slot) return;
  if (tenure() != tenure_ || load(slot->owner) != share.process) forget_rows_in_flight();
  const Relaxed relaxed_here;
  while (count_) {
    const CUresult result = query(ring_[first_].end);
    if (result == CUDA_ERROR_NOT_READY || of_capture(result)) {
      looked_ns_ = now;  // it still ran a moment ago: when it is done, that is when
      return;
    }
    if (result != CUDA_SUCCESS) {  // the context is gone or the program has failed: what was in flight is nobody's any more
      broken_ = true;
      count_ = 0;
      return;
    }
    finish(*slot, ring_[first_], now);
    first_ = (first_ + 1) % kEntries;
    --count_;
  }
}

int64_t Flight::end_ns(int64_t now, int64_t latency_ns) const {
  int64_t left = 0;
  for (uint32_t i = 0; i < count_; ++i) left += ring_[(first_ + i) % kEntries].fill_ns;
  if (count_) {
    const Entry& head = ring_[first_];
    const int64_t started = most(head.go_ns + latency_ns, free_ns_);
    const int64_t ran = most(0, now - started);
    // One that waits for something else (a peer, another thread, the host) is not waited for here.
    if (ran > head.fill_ns * 4 + kStuck) return 0;
    // It has not ended, whatever was predicted: one that is overdue is taken to need half as long again as it is late.
    left += ran < head.fill_ns * 9 / 10 ? -ran : most(head.fill_ns / 10, (ran - head.fill_ns) / 2) - head.fill_ns;
  }
  if (unmarked_ns_) left += count_ ? unmarked_ns_ : most(0, unmarked_go_ns_ + latency_ns + unmarked_ns_ - now);
  return left > 0 ? now + left : 0;
}

// The slot is or was another program's: what is in flight still counts, and is not learnt from.
void Flight::forget_rows_in_flight() {
  for (Entry& entry : ring_) entry.kernel = nullptr, entry.step = nullptr;
  tenure_ = tenure();
}

void Flight::destroy_events() {
  const Relaxed relaxed_here;
  auto destroy = driver().event_destroy.get();
  for (uint32_t i = 0; destroy && i < count_; ++i) {
    const Entry& entry = ring_[(first_ + i) % kEntries];
    if (entry.begin) destroy(entry.begin);
    destroy(entry.end);
  }
  for (uint32_t i = 0; destroy && i < spares_; ++i) destroy(spare_[i]);
}

void Flight::context_goes(void* context) {
  Flight emptied;
  emptied.era_ = era_ + 1;
  emptied.going_ = going_ + 1;
  if (context && context != context_) {  // another one than that whose work is followed
    ++going_;
    return;
  }
  destroy_events();
  *this = emptied;
}

void Flight::context_gone() { --going_; }

}  // namespace headway
