// Another process that writes at random into the shared block, as fast as it can, while programs run: each value may be
// another one by the time it is read again. Until its input ends. Who is where (owners, states) and the broker's mark and
// beat stay as they are, so that the programs believe what they read. With seed 0 only divisors change, between 0 and some,
// many times a microsecond. flip HANDLE SEED
#include <poll.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../protocol.h"

namespace {

using namespace headway;

uint64_t state = 1;

uint64_t noise() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

uint32_t value() {
  const uint32_t edges[] = {0, 0, 0, 1, 2, 64, 0x7fffffffu, 0x80000000u, 0xffffffffu};
  const uint64_t drawn = noise();
  return drawn % 3 ? edges[drawn / 3 % (sizeof edges / sizeof *edges)] : static_cast<uint32_t>(drawn >> 32);
}

void write_word(volatile uint32_t* words, size_t count) { words[noise() % count] = value(); }

struct Rows {
  std::vector<Kernel*> kernels;
  std::vector<Step*> steps;
};

Rows rows_in_use(Block* block) {
  Rows found;
  for (Slot& slot : block->slots) {
    if (load(slot.state) != 2) continue;
    for (Kernel& kernel : slot.kernels)
      if (load(kernel.id)) found.kernels.push_back(&kernel);
    for (Step& step : slot.steps)
      if (load(step.key)) found.steps.push_back(&step);
  }
  return found;
}

// What stands before the rows: rules, pulse, want and ledger.
void write_head(Slot& slot) {
  auto* words = reinterpret_cast<volatile uint32_t*>(&slot.rules);
  write_word(words, (offsetof(Slot, kernels) - offsetof(Slot, rules)) / 4);
}

// Of every kernel how many of its blocks fit on a multiprocessor: none, a few, none.
void flip_divisors(Block* block, const Rows& rows) {
  for (int i = 0; i < 20000; ++i) {
    for (Kernel* kernel : rows.kernels)
      for (uint32_t fit : {0u, 4u, 0u, 3u, 0u, 2u}) kernel->per_sm.store(fit, std::memory_order_relaxed);
    block->header.sms.store(i % 2, std::memory_order_relaxed);
  }
}

bool over() {
  pollfd input{0, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  state = std::strtoull(words[2], nullptr, 10) * 2 + 1;
  void* at = mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, std::atoi(words[1]), 0);
  if (at == MAP_FAILED) return 3;
  auto* block = static_cast<Block*>(at);
  std::puts("ready");
  std::fflush(stdout);
  while (!over()) {
    const Rows rows = rows_in_use(block);
    if (state == 1) {
      flip_divisors(block, rows);
      continue;
    }
    for (int i = 0; i < 2000; ++i) {
      block->header.sms.store(value(), std::memory_order_relaxed);
      write_head(block->slots[noise() % 4]);
      if (!rows.steps.empty()) write_word(reinterpret_cast<volatile uint32_t*>(rows.steps[noise() % rows.steps.size()]), 16);
      if (!rows.kernels.empty())
        write_word(reinterpret_cast<volatile uint32_t*>(rows.kernels[noise() % rows.kernels.size()]), 18);
    }
  }
}
