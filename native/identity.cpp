#include "identity.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include "decide.h"
#include "real.h"

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t kUnknown = 10000;          // a kernel never timed is taken for one of 10 microseconds
constexpr int64_t kGraphUnknown = 2000000;   // a graph for one of 2 milliseconds
constexpr int64_t kSane = 60000000000;       // nothing runs longer than a minute
constexpr int64_t kGraphPart = 8;            // a graph gives way between its kernels: it counts as so many waves
// Until one was timed: what the bus and what the GPU's memory give, at least.
struct Moves {
  const char* name;
  uint64_t bytes_per_ns;
  bool on_sms;  // as a kernel of as many blocks as there is room for; else by a copy engine
};
constexpr Moves kMoves[] = {{"copy", 20, false},      {"copy to device", 20, false}, {"copy to host", 20, false},
                            {"copy within", 500, true}, {"copy to peer", 20, false},   {"memset", 1000, true}};
constexpr uint32_t kMostHere = 0xffffffffu;
constexpr uint32_t kMostSms = 1 << 16, kMostPerSm = 1 << 12;  // no GPU has more

std::atomic<uint32_t> generation{1};
std::atomic<uint32_t> rows_made{0};
std::atomic<Slot*> rows_of{nullptr};  // the slot in which they were made
constexpr uint32_t kShapes = kKernels / 4 * 3;  // rows by shape; the rest is for names
constexpr uint32_t kGraphs = 256;  // more than these are all one graph, whose time varies
std::atomic<void*> graphs[kGraphs];
void* const kGone = &graphs;       // of a graph that was destroyed
std::mutex describing;  // the rows' texts: once a kernel

struct alignas(64) Remembered {
  void* handle;
  uint64_t shape;
  uint64_t slot_generation;
  Known known;
};
constexpr uint32_t kCache = 4096;
constexpr uint64_t kProbes = 8;

struct Cache {
  Remembered rows[kCache];
};

Cache& cache() {
  static thread_local Cache* mine = nullptr;
  static thread_local struct Owner {
    Cache* held = nullptr;
    ~Owner() { delete held; mine = nullptr; }
  } owner;
  if (!mine) owner.held = mine = new Cache{};
  return *mine;
}

uint64_t hash_text(const char* text) {
  uint64_t h = 1469598103934665603ull;
  for (; *text; ++text) h = (h ^ static_cast<unsigned char>(*text)) * 1099511628211ull;
  return h;
}

uint64_t shape_key(const Shape& s) {
  uint64_t a = mix(uint64_t{s.grid_x} << 32 | s.grid_y, uint64_t{s.grid_z} << 32 | s.shared_bytes);
  return mix(a, uint64_t{s.block_x} << 40 | uint64_t{s.block_y} << 20 | s.block_z);
}

const char* name_of(CUfunction function) {
  const char* name = nullptr;
  if (auto get = driver().function_name.get())
    if (get(&name, function) == CUDA_SUCCESS && name) return name;
  name = nullptr;
  if (auto get = driver().kernel_name.get())
    if (get(&name, function) == CUDA_SUCCESS && name) return name;
  return "unnamed";
}

uint32_t blocks_per_sm(CUfunction function, const Shape& s) {
  auto get = driver().per_sm.get();
  if (!get) return 1;
  int count = 0;
  const int threads = static_cast<int>(s.block_x * s.block_y * s.block_z);
  if (get(&count, function, threads, s.shared_bytes) == CUDA_SUCCESS && count > 0) return static_cast<uint32_t>(count);
  CUfunction inner = nullptr;  // the handle is a CUkernel
  if (auto unwrap = driver().kernel_function.get())
    if (unwrap(&inner, function) == CUDA_SUCCESS && inner)
      if (get(&count, inner, threads, s.shared_bytes) == CUDA_SUCCESS && count > 0) return static_cast<uint32_t>(count);
  return 1;
}

// The row with that identity, made if there is none.
Kernel* row(Slot* slot, uint64_t id, Kind kind, bool* made) {
  *made = false;
  for (uint32_t probe = 0; probe < kKernels; ++probe) {
    Kernel& k = slot->kernels[(id + probe) % kKernels];
    uint64_t held = k.id.load(std::memory_order_acquire);
    if (held == id) return &k;
    if (held != 0) continue;
    if (k.id.compare_exchange_strong(held, id)) {
      k.kind.store(kind, relaxed);
      *made = true;
      return &k;
    }
    if (held == id) return &k;
  }
  return nullptr;
}

Kernel* find_row(Slot* slot, uint64_t id) {
  for (uint32_t probe = 0; probe < kKernels; ++probe) {
    Kernel& k = slot->kernels[(id + probe) % kKernels];
    const uint64_t held = k.id.load(std::memory_order_acquire);
    if (held == id) return &k;
    if (held == 0) return nullptr;
  }
  return nullptr;
}

// Whether there is room for another row by shape. In a slot that is new to us what the broker has put there counts too.
bool room_for_shapes(Slot* slot) {
  if (rows_of.exchange(slot, relaxed) != slot) {
    uint32_t taken = 0;
    for (const Kernel& k : slot->kernels) taken += load(k.id) != 0;
    rows_made.store(taken, relaxed);
  }
  return rows_made.load(relaxed) < kShapes;
}

void describe(Kernel* kernel, const char* name, uint32_t blocks, uint32_t per_sm) {
  std::lock_guard<std::mutex> lock(describing);
  kernel->blocks.store(blocks, relaxed);
  kernel->per_sm.store(per_sm, relaxed);
  std::snprintf(kernel->name, kNameBytes, "%s", name);
}

}  // namespace

void forget_graph(CUgraphExec graph) {
  for (std::atomic<void*>& each : graphs) {
    void* held = graph;
    if (graph && each.compare_exchange_strong(held, kGone)) return;
    if (!held) return;
  }
}

void forget_handles() {
  generation.fetch_add(1, relaxed);
  rows_of.store(nullptr, relaxed);  // rows are counted anew
}

uint32_t handles_now() { return generation.load(relaxed); }

void forget_rows() {
  new (&describing) std::mutex;  // a thread that is not here may have held it
  rows_of.store(nullptr, relaxed);
  for (std::atomic<void*>& each : graphs) each.store(nullptr, relaxed);
}

Known identify(Slot* slot, CUfunction function, const Shape& shape) {
  const uint64_t key = shape_key(shape);
  const uint64_t stamp = uint64_t{generation.load(relaxed)} << 32 ^ reinterpret_cast<uintptr_t>(slot);
  const uint64_t at = mix(reinterpret_cast<uintptr_t>(function), key);
  Remembered* place = nullptr;
  for (uint64_t probe = 0; probe < kProbes; ++probe) {
    Remembered& row = cache().rows[(at + probe) % kCache];
    if (row.handle == function && row.shape == key && row.slot_generation == stamp) return row.known;
    if (!place && row.slot_generation != stamp) place = &row;  // free, or of another time
  }
  if (!place) place = &cache().rows[at % kCache];
  const char* name = name_of(function);
  const uint64_t id = mix(hash_text(name), key);
  bool made = false;
  Known known;
  known.kernel = room_for_shapes(slot) ? row(slot, id, kKernel, &made) : find_row(slot, id);
  const bool by_shape = known.kernel;
  if (!by_shape) {  // too many shapes: from here on a kernel is known by its name, and counts as its longest
    known.kernel = row(slot, hash_text(name) | 1, kKernel, &made);
    if (known.kernel) known.kernel->varied.store(1, relaxed);
  }
  if (made) rows_made.fetch_add(1, relaxed);
  known.nccl = std::strstr(name, "nccl") != nullptr;  // names are mangled: _Z40ncclDevKernel_...
  if (known.kernel && !load(known.kernel->blocks)) {
    const uint64_t blocks = uint64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
    const uint32_t counted = blocks > 0xffffffffull ? 0xffffffffu : static_cast<uint32_t>(blocks);
    char text[kNameBytes];
    std::snprintf(text, sizeof text, "%.60s (%u,%u,%u)x(%u,%u,%u)+%u", name, shape.grid_x, shape.grid_y, shape.grid_z,
                  shape.block_x, shape.block_y, shape.block_z, shape.shared_bytes);
    describe(known.kernel, text, counted, blocks_per_sm(function, shape));
  }
  *place = Remembered{function, key, stamp, known};
  known.fresh = by_shape || made;  // by name: its code was loaded with the first shape, and a shape may never come again
  return known;
}

Known identify_graph(Slot* slot, CUgraphExec graph) {
  // Handles change from run to run, the order in which graphs are first launched does not: the nth graph is the nth.
  uint32_t number = 0;
  for (; number < kGraphs; ++number) {
    void* held = graphs[number].load(relaxed);
    if (held == graph) break;
    if (!held && graphs[number].compare_exchange_strong(held, graph)) break;
    if (held == graph) break;
  }
  bool made = false;
  Known known;
  known.kernel = row(slot, mix(0x6772617068ull, number), kGraph, &made);
  if (known.kernel && !load(known.kernel->blocks)) {
    char text[kNameBytes];
    std::snprintf(text, sizeof text, "graph %u", number);
    describe(known.kernel, text, 0xffffffffu, 1);
  }
  known.fresh = made;
  return known;
}

Known identify_copy(Slot* slot, Move move, uint64_t bytes) {
  const Moves& kind = kMoves[static_cast<uint32_t>(move)];
  uint32_t magnitude = 0;
  while (magnitude < 63 && bytes >> (magnitude + 1)) ++magnitude;
  bool made = false;
  Known known;
  known.kernel = row(slot, mix(mix(0x636f7079ull, static_cast<uint32_t>(move)), magnitude), kCopy, &made);
  if (known.kernel && !load(known.kernel->blocks)) {
    char text[kNameBytes];
    std::snprintf(text, sizeof text, "%s of 2^%u bytes", kind.name, magnitude);
    describe(known.kernel, text, kind.on_sms ? 0xffffffffu : 1, 1);
    int64_t none = 0;
    const uint64_t guess = bytes / kind.bytes_per_ns + 1;
    known.kernel->work_ns.compare_exchange_strong(none, guess < uint64_t{kSane} ? static_cast<int64_t>(guess) : kSane - 1);
  }
  return known;
}

int64_t predicted_ns(const Kernel* kernel, const Step* step) {
  if (!kernel) return kUnknown;
  // Of one whose time depends on its place a single sample there says more than all others; else their mean does.
  const bool varied = load(kernel->varied) != 0;
  if (varied && step)
    if (const int64_t here = load(step->work_ns)) return here;
  const int64_t known = varied ? load(kernel->longest_ns) : load(kernel->work_ns);
  if (known > 0 && known < kSane) return known;
  return load(kernel->kind) == kGraph ? kGraphUnknown : kUnknown;
}

// A limit is rounded up to whole SMs; there is always one.
Sms sms_of(uint32_t all, uint32_t limit_ppm) {
  const uint32_t there = std::clamp(all, 1u, kMostSms);
  if (!limit_ppm || limit_ppm >= 1000000) return {there, there};
  return {there, static_cast<uint32_t>((uint64_t{there} * limit_ppm + 999999) / 1000000)};
}

// Blocks of a kernel that run on one SM at the same time: at least one, and few enough that nothing overflows.
static int64_t blocks_on_one(const Kernel* kernel) {
  const uint32_t per_sm = load(kernel->per_sm);
  return int64_t{std::clamp(per_sm, 1u, kMostPerSm)};
}

int64_t wave_ns(const Kernel* kernel, int64_t fill_ns, const Sms& sms) {
  if (!kernel) return fill_ns;
  const uint32_t kind = load(kernel->kind);
  if (kind == kGraph) return fill_ns / kGraphPart + 1;
  if (kind == kCopy) return fill_ns;
  const int64_t at_once = sms.own * blocks_on_one(kernel);
  const int64_t waves = (int64_t{load(kernel->blocks)} + at_once - 1) / at_once;
  return waves > 1 ? fill_ns / waves + 1 : fill_ns;
}

// Of the whole GPU: a program that is limited never takes more than its limit.
int64_t width_ppm(const Kernel* kernel, const Sms& sms) {
  const int64_t widest = int64_t{sms.own} * 1000000 / sms.all;
  if (!kernel) return widest;
  const int64_t per_sm = blocks_on_one(kernel), blocks = load(kernel->blocks);
  return blocks >= sms.own * per_sm ? widest : blocks * 1000000 / (sms.all * per_sm);
}

void learn(Kernel* kernel, Step* step, int64_t work_ns) {
  const uint64_t seen = load(kernel->samples);
  const int64_t mean = within(load(kernel->work_ns), kSane);
  kernel->samples.store(seen + 1, relaxed);
  if (work_ns > load(kernel->longest_ns)) kernel->longest_ns.store(work_ns, relaxed);
  if (seen == 0 || mean <= 0) {
    kernel->work_ns.store(work_ns, relaxed);
  } else {
    // Persistent kernels (a GEMM that fills the GPU whatever its size) have one name and one shape for very different work.
    if (work_ns > 2 * mean || 2 * work_ns < mean) kernel->varied.store(1, relaxed);
    const int64_t fair = work_ns < 2 * mean ? work_ns : 2 * mean;
    const int64_t weight = seen < 15 ? static_cast<int64_t>(seen) + 1 : 16;
    kernel->work_ns.store(mean + (fair - mean) / weight, relaxed);
  }
  if (!step) return;
  const int64_t here = load(step->work_ns);
  const int64_t next = here ? here + ((work_ns < 2 * here ? work_ns : 2 * here) - here) / 4 : work_ns;
  step->work_ns.store(next < kMostHere ? static_cast<uint32_t>(next) : kMostHere, relaxed);
}

void surprise(Kernel* kernel, Step* step, int64_t work_ns) {
  kernel->varied.store(1, relaxed);
  if (work_ns > load(kernel->longest_ns)) kernel->longest_ns.store(work_ns, relaxed);
  if (step) step->work_ns.store(0, relaxed);
}

}  // namespace headway
