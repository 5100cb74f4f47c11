// The block of shared memory between the broker and every program that shares the GPU: one header, one slot a program.
// The broker makes it and writes rules; a program writes only into its own slot, and into the books of those above it.
// All fields are fixed in size and place: src/headway/live/kernels/block.py mirrors them, and a test compares the two.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace headway {

constexpr uint64_t kMagic = 0x5941574441454831ull;  // "1HEADWAY"
constexpr uint32_t kVersion = 4;
constexpr uint32_t kSlots = 32;
constexpr uint32_t kKernels = 1024;
constexpr uint32_t kSteps = 16384;
constexpr uint32_t kSpans = 1024;
constexpr uint32_t kPriorities = 10;
constexpr uint32_t kReasons = 16;
constexpr uint32_t kNameBytes = 112;

template <typename T>
using Cell = std::atomic<T>;
using I64 = Cell<int64_t>;
using U64 = Cell<uint64_t>;
using U32 = Cell<uint32_t>;

// A cell as it is now. Another process may change it at any moment: load it once, check the copy, use only the copy.
template <typename T>
inline T load(const Cell<T>& cell) {
  return cell.load(std::memory_order_relaxed);
}

// What the broker asks of one program. Times in nanoseconds, shares in parts per million.
struct Rules {
  U32 gate;             // 0: never wait
  U32 hold;             // 1: wait as long as anyone above is at work (a short window in which the others are seen alone)
  U32 watched;          // 1: everybody below is held: what is seen now is this program alone
  U32 bypass;           // 1: the hooks do nothing at all (to measure what they cost)
  // What every launch reads, in one line.
  I64 latency_ns;       // from a launch to its start on the GPU
  I64 sample_every;     // one launch in so many is timed
  I64 raised;           // 1: streams of this program get the GPU's highest priority, 2: every launch too
  I64 threshold_ns;     // a gap shorter than this is not worth a fill
  I64 depth_ns;         // predicted work in flight while others above are at work
  I64 idle_depth_ns;    // and while they are not
  I64 silence_ns;       // who has not launched for so long is not at work
  I64 absorb_ppm;       // how much of the idle time before the next wait of those above may be used up by delays
  I64 overlap_ppm;      // what running beside a kernel above costs it
  I64 credit_ppm;       // delay that may be caused, by time passed
  I64 credit_cap_ns;
  I64 floor_ppm;        // share of the time that is this program's whatever happens
  I64 whole;            // 1: a kernel holds the GPU to its end (no launch priority), 0: to the end of a wave
  I64 scale_ppm;        // how much worse a delay is than reckoned (0: as reckoned)
  I64 longest_ns;       // a longer kernel goes only with nobody above at work, or owed by the floor (0: no limit)
  I64 spare[7];
};

// Written at each launch of a program above, read by those below. A line of its own.
struct alignas(64) Pulse {
  U64 launches;
  I64 launch_ns;  // the last launch
  I64 busy_ns;    // predicted end of all that was launched
  I64 next_ns;    // predicted next launch
  I64 slack_ns;   // predicted idle time left until this program next waits for the GPU
  U64 epoch;      // how often it has waited
  I64 waiting_ns; // since when a thread of it waits for the GPU, whose work is then not over, whatever was predicted; 0: none
  I64 spare[1];
};

// The delay of this program that those below have caused and that it has not made up yet: one book for all of them, who
// write it. Lag is added by compare-and-swap, and nothing is ever locked: who dies leaves a number that is forgotten.
struct alignas(64) Book {
  I64 lag_ns;
  I64 slack_ns;   // idle time that this program had left when it was caused
  U64 epoch;      // and how often it had waited
  I64 spare[5];
};

// Written by a program below while it waits, read by others below: whose turn is it.
struct alignas(64) Want {
  I64 fill_ns;    // 0: waits for nothing
  I64 since_ns;
  I64 served_ns;  // when it last went
  U64 kernel;
  I64 end_ns;     // predicted end of what it has in flight
  I64 seen_ns;    // when it last looked: who has not looked for long is not waiting
  I64 spare[2];
};

struct alignas(64) Ledger {
  I64 beat_ns;
  U64 kernels;       // launches of kernels
  I64 work_ns;       // predicted GPU time of all launches
  U64 graphs;
  U64 copies;
  U64 captured;      // launches into a capturing stream: recorded, not run
  U64 nccl;
  U64 waits;         // launches that had to wait
  I64 waited_ns;
  I64 harvested_ns;  // of those launched while somebody above was at work
  I64 delay_ns;      // of those above, caused by kernels of this program, as far as it saw
  U64 syncs;
  U64 samples;
  U64 dropped;       // samples dropped: lazy loading, implausible
  U64 spans;         // whole steps: see Span
  U64 marked;        // of these, requests that the program marked itself
  U64 reasons[kReasons];
  U64 open;          // 1: goes ungated (the broker is gone or the block is not to be trusted)
  U64 threads;
  I64 hook_ns;       // time spent in the hooks, as sampled
  U64 hooked;        // samples of it
  I64 asked_ns;      // and of launches that had to ask and went at once: looking, leaving events, asking for them
  U64 asked;
  U64 passed;        // launches that did not ask: nobody above was at work, and nothing has changed since the last answer
  I64 harm_ns;       // delay of those above that was reckoned for all that went beside them, contention and scale left out
};

struct alignas(64) Kernel {
  U64 id;            // 0: free
  I64 work_ns;       // mean duration
  U64 samples;
  U64 launches;
  U32 blocks;
  U32 per_sm;        // blocks of it that fit on one SM
  I64 longest_ns;
  I64 contention_ppm;  // delay of programs above by its time beside them, beyond what is reckoned; the broker learns it
  U32 kind;          // 1 kernel, 2 graph, 3 copy
  U32 varied;        // 1: seen with very different times, so that its place decides
  I64 blamed_ns;     // delay of programs above that it caused
  char name[kNameBytes];
  I64 beside_ns;     // of its time what was to run beside programs above, as reckoned at each launch
};

// What follows a launch, known by its kernel, the one before and its place since the last wait (or by the two alone).
struct alignas(64) Step {
  U64 key;           // 0: free
  I64 gap_ns;        // launch to next launch, no wait between
  I64 think_ns;      // end of a wait to the next launch
  I64 slack_ns;      // idle time from here to the next wait
  U32 samples;
  U32 waits;         // 1: last time the program waited for the GPU after this launch
  U32 work_ns;       // how long the kernel takes here: the same kernel may do very different work at another place
  U32 after;         // the step of the first launch after the wait that came here, plus one
  U32 sure;          // how often running it was that one
  U32 spare;
  I64 spares[1];
};

// One whole step of a program: from the first launch after a wait to the end of the wait that closes it, or a request that
// the program marked. A ring: the number is written last, and says which step it is.
struct Span {
  I64 begin_ns;
  I64 end_ns;
  I64 cpu_ns;        // of this the time in which the program did not wait for the GPU
  U32 launches;
  U32 kind;          // by what was launched: steps of one kind are alike
  U32 marked;        // 1: a request that the program marked
  U32 number;        // from 1; 0: being written
};

struct alignas(4096) Slot {
  U32 owner;         // process; 0: free
  U32 state;         // 0 free, 1 being filled, 2 live, 3 left
  U32 priority;
  U32 seeded;        // 1: the broker has put in what it knew of the program
  I64 since_ns;
  U64 start_ticks;   // of the process, from /proc, so that a reused number is noticed
  char name[64];
  char program[64];
  U32 sms_ppm;       // share of the SMs that it is limited to; 0: all of them
  char spare[20];
  alignas(64) Rules rules;
  Pulse pulse;
  Book book;
  Want want;
  Ledger ledger;
  Kernel kernels[kKernels];
  Step steps[kSteps];
  Span spans[kSpans];
};

struct alignas(4096) Header {
  U64 magic;
  U32 version;
  U32 slot_bytes;
  U32 slots;
  U32 sms;
  U32 broker;
  U32 stopping;       // 1: the broker takes its leave; everybody goes ungated, nothing is said
  I64 beat_ns;        // the broker's last sign of life
  I64 started_ns;
  I64 patience_ns;    // a broker silent for so long is gone
};

struct Block {
  Header header;
  Slot slots[kSlots];
};

static_assert(sizeof(std::atomic<int64_t>) == 8 && sizeof(std::atomic<uint32_t>) == 4, "plain cells");
static_assert(sizeof(Rules) == 192, "rules");
static_assert(sizeof(Pulse) == 64 && sizeof(Book) == 64 && sizeof(Want) == 64 && sizeof(Step) == 64 && sizeof(Kernel) == 192 && sizeof(Span) == 40, "lines");

}  // namespace headway
