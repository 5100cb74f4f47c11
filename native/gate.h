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
  void take_back();
  void grant(Slot& slot, const Look& look);
  int64_t turn(const Share& share, const Look& look, int64_t now);
  void go(Slot& slot, const Known& known, const Look& look, const Verdict& verdict);
  void blame(Slot& slot, int64_t now);

  Slot* others_[kSlots] = {};
  uint32_t count_ = 0;
  int64_t listed_ns_ = 0;
  Account account_;
  uint64_t epoch_ = 0;
  int64_t last_go_ns_ = 0;
  int64_t launched_above_ns_ = 0;
  Kernel* last_ = nullptr;
  int64_t last_fill_ns_ = 0;
  int64_t mark_ns_ = 0;
  bool crowd_ = false;  // others are gated too
  bool at_once_ = false;
  std::atomic<bool> anew_{false};
};

Gate& gate();

}  // namespace headway
