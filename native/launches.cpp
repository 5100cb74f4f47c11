#include "launches.h"

#include "clock.h"
#include "decide.h"
#include "gate.h"
#include "real.h"
#include "trace.h"
#include "trail.h"

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint64_t kHookSample = 256;      // one launch in so many is timed through the hook itself
constexpr int64_t kInterrupted = 20000;    // a hook that took longer was interrupted by the machine: it counts as this
constexpr uint64_t kLargeCopy = 1 << 20;   // smaller copies pass unseen

std::atomic<int> captures{0};
std::atomic<void*> first_stream{nullptr};
std::atomic<bool> many_streams{false};
std::atomic<int> priority_state{0};  // 0 not asked, 1 known, 2 refused
std::atomic<int> priority_value{0};

template <typename T, typename V>
void add(T& cell, V more) {
  cell.store(load(cell) + more, relaxed);
}

bool is_capturing(CUstream stream) {
  if (captures.load(relaxed) <= 0) return false;
  int status = 0;
  auto ask = driver().capturing.get();
  return ask && ask(stream, &status) == CUDA_SUCCESS && status != 0;
}

void forget_all() {
  gate().forget();
  forget_trail();
  forget_handles();
  forget_rows();
  captures.store(0);
  first_stream.store(nullptr);
  many_streams.store(false);
}

// The slot is another one, or the same with nothing in it: what was remembered of its rows is void.
void forget_slot() {
  gate().begin_anew();
  forget_trail();
  forget_handles();
}

Share& joined() {
  static const bool once = [] {
    on_fork(forget_all);
    on_join(forget_slot);
    return true;
  }();
  (void)once;
  return share();
}

// A stream by something of its own: each thread's default stream has the same handle.
void* named(CUstream stream) {
  static thread_local char mine;
  return stream == thread_stream() ? static_cast<void*>(&mine) : static_cast<void*>(stream);
}

void note_stream(CUstream handle) {
  void* stream = named(handle);
  void* first = first_stream.load(relaxed);
  if (first == stream) return;
  if (!first && first_stream.compare_exchange_strong(first, stream)) return;
  if (first != stream) many_streams.store(true, relaxed);
}

}  // namespace

Parting::Parting(void* context) {
  const std::lock_guard<std::mutex> lock(gate().mutex);
  gate().flight.context_goes(context);
}

Parting::~Parting() {
  const std::lock_guard<std::mutex> lock(gate().mutex);
  gate().flight.context_gone();
  forget_handles();  // its functions are gone too, and their handles may come back as others
}

void capture_began() { captures.fetch_add(1); }

void capture_ended() {
  if (captures.fetch_sub(1) <= 0) captures.store(0);
}

int highest_priority() {
  const int state = priority_state.load(std::memory_order_acquire);
  if (state == 1) return priority_value.load(relaxed);
  if (state == 2) return 0;
  int low = 0, high = 0;
  auto range = driver().priorities.get();
  if (!range || range(&low, &high) != CUDA_SUCCESS) return 0;
  priority_value.store(high, relaxed);
  priority_state.store(1, std::memory_order_release);
  return high;
}

int stream_priority(int asked) {
  const Slot* slot = joined().slot;
  if (!slot || !load(slot->rules.raised)) return asked;
  const int high = highest_priority();
  return high ? high : asked;
}

void priority_refused() { priority_state.store(2, std::memory_order_release); }

Launch::Launch(Kind kind, CUstream stream, bool per_thread) : kind_(kind), stream_(stream) {
  // Events need the stream that the driver will use: null is the legacy one, or the thread's own in per-thread functions.
  if (!stream_) stream_ = per_thread ? thread_stream() : legacy_stream();
  Share& with = joined();
  if (tracing()) trace_start();
  tenure_ = tenure();  // first: whoever takes the slot away changes it before
  Slot* slot = with.slot;
  if (!slot || slot == nobody()) {
    look_again(with);
    return;
  }
  if (load(slot->rules.bypass)) return;
  __builtin_prefetch(&slot->pulse, 1);
  __builtin_prefetch(&slot->ledger, 1);
  const uint64_t launches = load(slot->pulse.launches);
  if ((launches & 63) == 0 && with.block && !(tracing() && slot == trace_slot()) &&
      (load(slot->owner) != with.process || replaced(with, now_ns()))) {
    lost(with, slot);
    return;
  }
  slot_ = slot;
  measured_ = launches % kHookSample == kHookSample - 1;
  if (measured_) before_ns_ = now_ns();
  idle_ = is_capturing(stream_);
  if (idle_) slot->ledger.captured.fetch_add(1, relaxed);
}

void Launch::kernel(CUfunction function, const Shape& shape) {
  if (idle_) return;
  trail_ = &trail(slot_);
  if (!as_before(*trail_, slot_, function, shape, &known_)) known_ = identify(slot_, function, shape);
}

void Launch::graph(CUgraphExec graph) {
  if (!idle_) known_ = identify_graph(slot_, graph);
}

void Launch::copy(uint64_t bytes) {
  if (bytes < kLargeCopy) idle_ = true;
  if (!idle_) known_ = identify_copy(slot_, bytes);
}

void Launch::together() {
  known_.nccl = true;
}

void Launch::count() {
  Ledger& ledger = slot_->ledger;
  // Counts are exact: a program may launch from several threads at once. The sums beside them need not be.
  (kind_ == kGraph ? ledger.graphs : kind_ == kCopy ? ledger.copies : ledger.kernels).fetch_add(1, relaxed);
  if (known_.nccl) ledger.nccl.fetch_add(1, relaxed);
  if (known_.kernel) add(known_.kernel->launches, uint64_t{1});
  add(ledger.work_ns, fill_ns_);
}

void Launch::ready() {
  if (idle_) {
    if (tracing() && kind_ != kCopy && captures.load(relaxed) <= 0) trace_launch(0, kind_, now_ns());
    return;
  }
  Share& with = share();
  Slot& slot = *slot_;
  if (!trail_) trail_ = &trail(slot_);
  const Step* ahead = step_ahead(*trail_, slot_, known_);
  fill_ns_ = predicted_ns(known_.kernel, ahead);
  count();
  note_stream(stream_);
  const bool gate_there = load(slot.rules.gate) && !known_.nccl;
  if (gate_there) go_ns_ = now_ns();
  const bool timed = due(slot_, known_, ahead);
  gated_ = gate_there && (timed || !gate().pass.take(slot, fill_ns_, go_ns_));
  raised_ = kind_ == kKernel && load(slot.rules.raised) >= 2 && captures.load(relaxed) <= 0;
  // The gate is locked to look and to leave events, never while the driver is at work: that may wait for another thread.
  if (gated_) {
    std::unique_lock<std::mutex> lock(gate().mutex, std::try_to_lock);
    if (!lock) {
      measured_ = false;  // another thread waits there: that is not what it costs to ask
      lock.lock();
    }
    go_ns_ = gate().enter(with, slot, known_, fill_ns_);
    begun_ = gate().flight.begin(slot_, known_, ahead, stream_);
    era_ = gate().flight.era();
    measured_ = measured_ && gate().at_once();
  } else if (gate_there) {
    slot.ledger.passed.fetch_add(1, relaxed);
  } else {
    go_ns_ = now_ns();
    if (timed && gate().mutex.try_lock()) {
      gate().flight.collect(with, go_ns_);
      begun_ = gate().flight.begin(slot_, known_, ahead, stream_);
      era_ = gate().flight.era();
      gate().mutex.unlock();
    }
    // A sign of life, now and then: the gate gives one at each look.
    if ((load(slot.pulse.launches) & 63) == 0) slot.ledger.beat_ns.store(go_ns_, relaxed);
  }
  gpu_idle_ = load(slot.pulse.busy_ns) < go_ns_;
  step_ = observe_launch(*trail_, slot_, known_, go_ns_, fill_ns_);
  if (tracing()) trace_launch(known_.kernel ? load(known_.kernel->id) : 0, kind_, go_ns_);
  if (measured_) hook_ns_ = !gated_ && begun_ ? 0 : now_ns() - before_ns_;
}

void Launch::done() {
  if (idle_) return;
  const bool asked = measured_ && gated_;
  if (asked) before_ns_ = now_ns();
  if (gated_ || begun_) {
    const std::lock_guard<std::mutex> lock(gate().mutex);
    if (tenure_ != tenure()) known_.kernel = nullptr, step_ = nullptr;  // rows of a slot that was ours
    // Across the end of a context nothing is learnt, and neither its events nor its streams are touched.
    if (gate().flight.era() == era_)
      gate().flight.end(known_, step_, stream_, begun_, go_ns_, fill_ns_, gated_ ? gate().mark_ns() : INT64_MAX, gpu_idle_);
    if (gated_) gate().publish(*slot_, go_ns_);
  }
  if (!measured_ || hook_ns_ <= 0) return;
  if (asked) hook_ns_ += now_ns() - before_ns_;  // of others what comes after the driver's function is a test or two
  Ledger& ledger = slot_->ledger;
  add(asked ? ledger.asked_ns : ledger.hook_ns, least(hook_ns_, kInterrupted));
  add(asked ? ledger.asked : ledger.hooked, uint64_t{1});
}

Wait::Wait(Over what, CUstream stream, bool per_thread) : over_(what), stream_(stream) {
  if (!stream_) stream_ = per_thread ? thread_stream() : legacy_stream();
  Share& with = joined();
  Slot* slot = with.slot;
  if (!slot || slot == nobody() || load(slot->rules.bypass)) return;
  begin_ns_ = now_ns();
  observe_wait(slot, begin_ns_);
}

// A wait for the only stream there is is one for everything.
Over Wait::over() const {
  const bool only = over_ == Over::kStream && !many_streams.load(relaxed) && first_stream.load(relaxed) == named(stream_);
  return only ? Over::kEverything : over_;
}

Wait::~Wait() {
  if (!begin_ns_) return;
  Share& with = share();
  const int64_t now = now_ns();
  if (Slot* slot = with.slot) {
    observe_waited(slot, begin_ns_, now, over());
    if (gate().mutex.try_lock()) {
      gate().flight.collect(with, now);
      if (load(slot->rules.gate)) gate().publish(*slot, now);
      gate().mutex.unlock();
    }
  }
  if (tracing()) trace_wait(begin_ns_, now);
}

}  // namespace headway
