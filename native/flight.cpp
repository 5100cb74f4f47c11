#include "flight.h"

#include "clock.h"
#include "decide.h"
#include "real.h"

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint64_t kEager = 4;            // so many samples of a kernel at once, then one in so many launches
constexpr int64_t kAbsurd = 20000000000;  // no kernel takes twenty seconds

void add(U64& cell, uint64_t more) { cell.store(cell.load(relaxed) + more, relaxed); }

}  // namespace

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

bool Flight::begin(Share& share, const Known& known, CUstream stream, int64_t now) {
  begun_ = nullptr;
  if (broken_ || !known.kernel || known.kernel->kind.load(relaxed) == kCopy || count_ == kEntries) return false;
  void* context = nullptr;  // events belong to a context: the first one seen is the one that is timed
  if (auto current = driver().context.get()) current(&context);
  if (!context_) context_ = context;
  if (context != context_) return false;
  const uint64_t every = static_cast<uint64_t>(within(share.slot->rules.sample_every.load(relaxed), 1000000));
  const uint64_t launches = known.kernel->launches.load(relaxed);
  const bool eager = known.kernel->samples.load(relaxed) < kEager && launches < 64;
  if (!eager && (every == 0 || launches % every != every - 1)) return false;
  if (known.fresh) {  // its code may be loaded in the middle of it: a time that says nothing
    add(share.slot->ledger.dropped, 1);
    return false;
  }
  CUevent at = event();
  if (!at) return false;
  if (driver().event_record.get()(at, stream) != CUDA_SUCCESS) {
    broken_ = true;
    return false;
  }
  begun_ = at;
  begun_ns_ = now;
  return true;
}

void Flight::end(Share& share, const Known& known, CUstream stream, int64_t go_ns, int64_t fill_ns,
                 int64_t mark_after_ns, bool gpu_idle) {
  (void)share;
  if (unmarked_ns_ == 0) unmarked_go_ns_ = go_ns;
  unmarked_ns_ += fill_ns;
  if (broken_ || count_ == kEntries) return;
  if (!begun_ && unmarked_ns_ < mark_after_ns) return;
  void* context = nullptr;
  if (auto current = driver().context.get()) current(&context);
  if (!context_) context_ = context;
  if (context != context_) return;
  CUevent at = event();
  if (!at) return;
  if (driver().event_record.get()(at, stream) != CUDA_SUCCESS) {
    broken_ = true;
    return;
  }
  // On an idle GPU the begin event is reached at once and the kernel only when the processor has launched it: that
  // stretch is not the kernel's.
  const int64_t between = begun_ && gpu_idle ? now_ns() - begun_ns_ : 0;
  ring_[(first_ + count_) % kEntries] = Entry{begun_, at, known.kernel, unmarked_go_ns_, unmarked_ns_, between, known.fresh};
  ++count_;
  begun_ = nullptr;
  unmarked_ns_ = 0;
}

void Flight::finish(Share& share, Entry& entry, int64_t now) {
  if (entry.begin) {
    float ms = 0;
    if (driver().event_elapsed.get()(&ms, entry.begin, entry.end) == CUDA_SUCCESS) {
      const int64_t raw = static_cast<int64_t>(static_cast<double>(ms) * 1e6);
      const int64_t took = most(1000, raw - least(entry.between_ns, raw * 3 / 4));
      if (raw > 0 && took < kAbsurd) {
        learn(entry.kernel, took);
        add(share.slot->ledger.samples, 1);
      } else {
        add(share.slot->ledger.dropped, 1);
      }
    }
    spare_[spares_++] = entry.begin;
  }
  spare_[spares_++] = entry.end;
  free_ns_ = now;
}

void Flight::collect(Share& share, int64_t now, bool all) {
  auto query = driver().event_query.get();
  if (!query) return;
  for (int done = 0; count_ && (all || done < 2); ++done) {
    const CUresult result = query(ring_[first_].end);
    if (result == CUDA_ERROR_NOT_READY) return;
    if (result != CUDA_SUCCESS) {  // the context is gone or the program has failed: what was in flight is nobody's any more
      broken_ = true;
      count_ = 0;
      return;
    }
    finish(share, ring_[first_], now);
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
    left -= within(now - started, head.fill_ns * 9 / 10);  // it has not ended, whatever was predicted
  }
  if (unmarked_ns_) left += count_ ? unmarked_ns_ : most(0, unmarked_go_ns_ + latency_ns + unmarked_ns_ - now);
  return left > 0 ? now + left : 0;
}

void Flight::forget() { *this = Flight{}; }

}  // namespace headway
