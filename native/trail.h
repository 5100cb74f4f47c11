// What a program does, launch by launch: learnt into its steps, told to those below through its pulse.
#pragma once

#include "identity.h"
#include "share.h"

namespace headway {

struct Trail;

// This thread's way through its kernels: begun with its first launch.
Trail& trail(Slot* slot);

// The launch that comes now, if it is the one that came last time at this place since the last wait: nothing has to be
// looked up then. Tells what it is, or that it is another.
bool as_before(Trail& trail, Slot* slot, CUfunction function, const Shape& shape, Known* known);
// The step that the next launch of this thread will be, as far as it is known: null if it never was.
Step* step_ahead(Trail& trail, Slot* slot, const Known& known);

// A launch that goes to the GPU now; returns its step, if it has one.
Step* observe_launch(Trail& trail, Slot* slot, const Known& known, int64_t now, int64_t work_ns);

// The program waits for the GPU, and has waited: for everything, for one of several streams, or for an event, behind
// which there may be any amount of work.
enum class Over { kEverything, kStream, kEvent };
void observe_wait(Slot* slot, int64_t now);
void observe_waited(Slot* slot, int64_t began, int64_t now, Over over);

void forget_trail();

}  // namespace headway
