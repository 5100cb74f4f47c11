// This process's place in the shared block: found at the first launch, given up at exit, forgotten after a fork.
#pragma once

#include "protocol.h"

namespace headway {

// A pointer that other threads may take away: read once, used as it was read.
struct SlotCell {
  std::atomic<Slot*> at{nullptr};
  operator Slot*() const { return at.load(std::memory_order_relaxed); }
  Slot* operator->() const { return at.load(std::memory_order_relaxed); }
  void set(Slot* slot) { at.store(slot, std::memory_order_relaxed); }
};

struct BlockCell {
  std::atomic<Block*> at{nullptr};
  operator Block*() const { return at.load(std::memory_order_relaxed); }
  Block* operator->() const { return at.load(std::memory_order_relaxed); }
  void set(Block* block) { at.store(block, std::memory_order_relaxed); }
};

struct Share {
  BlockCell block;
  SlotCell slot;             // null: this program goes on as if headway were not there
  U32 priority{0};
  U32 process{0};
  std::atomic<bool> wants{false};  // was asked to share, and has not left
};

// The share of this process, joined at the first call. Never null; its slot is null where there is nothing to join.
Share& share();

// Whether the block can be believed now: ours, of our version, and a broker that lives. Says so once where not.
bool trusted(Share& share, int64_t now);

// One line to the program's error output, once for each kind.
enum class Say { kNoBlock, kVersion, kGone, kFull, kCorrupt, kRefused };
void say(Say what, const char* more);

// Another number whenever this process takes or loses a slot: rows that were looked up before belong to that one.
uint32_t tenure();

// The slot has become another program's (the broker took this one for dead): leave it, join anew at the next launch.
// Threads that still hold on to it write into a slot that is nobody's.
void lost(Share& share, const Slot* slot);
Slot* nobody();

// For a program without a place, at each launch: now and then it looks whether a broker that hung is back, or another has
// come, and joins anew at the next launch.
void look_again(Share& share);

// Whether the broker of this block is gone and another one has made a new block in its place. Looks once a second.
bool replaced(const Share& share, int64_t now);

// Called in a child after a fork; and when a slot is about to be used, before any thread sees it.
void on_fork(void (*forget)());
void on_join(void (*forget)());

}  // namespace headway
