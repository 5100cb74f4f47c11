#include "share.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "clock.h"
#include "decide.h"
#include "door.h"
#include "trace.h"

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t kSecond = 1000000000;
constexpr int kFirstWaitMs = 300, kWaitMs = 2;  // for the broker's answer; later somebody waits for a launch

std::mutex joining;
std::atomic<bool> tried{false};
std::atomic<bool> joined{false};
std::atomic<uint32_t> said{0};
std::atomic<uint32_t> tenures{0};
Share mine;
std::atomic<uint64_t> mapped_door{0};
void (*forget_more)() = nullptr;
void (*forget_rows_of_slot)() = nullptr;

const char* variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

// When the process began, in clock ticks since the machine did: field 22 of /proc/self/stat.
uint64_t start_ticks() {
  FILE* file = std::fopen("/proc/self/stat", "re");
  if (!file) return 0;
  char text[1024];
  size_t got = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[got] = 0;
  const char* at = std::strrchr(text, ')');  // the name before it may hold blanks
  for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
  return at ? std::strtoull(at + 1, nullptr, 10) : 0;
}

void copy_text(char* to, size_t bytes, const char* from) {
  std::strncpy(to, from, bytes - 1);
  to[bytes - 1] = 0;
}

// Whether another block lies where the one that is mapped was.
bool elsewhere() {
  const char* path = std::getenv("HEADWAY_SHARE");
  const uint64_t door = path ? door_at(path) : 0;
  return door && door != mapped_door.load(relaxed);
}

// The block at that path: the one that is mapped already, if it is still that one. Says so once where there is none.
Block* block_at(const char* path, int wait_ms) {
  const uint64_t door = door_at(path);
  Block* block = mine.block;
  if (block && door && door == mapped_door.load(relaxed)) return block;
  Missing why = Missing::kNone;
  Block* found = ask_for_block(path, wait_ms, &why);
  switch (why) {
    case Missing::kNot: mapped_door.store(door, relaxed); break;
    case Missing::kNone: say(Say::kNoBlock, path); break;
    case Missing::kVersion: say(Say::kVersion, path); break;
    case Missing::kRefused: say(Say::kRefused, path); break;
    case Missing::kSilent: say(Say::kGone, "no answer"); break;
  }
  return found;
}

// Whether this is a block of ours whose broker lives. Says so once where not.
bool lives(const Header& header, int64_t now) {
  if (load(header.magic) != kMagic || load(header.version) != kVersion) {
    say(Say::kCorrupt, "its mark is not ours");
    return false;
  }
  if (load(header.stopping)) return false;
  int64_t patience = load(header.patience_ns);
  if (patience < kSecond / 20 || patience > 60 * kSecond) patience = kSecond;
  const int64_t silent = now - within(load(header.beat_ns), kLatest);
  if (silent > patience || silent < -kSecond) {
    say(Say::kGone, "no sign of life");
    return false;
  }
  return true;
}

// A process that became another program (exec) has left the slot of the one it was: nobody else can say so for it.
void leave_earlier(Block* block, uint64_t ticks) {
  for (Slot& slot : block->slots) {
    if (slot.owner.load() != static_cast<uint32_t>(getpid()) || slot.start_ticks.load() != ticks) continue;
    uint32_t live = 2;
    slot.state.compare_exchange_strong(live, 3);
  }
}

// The share of the SMs that this program was limited to at its start, in parts per million; 0: all of them.
uint32_t limit_of_sms() {
  char* end = nullptr;
  const char* text = variable("HEADWAY_SMS", "0");
  const unsigned long ppm = std::strtoul(text, &end, 10);
  return end && *end == 0 && ppm < 1000000 ? static_cast<uint32_t>(ppm) : 0;
}

Slot* claim(Block* block, uint32_t priority) {
  const uint64_t ticks = start_ticks();
  leave_earlier(block, ticks);
  for (uint32_t i = 0; i < kSlots; ++i) {
    Slot& slot = block->slots[i];
    uint32_t empty = 0;
    if (!slot.state.compare_exchange_strong(empty, 1)) continue;
    slot.priority.store(priority);
    slot.sms_ppm.store(limit_of_sms());
    slot.since_ns.store(now_ns());
    slot.start_ticks.store(ticks);
    copy_text(slot.name, sizeof slot.name, variable("HEADWAY_NAME", "program"));
    copy_text(slot.program, sizeof slot.program, variable("HEADWAY_PROGRAM", "program"));
    slot.owner.store(static_cast<uint32_t>(getpid()));
    slot.state.store(2, std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

void leave() {
  mine.wants.store(false, relaxed);
  if (Slot* slot = mine.slot; slot && mine.block) {
    mine.slot.set(nobody());  // threads that still launch do so as if headway were not there
    if (slot->owner.load() == static_cast<uint32_t>(getpid())) {
      slot->want.fill_ns.store(0, relaxed);
      slot->state.store(3, std::memory_order_release);
    }
  }
}

void after_fork() {
  // The child is another program: it holds no slot until it launches something of its own.
  new (&joining) std::mutex;  // a thread that is not here may have held it
  if (mine.block) munmap(mine.block, sizeof(Block));
  forget_door();
  mine.block.set(nullptr);
  mine.slot.set(nullptr);
  mine.priority = mine.process = 0;
  joined.store(false);
  tried.store(false);
  trace_forget();
  if (forget_more) forget_more();
}

// What the broker knows of a program comes a moment after it joins; it waits for it a little, once.
void await_seed(const Share& with) {
  const int64_t begin = now_ns();
  while (!with.slot->seeded.load(std::memory_order_acquire) && now_ns() - begin < 300000000) sleep_ns(1000000);
}

void join_block(const char* path) {
  char* end = nullptr;
  const char* text = variable("HEADWAY_PRIORITY", "5");
  const unsigned long priority = std::strtoul(text, &end, 10);
  mine.priority = (end && *end == 0 && priority < kPriorities) ? static_cast<uint32_t>(priority) : 5;
  mine.process = static_cast<uint32_t>(getpid());
  mine.wants.store(true, relaxed);
  const bool first = !tried.exchange(true);  // later somebody waits for an answer: it goes on without
  Block* before = mine.block;
  Block* block = block_at(path, first ? kFirstWaitMs : kWaitMs);
  if (!block) return;  // the one before, if there was one, stays mapped: its broker may be back
  mine.block.set(block);
  if (before && before != block) retire_block(before);
  if (!lives(block->header, now_ns())) return;
  Slot* claimed = claim(mine.block, mine.priority);
  if (!claimed) {
    say(Say::kFull, path);
    return;
  }
  if (forget_rows_of_slot) forget_rows_of_slot();
  tenures.fetch_add(1);
  mine.slot.set(claimed);
  if (first) await_seed(mine);
}

void join() {
  static bool registered = false;
  if (!registered) {
    registered = true;
    pthread_atfork(nullptr, nullptr, after_fork);
    std::atexit(leave);
  }
  const char* path = std::getenv("HEADWAY_SHARE");
  if (path && *path) join_block(path);
  if (mine.slot || !tracing() || !trace_slot()) return;
  trace_slot()->owner.store(mine.process);
  mine.slot.set(trace_slot());  // recorded without a broker
}

}  // namespace

void on_fork(void (*forget)()) { forget_more = forget; }

void on_join(void (*forget)()) { forget_rows_of_slot = forget; }

Slot* nobody() {
  static Slot* empty = [] {
    void* at = mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<Slot*>(at);
  }();
  return empty;
}

uint32_t tenure() { return tenures.load(relaxed); }

void lost(Share& with, const Slot* slot) {
  std::lock_guard<std::mutex> lock(joining);
  // Another thread may have been here before, and have found another place, or the same one again.
  if (with.slot != slot || (load(slot->owner) == with.process && !elsewhere())) return;
  tenures.fetch_add(1);
  with.slot.set(nobody());
  joined.store(false, std::memory_order_release);
}

void say(Say what, const char* more) {
  const uint32_t bit = 1u << static_cast<uint32_t>(what);
  if (said.fetch_or(bit) & bit) return;
  const char* text = "";
  switch (what) {
    case Say::kNoBlock: text = "no broker here (start one: headway share run)"; break;
    case Say::kVersion: text = "the broker's shared memory is of another version (restart it with this headway)"; break;
    case Say::kGone: text = "the broker is gone or hangs"; break;
    case Say::kFull: text = "no slot is free: 32 programs share already"; break;
    case Say::kRefused: text = "the broker is another user's"; break;
    case Say::kCorrupt: text = "the shared memory is damaged"; break;
  }
  std::fprintf(stderr, "headway: %s; %s goes on ungated (%s)\n", text, variable("HEADWAY_NAME", "this program"), more);
}

Share& share() {
  if (joined.load(std::memory_order_acquire)) return mine;
  std::lock_guard<std::mutex> lock(joining);
  if (!joined.load(relaxed)) {
    join();
    joined.store(true, std::memory_order_release);
  }
  return mine;
}

void look_again(Share& with) {
  static std::atomic<uint32_t> launches{0};
  static std::atomic<int64_t> looked{0};
  if (!with.wants.load(relaxed) || launches.fetch_add(1, relaxed) % 64) return;
  const int64_t now = now_ns();
  int64_t before = looked.load(relaxed);
  if (now - before < kSecond || !looked.compare_exchange_strong(before, now, relaxed) || !before) return;
  const char* path = std::getenv("HEADWAY_SHARE");
  if (!path || !door_at(path)) return;
  const Block* block = with.block;
  const bool other = !block || elsewhere();
  const bool back = block && !load(block->header.stopping) && now - within(load(block->header.beat_ns), kLatest) < kSecond;
  if (!other && !back) return;
  std::lock_guard<std::mutex> lock(joining);
  Slot* slot = with.slot;  // another thread may have found a place meanwhile
  if (!slot || slot == nobody()) joined.store(false, std::memory_order_release);
}

bool replaced(const Share& with, int64_t now) {
  static std::atomic<int64_t> looked{0};
  int64_t before = looked.load(relaxed);
  if (now - before < kSecond || !looked.compare_exchange_strong(before, now, relaxed)) return false;
  Block* block = with.block;
  if (!block) return false;
  const bool stopping = load(block->header.stopping) != 0;
  if (!stopping && now - within(load(block->header.beat_ns), kLatest) < 2 * kSecond) return false;
  // Whoever is not gated finds out here, and says so too: nobody yields to it any more.
  if (!stopping && load(block->header.magic) == kMagic) say(Say::kGone, "no sign of life");
  return elsewhere();
}

bool trusted(Share& with, int64_t now) {
  Block* block = with.block;
  if (!block || !lives(block->header, now)) return false;
  // Another program, or nonsense, in our slot: the broker took us for dead, or the block was written over.
  if (Slot* slot = with.slot; slot == nobody()) return false;
  if (Slot* slot = with.slot; slot && (load(slot->owner) != with.process || load(slot->state) != 2)) {
    say(Say::kCorrupt, "our slot is not ours");
    return false;
  }
  return true;
}

}  // namespace headway
