// The gate of a program that others come before: a launch waits here, in the thread that makes it, until it may go.
#pragma once

#include <mutex>

#include "account.h"
#include "flight.h"
#include "identity.h"
#include "pass.h"
#include "share.h"

namespace headway {

class Gate {
 public:
  // Waits until the kernel may go; returns the time it went. Never waits for one who cannot be trusted.
  int64_t enter(Share& share, Slot& slot, const Known& known, int64_t fill_ns);
  // Whether the last one went without waiting.
  bool at_once() const { return at_once_; }
  // Tell the others what is in flight now.
  void publish(Slot& slot, int64_t now);
  // After so much predicted work since the last one an event is left behind.
  int64_t mark_ns() const { return mark_ns_; }
  void forget();
  // The slot is another one: what was owed and late in the old one is not in this.
  void begin_anew() {
    pass.revoke();
    anew_.store(true);
  }

  std::mutex mutex;  // one launch of this program at a time
  Flight flight;
  Pass pass;  // taken without the lock

 private:
  Look look(Share& share, Slot& slot, const Known& known, int64_t fill_ns, int64_t now, bool again);
  void above(Share& share, const Slot& slot, Look& look, int64_t now);
  int64_t lag(const Look& look, int64_t earned);
  void take_back();
  void grant(Slot& slot, const Look& look);
  int64_t turn(const Share& share, const Look& look, int64_t now);
  void go(Slot& slot, const Known& known, const Look& look, const Verdict& verdict);
  void blame(Slot& slot, int64_t now);
  void note(Slot& slot, const Known& known, const Look& look);

  Slot* others_[kSlots] = {};
  int64_t seen_ns_[kSlots] = {};  // the last launch of each of them that is above, as of the last look
  uint32_t count_ = 0;
  int64_t listed_ns_ = 0;
  Account account_;
  struct AtWork {
    Slot* slot;
    uint64_t epoch;
    int64_t next_ns, slack_ns;
  };
  AtWork at_work_[kSlots] = {};  // those above, as of the last look: so many of them
  uint32_t at_work_count_ = 0;
  int64_t last_go_ns_ = 0;
  int64_t launched_above_ns_ = 0;
  Kernel* last_ = nullptr;
  int64_t last_fill_ns_ = 0;
  int64_t mark_ns_ = 0;
  int64_t width_ppm_ = 0;  // of the kernel that was last looked at, as it is and not as the dial scales it
  bool crowd_ = false;  // others are gated too
  bool at_once_ = false;
  std::atomic<bool> anew_{false};
};

Gate& gate();

}  // namespace headway
