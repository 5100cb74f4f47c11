// Whole steps of a program, written into a ring that the broker reads, and the requests that a program marks itself.
#pragma once

#include "protocol.h"

namespace headway {

// Writes one step, of which so much was no wait; threads may write at the same time.
void record_span(Slot* slot, int64_t begin_ns, int64_t end_ns, int64_t cpu_ns, uint32_t launches, uint64_t kind, bool marked);

// A launch of this thread, inside of a marked request or not.
void launch_in_request(uint64_t kernel);
// And a wait of this thread.
void wait_in_request(int64_t began_ns, int64_t now_ns);

}  // namespace headway
