// Prints where the compiler puts every field of the shared block, as JSON: the mirror in Python is compared with it.
#include <cstdio>

#include "decide.h"
#include "protocol.h"

using namespace headway;

namespace {

const char* gap = "";

void open_record(const char* name, size_t bytes) {
  std::printf("%s\n  \"%s\": {\"size\": %zu, \"fields\": {", gap, name, bytes);
  gap = "";
}

void field(const char* name, size_t offset, size_t bytes) {
  std::printf("%s\n    \"%s\": [%zu, %zu]", gap, name, offset, bytes);
  gap = ",";
}

void close_record() {
  std::printf("}}");
  gap = ",";
}

}  // namespace

#define FIELD(name) field(#name, offsetof(Record, name), sizeof(Record::name));

#define RECORD(type, fields)          \
  {                                   \
    using Record = type;              \
    open_record(#type, sizeof(Record)); \
    fields close_record();            \
  }

int main() {
  std::printf("{\"magic\": %llu, \"version\": %u, \"slots\": %u, \"kernels\": %u, \"steps\": %u, \"spans\": %u, \"reasons\": %u, \"records\": {",
              static_cast<unsigned long long>(kMagic), kVersion, kSlots, kKernels, kSteps, kSpans, kReasons);
  RECORD(Rules, FIELD(gate) FIELD(hold) FIELD(watched) FIELD(bypass) FIELD(threshold_ns) FIELD(latency_ns) FIELD(depth_ns)
                    FIELD(idle_depth_ns) FIELD(silence_ns) FIELD(absorb_ppm) FIELD(overlap_ppm) FIELD(credit_ppm)
                        FIELD(credit_cap_ns) FIELD(floor_ppm) FIELD(whole) FIELD(sample_every) FIELD(raised) FIELD(scale_ppm) FIELD(longest_ns))
  RECORD(Pulse, FIELD(launches) FIELD(launch_ns) FIELD(busy_ns) FIELD(next_ns) FIELD(slack_ns) FIELD(epoch) FIELD(waiting_ns))
  RECORD(Book, FIELD(lag_ns) FIELD(slack_ns) FIELD(epoch))
  RECORD(Want, FIELD(fill_ns) FIELD(since_ns) FIELD(served_ns) FIELD(kernel) FIELD(end_ns) FIELD(seen_ns))
  RECORD(Ledger, FIELD(beat_ns) FIELD(kernels) FIELD(graphs) FIELD(copies) FIELD(captured) FIELD(nccl) FIELD(waits)
                     FIELD(waited_ns) FIELD(work_ns) FIELD(harvested_ns) FIELD(delay_ns) FIELD(syncs) FIELD(samples)
                         FIELD(dropped) FIELD(spans) FIELD(marked) FIELD(reasons) FIELD(open) FIELD(threads)
                             FIELD(hook_ns) FIELD(hooked) FIELD(asked_ns) FIELD(asked) FIELD(passed) FIELD(harm_ns))
  RECORD(Kernel, FIELD(id) FIELD(work_ns) FIELD(samples) FIELD(launches) FIELD(blocks) FIELD(per_sm) FIELD(longest_ns)
                     FIELD(contention_ppm) FIELD(blamed_ns) FIELD(kind) FIELD(varied) FIELD(name) FIELD(beside_ns))
  RECORD(Step, FIELD(key) FIELD(gap_ns) FIELD(think_ns) FIELD(slack_ns) FIELD(samples) FIELD(waits)
                   FIELD(work_ns) FIELD(after) FIELD(sure))
  RECORD(Span, FIELD(begin_ns) FIELD(end_ns) FIELD(cpu_ns) FIELD(launches) FIELD(kind) FIELD(marked) FIELD(number))
  RECORD(Slot, FIELD(owner) FIELD(state) FIELD(priority) FIELD(seeded) FIELD(since_ns) FIELD(start_ticks) FIELD(name)
                   FIELD(program) FIELD(sms_ppm) FIELD(rules) FIELD(pulse) FIELD(book) FIELD(want) FIELD(ledger) FIELD(kernels) FIELD(steps) FIELD(spans))
  RECORD(Header, FIELD(magic) FIELD(version) FIELD(slot_bytes) FIELD(slots) FIELD(sms) FIELD(broker) FIELD(stopping)
                     FIELD(beat_ns) FIELD(started_ns) FIELD(patience_ns))
  RECORD(Block, FIELD(header) FIELD(slots))
  std::printf("\n}, \"look_bytes\": %zu, \"verdict_bytes\": %zu}\n", sizeof(Look), sizeof(Verdict));
  return 0;
}
