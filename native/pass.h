// A pass: while nobody above is at work a launch goes on an answer that was given before, and does not ask again. What was
// found of those above is compared at each launch: the first of theirs after it ends the pass at once, and so does a hold.
#pragma once

#include "decide.h"
#include "protocol.h"

namespace headway {

class Pass {
 public:
  // What was launched on it.
  struct Spent {
    int64_t work_ns, last_ns, end_ns;  // predicted time, when the last one went, when all of it ends
  };

  // Valid for so much work, until then at the latest. Written under the gate's lock, and read without it. `seen_ns` is when
  // the last launch of each of the others was as of the look that found nobody at work: one since then ends the pass.
  void grant(Slot& slot, Slot* const* others, const int64_t* seen_ns, uint32_t count, int64_t room_ns, int64_t end_ns,
             int64_t until_ns) {
    uint32_t above = 0;
    const uint32_t own = load(slot.priority);
    for (uint32_t i = 0; i < count; ++i) {
      if (load(others[i]->priority) >= own) continue;
      pulses_[above].store(&others[i]->pulse, relaxed);
      launched_[above++].store(seen_ns[i], relaxed);
    }
    above_.store(above, relaxed);
    slot_.store(&slot, relaxed);
    room_ns_.store(room_ns, relaxed);
    end_ns_.store(end_ns, relaxed);
    until_ns_.store(until_ns, std::memory_order_release);
  }

  void revoke() { until_ns_.store(0, relaxed); }

  // Whether a launch may go without asking; if so, it is counted.
  bool take(Slot& slot, int64_t fill_ns, int64_t now) {
    if (now >= until_ns_.load(std::memory_order_acquire) || slot_.load(relaxed) != &slot) return false;
    if (load(slot.rules.hold) || work_ns_.load(relaxed) + fill_ns > room_ns_.load(relaxed)) return false;
    const uint32_t above = above_.load(relaxed);
    for (uint32_t i = 0; i < above; ++i)
      if (load(pulses_[i].load(relaxed)->launch_ns) != launched_[i].load(relaxed)) return false;
    work_ns_.fetch_add(fill_ns, relaxed);  // threads may launch at the same time
    last_ns_.store(now, relaxed);
    const int64_t end = most(end_ns_.load(relaxed), now) + fill_ns;
    end_ns_.store(end, relaxed);
    slot.want.end_ns.store(end, relaxed);
    return true;
  }

  // Takes the pass back, and what was spent on it.
  Spent settle() {
    revoke();
    return Spent{work_ns_.exchange(0, relaxed), last_ns_.load(relaxed), end_ns_.load(relaxed)};
  }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;

  I64 until_ns_{0};  // 0: there is none
  std::atomic<Slot*> slot_{nullptr};
  I64 room_ns_{0}, work_ns_{0}, last_ns_{0}, end_ns_{0};
  U32 above_{0};
  std::atomic<Pulse*> pulses_[kSlots] = {};
  I64 launched_[kSlots] = {};
};

}  // namespace headway
