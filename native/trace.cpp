#include "trace.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "clock.h"
#include "cupti.h"
#include "real.h"
#include "share.h"

namespace headway {

std::atomic<bool> trace_on{false};

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr uint32_t kChunk = 4096;
constexpr uint64_t kMostLaunches = 40000000;  // a thread; about a gigabyte
constexpr int kMultiprocessors = 16;          // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

// Rows of one thread: it alone appends, and the flush reads as far as the count says.
template <typename T>
struct Rows {
  struct Chunk {
    T rows[kChunk];
    std::atomic<Chunk*> next{nullptr};
  };
  Chunk first;
  Chunk* last = &first;
  std::atomic<uint64_t> count{0};

  bool add(const T& row) {
    const uint64_t at = count.load(relaxed);
    if (at >= kMostLaunches) return false;
    if (at && at % kChunk == 0) {
      auto* more = new Chunk;
      last->next.store(more, std::memory_order_release);
      last = more;
    }
    last->rows[at % kChunk] = row;
    count.store(at + 1, std::memory_order_release);
    return true;
  }

  void collect(std::vector<T>* to) const {
    uint64_t left = count.load(std::memory_order_acquire);
    for (const Chunk* chunk = &first; chunk && left; chunk = chunk->next.load(std::memory_order_acquire)) {
      const uint64_t here = left < kChunk ? left : kChunk;
      to->insert(to->end(), chunk->rows, chunk->rows + here);
      left -= here;
    }
  }
};

struct Thread {
  uint32_t number;
  Rows<TraceLaunch> launches;
  Rows<TraceSpan> waits, gates;
  uint64_t last_kernel[64] = {};  // ids whose row was looked up: most launches find theirs here
};

struct Trace {
  std::mutex mutex;
  std::vector<Thread*> threads;
  std::unordered_set<uint64_t> known;
  std::vector<TraceKernel> kernels;
  std::string path, cupti, why, gpu;
  int sms = 0;
  pid_t process = 0;
  int64_t started_ns = 0;
  std::atomic<uint64_t> dropped{0};
  std::atomic<bool> ended{false};
  std::mutex writing;
};

std::atomic<Trace*> running{nullptr};
std::mutex starting;
std::atomic<uint64_t> generation{0};  // of the trace: after a fork threads take a new buffer
thread_local Thread* mine = nullptr;
thread_local uint64_t mine_of = 0;

__attribute__((constructor)) void look_at_the_variable() {
  const char* path = std::getenv("HEADWAY_TRACE");
  trace_on.store(path && *path, relaxed);
}

Thread* buffers(Trace* trace) {
  const uint64_t now = generation.load(relaxed);
  if (mine && mine_of == now) return mine;
  mine = new Thread;  // kept by the trace: a thread may be gone before the trace is written
  mine->number = static_cast<uint32_t>(syscall(SYS_gettid));
  mine_of = now;
  std::lock_guard<std::mutex> lock(trace->mutex);
  trace->threads.push_back(mine);
  return mine;
}

Trace* recording() {
  Trace* trace = running.load(std::memory_order_acquire);
  return trace && !trace->ended.load(relaxed) ? trace : nullptr;
}

// The table that kernels were identified into.
const Slot* table() {
  const Slot* slot = share().slot;
  return slot ? slot : trace_slot();
}

// What the table says of a kernel now.
void look_up(TraceKernel* row) {
  const Slot* slot = table();
  for (uint32_t probe = 0; slot && probe < kKernels; ++probe) {
    const Kernel& k = slot->kernels[(row->id + probe) % kKernels];
    const uint64_t held = k.id.load(std::memory_order_acquire);
    if (held == 0) return;
    if (held != row->id) continue;
    row->blocks = load(k.blocks);
    row->per_sm = load(k.per_sm);
    row->work_ns = load(k.work_ns);
    row->longest_ns = load(k.longest_ns);
    row->samples = load(k.samples);
    std::memcpy(row->name, k.name, sizeof row->name);
    row->name[sizeof row->name - 1] = 0;
    return;
  }
}

std::vector<TraceStep> steps() {
  std::vector<TraceStep> all;
  const Slot* slot = table();
  for (uint32_t i = 0; slot && i < kSteps; ++i) {
    const Step& s = slot->steps[i];
    const TraceStep row{load(s.key), load(s.gap_ns), load(s.think_ns), load(s.slack_ns), load(s.samples), load(s.waits)};
    if (row.key && row.samples) all.push_back(row);
  }
  return all;
}

void remember(Trace* trace, uint64_t id, uint32_t kind) {
  std::lock_guard<std::mutex> lock(trace->mutex);
  if (!trace->known.insert(id).second) return;
  TraceKernel row{};
  row.id = id;
  row.kind = kind;
  row.per_sm = 1;
  look_up(&row);
  trace->kernels.push_back(row);
}

void describe_device(Trace* trace) {
  CUdevice device = 0;
  char name[128] = {};
  if (auto current = driver().device.get()) current(&device);
  if (auto get = reinterpret_cast<CUresult (*)(char*, int, CUdevice)>(driver_function("cuDeviceGetName")))
    if (get(name, sizeof name - 1, device) == CUDA_SUCCESS) trace->gpu = name;
  if (auto get = driver().device_attribute.get()) get(&trace->sms, kMultiprocessors, device);
}

void flush_after(double seconds) {
  std::thread([seconds] {
    sleep_ns(static_cast<int64_t>(seconds * 1e9));
    trace_flush();
  }).detach();
}

// --- the file --------------------------------------------------------------------------------------------------------

struct File {
  FILE* file;
  bool good = true;
  void put(const void* bytes, size_t count) { good = good && (!count || std::fwrite(bytes, count, 1, file) == 1); }
  template <typename T>
  void section(TraceSection what, const std::vector<T>& rows) {
    const Section head{what, sizeof(T), rows.size()};
    put(&head, sizeof head);
    put(rows.data(), rows.size() * sizeof(T));
  }
  void section(TraceSection what, const std::string& text) {
    const Section head{what, 1, text.size()};
    put(&head, sizeof head);
    put(text.data(), text.size());
  }
};

void line(std::string* text, const char* key, const std::string& value) {
  *text += key;
  *text += ' ';
  for (char c : value) *text += c == '\n' ? ' ' : c;
  *text += '\n';
}

std::string about(const Trace& trace, uint64_t dropped, int64_t ended_ns) {
  std::string text;
  const char* program = std::getenv("HEADWAY_PROGRAM");
  line(&text, "program", program ? program : "");
  const char* name = std::getenv("HEADWAY_NAME");
  line(&text, "name", name ? name : "");
  line(&text, "gpu", trace.gpu);
  line(&text, "sms", std::to_string(trace.sms));
  line(&text, "cupti", trace.cupti);
  line(&text, "why", trace.why);
  line(&text, "dropped", std::to_string(trace.dropped.load()));
  line(&text, "activities_dropped", std::to_string(dropped));
  line(&text, "started_ns", std::to_string(trace.started_ns));
  line(&text, "ended_ns", std::to_string(ended_ns));
  if (const Slot* slot = table()) {
    const Ledger& ledger = slot->ledger;
    line(&text, "kernels", std::to_string(load(ledger.kernels)));
    line(&text, "graphs", std::to_string(load(ledger.graphs)));
    line(&text, "copies", std::to_string(load(ledger.copies)));
    line(&text, "captured", std::to_string(load(ledger.captured)));
    line(&text, "hook_ns", std::to_string(load(ledger.hook_ns)));
    line(&text, "hooked", std::to_string(load(ledger.hooked)));
  }
  return text;
}

void write_file(Trace& trace, const Activities& seen, int64_t ended_ns) {
  const std::string part = trace.path + ".part";
  FILE* opened = std::fopen(part.c_str(), "wbe");
  File file{opened};
  if (opened) {
    std::lock_guard<std::mutex> lock(trace.mutex);
    std::vector<TraceLaunch> launches;
    std::vector<TraceSpan> waits, gates;
    for (const Thread* thread : trace.threads) {
      thread->launches.collect(&launches);
      thread->waits.collect(&waits);
      thread->gates.collect(&gates);
    }
    for (TraceKernel& kernel : trace.kernels) look_up(&kernel);
    const TraceHead head{kTraceMagic, kTraceVersion, static_cast<uint32_t>(trace.process)};
    file.put(&head, sizeof head);
    file.section(kAboutSection, about(trace, seen.dropped, ended_ns));
    file.section(kLaunchSection, launches);
    file.section(kWaitSection, waits);
    file.section(kGateSection, gates);
    file.section(kKernelSection, trace.kernels);
    file.section(kActivitySection, seen.rows);
    file.section(kNameSection, seen.names);
    file.section(kClockSection, seen.clocks);
    file.section(kStepSection, steps());
    file.good = std::fclose(opened) == 0 && file.good;
  }
  if (!opened || !file.good || std::rename(part.c_str(), trace.path.c_str()) != 0) {
    std::fprintf(stderr, "headway: the trace %s could not be written\n", trace.path.c_str());
    std::remove(part.c_str());
  }
}

}  // namespace

void trace_start() {
  if (!tracing() || running.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> lock(starting);
  if (running.load(relaxed)) return;
  auto* trace = new Trace;
  trace->process = getpid();
  trace->path = std::string(std::getenv("HEADWAY_TRACE")) + "." + std::to_string(trace->process);
  trace->cupti = cupti_begin(&trace->why);
  if (trace->cupti.empty()) std::fprintf(stderr, "headway: no times of the GPU, launches only: %s\n", trace->why.c_str());
  describe_device(trace);
  trace->started_ns = now_ns();
  generation.fetch_add(1, relaxed);
  running.store(trace, std::memory_order_release);
  static bool registered = false;
  if (!registered) {
    registered = true;
    std::atexit(trace_flush);
    pthread_atfork(nullptr, nullptr, trace_forget);
  }
  const char* seconds = std::getenv("HEADWAY_TRACE_SECONDS");
  if (seconds && std::atof(seconds) > 0) flush_after(std::atof(seconds));
}

void trace_launch(uint64_t kernel_id, uint32_t kind, int64_t launch_ns) {
  Trace* trace = recording();
  if (!trace) return;
  Thread* thread = buffers(trace);
  uint64_t& last = thread->last_kernel[kernel_id % 64];
  if (last != kernel_id) {
    remember(trace, kernel_id, kind);
    last = kernel_id;
  }
  if (!thread->launches.add(TraceLaunch{kernel_id, launch_ns, kind, thread->number})) trace->dropped.fetch_add(1, relaxed);
}

void trace_wait(int64_t begin_ns, int64_t end_ns) {
  Trace* trace = recording();
  if (!trace) return;
  Thread* thread = buffers(trace);
  if (!thread->waits.add(TraceSpan{begin_ns, end_ns, 0, thread->number})) trace->dropped.fetch_add(1, relaxed);
}

void trace_gate(int64_t begin_ns, int64_t end_ns, uint32_t reason) {
  Trace* trace = recording();
  if (!trace) return;
  Thread* thread = buffers(trace);
  if (!thread->gates.add(TraceSpan{begin_ns, end_ns, reason, thread->number})) trace->dropped.fetch_add(1, relaxed);
}

void trace_flush() {
  Trace* trace = running.load(std::memory_order_acquire);
  if (!trace || trace->process != getpid()) return;
  std::lock_guard<std::mutex> lock(trace->writing);  // at exit: until a flush that is under way is done
  if (trace->ended.exchange(true)) return;
  const int64_t ended_ns = now_ns();
  Activities seen;
  if (!trace->cupti.empty()) seen = cupti_end();
  write_file(*trace, seen, ended_ns);
}

Slot* trace_slot() {
  static Slot* slot = [] {
    void* at = mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* made = at == MAP_FAILED ? nullptr : static_cast<Slot*>(at);
    if (made) {  // gate stays 0: nobody waits
      made->rules.latency_ns.store(6000, relaxed);
      made->rules.sample_every.store(64, relaxed);
      made->rules.watched.store(1, relaxed);  // nobody is below
    }
    return made;
  }();
  return slot;
}

void trace_forget() {
  // What the parent recorded stays with the parent; its locks may be held by threads that are not here.
  static std::atomic<Trace*> of_the_parent{nullptr};
  if (Trace* trace = running.exchange(nullptr)) of_the_parent.store(trace);
  new (&starting) std::mutex;
}

}  // namespace headway
