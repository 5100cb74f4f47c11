// Whole steps of a program, written into a ring that the broker reads, and the requests that a program marks itself.
#pragma once

#include "protocol.h"

namespace headway {

// Writes one step; threads may write at the same time.
void record_span(Slot* slot, int64_t begin_ns, int64_t end_ns, uint32_t launches, uint64_t kind, bool marked);

// A launch of this thread, inside of a marked request or not.
void launch_in_request(uint64_t kernel);

}  // namespace headway
