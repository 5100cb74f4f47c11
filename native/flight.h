// Work in flight: events behind launches, so that the end of what was launched is known and durations are learnt.
#pragma once

#include "identity.h"
#include "share.h"

namespace headway {

// Whether this launch is one to be timed.
bool due(const Slot* slot, const Known& known, const Step* step);

class Flight {
 public:
  // Before a launch: a begin event when this launch is to be timed, else null.
  CUevent begin(Slot* slot, const Known& known, const Step* step, CUstream stream);
  // After it: an end event when it is timed, when enough has gone without one, or when it is one to keep an eye on.
  void end(const Known& known, Step* step, CUstream stream, CUevent begun, int64_t go_ns, int64_t fill_ns,
           int64_t mark_after_ns, bool gpu_idle);
  // Until when a program above is known to have launched, or to have had work on the GPU: what ran then ran beside it.
  void disturbed(int64_t at_ns) { above_ns_ = at_ns > above_ns_ ? at_ns : above_ns_; }
  // Take in what has finished: asks the driver, which costs more than a look at the others.
  void collect(Share& share, int64_t now);
  // Whether the first of what is in flight should have ended by now.
  bool overdue(int64_t now, int64_t latency_ns) const;
  // When what is in flight ends, as far as one can tell now.
  int64_t end_ns(int64_t now, int64_t latency_ns) const;
  // Work that went without events and without a word to here: in all, when the last of it went, when it ends.
  void passed(int64_t work_ns, int64_t last_ns, int64_t end_ns);
  int64_t unmarked_ns() const { return unmarked_ns_; }
  // Whether each launch has an event now.
  bool careful() const { return careful_ != 0; }
  bool empty() const { return count_ == 0 && unmarked_ns_ == 0; }

  // A context may be about to go: its events are given back while it is there, and none is made until `context_gone`.
  // Null: the primary one of a device, whatever its handle.
  void context_goes(void* context);
  void context_gone();
  // Another number once the events of a context were given back: what was begun before that is of no use after it.
  uint32_t era() const { return era_; }

 private:
  struct Entry {
    CUevent begin, end;
    Kernel* kernel;
    Step* step;
    int64_t go_ns, fill_ns, between_ns;
    bool single;  // of one kernel, not of several since the last event
  };
  static constexpr uint32_t kEntries = 128;

  CUevent event();
  CUevent left(CUstream stream);  // an event left behind in a stream
  bool here();
  void finish(Slot& slot, Entry& entry, int64_t now);
  void destroy_events();
  void forget_rows_in_flight();

  uint32_t era_ = 0;
  uint32_t going_ = 0;  // contexts that may be about to go
  uint32_t tenure_ = 0; // in which the rows of what is in flight were looked up
  Entry ring_[kEntries] = {};
  uint32_t first_ = 0, count_ = 0;
  CUevent spare_[2 * kEntries] = {};
  uint32_t spares_ = 0, made_ = 0;
  uint32_t careful_ = 0;  // so many launches get an event each: several together took far longer than expected
  int64_t unmarked_ns_ = 0, unmarked_go_ns_ = 0, free_ns_ = 0, above_ns_ = 0, looked_ns_ = 0;
  void* context_ = nullptr;
  bool broken_ = false;
};

}  // namespace headway
