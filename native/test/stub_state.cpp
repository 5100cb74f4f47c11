// The stub driver's state: streams, functions, the log; and the few calls by which a test sets them up.
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "stub.h"

extern "C" __attribute__((weak)) void cupti_stub_note(const char* call, const char* name, int64_t start_ns, int64_t end_ns,
                                                      int64_t bytes);

namespace stub {

Lock lock;

namespace {

struct State {
  std::vector<Entry> log;
  std::vector<int> threads;  // that made each entry
  std::map<std::string, uint64_t> counts;
  std::vector<Stream*> streams;
  Stream* legacy = nullptr;
  std::map<int, Stream*> per_thread;
  uint64_t sum = 0;
  uint64_t context = 1;
  uint64_t retained = 1;
};

thread_local int capture_mode = 0;  // 0 global, 1 of the thread, 2 relaxed

State& state() {
  static State* one = new State;
  return *one;
}

Stream* new_stream() {
  auto* stream = new Stream;
  state().streams.push_back(stream);
  return stream;
}

std::string line_of(const Entry& e, int thread) {
  std::string text = "{\"pid\":" + std::to_string(getpid()) + ",\"thread\":" + std::to_string(thread);
  text += std::string(",\"call\":\"") + e.call + "\",\"name\":\"" + e.name + "\"";
  text += ",\"at\":" + std::to_string(e.at_ns) + ",\"start\":" + std::to_string(e.start_ns);
  text += ",\"end\":" + std::to_string(e.end_ns) + ",\"stream\":" + std::to_string(reinterpret_cast<uintptr_t>(e.stream));
  if (e.priority != kNoPriority) text += ",\"priority\":" + std::to_string(e.priority);
  text += std::string(",\"captured\":") + (e.captured ? "true" : "false");
  text += ",\"sum\":" + std::to_string(e.sum) + ",\"value\":" + std::to_string(e.value);
  return text + ",\"result\":" + std::to_string(e.result) + "}\n";
}

std::string all_lines() {
  std::string text;
  for (size_t i = 0; i < state().log.size(); ++i) text += line_of(state().log[i], state().threads[i]);
  text += "{\"pid\":" + std::to_string(getpid()) + ",\"counts\":{";
  bool first = true;
  for (const auto& [call, times] : state().counts) {
    text += std::string(first ? "\"" : ",\"") + call + "\":" + std::to_string(times);
    first = false;
  }
  return text + "},\"sum\":" + std::to_string(state().sum) + "}\n";
}

void write_log() {
  const char* path = std::getenv("STUB_LOG");
  std::lock_guard<Lock> hold(lock);
  if (!path || !*path || state().counts.empty()) return;
  const std::string text = all_lines();
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  for (size_t done = 0; done < text.size();) {
    ssize_t wrote = write(file, text.data() + done, text.size() - done);
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  close(file);
}

void forget_log() {
  state().log.clear();
  state().threads.clear();
  state().counts.clear();
  state().sum = 0;
}

[[gnu::constructor]] void prepare() {
  state();
  pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, [] { forget_log(); lock.unlock(); });
  std::atexit(write_log);
}

}  // namespace

int thread_number() { return static_cast<int>(syscall(SYS_gettid)); }

Stream* stream_of(CUstream handle, bool per_thread) {
  if (!handle) handle = per_thread ? thread_stream() : legacy_stream();
  if (handle == legacy_stream()) {
    if (!state().legacy) state().legacy = new_stream();
    return state().legacy;
  }
  if (handle == thread_stream()) {
    Stream*& own = state().per_thread[thread_number()];
    if (!own) own = new_stream();
    return own;
  }
  return static_cast<Stream*>(handle);
}

Function* function_of(CUfunction handle) {
  auto* function = static_cast<Function*>(handle);
  return function && function->mark == kFunctionMark ? function : nullptr;
}

void note(Entry entry) {
  // The stub of CUPTI, where a test has loaded it, counts what runs.
  if (cupti_stub_note && entry.end_ns) cupti_stub_note(entry.call, entry.name.c_str(), entry.start_ns, entry.end_ns, entry.value);
  ++state().counts[entry.call];
  state().threads.push_back(thread_number());
  state().log.push_back(std::move(entry));
}

void count(const char* call) { ++state().counts[call]; }

void add_sum(uint64_t sum) { state().sum += sum; }

void wait_until(int64_t point_ns) {
  for (int64_t left; (left = point_ns - headway::now_ns()) > 0;) {
    if (left > 100000) headway::sleep_ns(left - 50000);
    else sched_yield();
  }
}

int64_t last_end() {
  int64_t last = 0;
  for (Stream* stream : state().streams)
    if (stream->end_ns > last) last = stream->end_ns;
  return last;
}

// A thread breaks its own captures unless they or it are relaxed, and those of others where both sides are global.
bool breaks_capture() {
  bool broke = false;
  const int thread = thread_number();
  for (Stream* stream : state().streams) {
    if (!stream->capturing || stream->mode == 2 || capture_mode == 2) continue;
    if (stream->thread != thread && (stream->mode == 1 || capture_mode == 1)) continue;
    stream->invalidated = broke = true;
  }
  return broke;
}

bool any_capture() {
  for (Stream* stream : state().streams)
    if (stream->capturing) return true;
  return false;
}

int exchange_capture_mode(int mode) {
  const int before = capture_mode;
  capture_mode = mode;
  return before;
}

uint64_t context_number() { return state().context; }

void* context_handle() { return reinterpret_cast<void*>(0x1000 * state().context); }

void next_context() {
  ++state().context;
  state().retained = 1;
}

void retain_context() { ++state().retained; }

void release_context() {
  if (--state().retained == 0) next_context();
}

void begin_capture(Stream* stream, int mode) {
  stream->capturing = true;
  stream->invalidated = false;
  stream->mode = mode;
  stream->thread = thread_number();
  stream->captured_ns = 0;
}

}  // namespace stub

using namespace stub;

extern "C" {

// flags: 1 a CUkernel handle, 2 a kernel whose launch fails.
CUfunction stubFunction(const char* name, int64_t work_ns, int64_t load_ns, int flags) {
  auto* function = new Function{kFunctionMark, name, work_ns, load_ns, (flags & 1) != 0, (flags & 2) != 0};
  if (function->kernel) function->inner = new Function{kFunctionMark, name, work_ns, load_ns, false, function->broken};
  return function;
}

// The same handle, another function: what may happen when a module is unloaded and another one loaded.
void stubRename(CUfunction handle, const char* name, int64_t work_ns) {
  std::lock_guard<Lock> hold(lock);
  function_of(handle)->name = name;
  function_of(handle)->work_ns = work_ns;
}

// The next launch of it takes so much longer: its code is loaded again.
void stubLoad(CUfunction handle, int64_t load_ns) {
  std::lock_guard<Lock> hold(lock);
  function_of(handle)->load_ns = load_ns;
  function_of(handle)->launches = 0;
}

CUgraphExec stubGraph(int64_t work_ns) { return new Graph{work_ns}; }

uint64_t stubSum() {
  std::lock_guard<Lock> hold(lock);
  return state().sum;
}

uint64_t stubCount(const char* call) {
  std::lock_guard<Lock> hold(lock);
  auto found = state().counts.find(call);
  return found == state().counts.end() ? 0 : found->second;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  std::lock_guard<Lock> hold(lock);
  auto* made = new_stream();
  made->priority = priority;
  made->context = state().context;
  *stream = made;
  Entry entry{"cuStreamCreateWithPriority", ""};
  entry.at_ns = headway::now_ns();
  entry.stream = made;
  entry.priority = priority;
  entry.value = flags;
  note(entry);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  std::lock_guard<Lock> hold(lock);
  auto* made = new_stream();
  made->context = state().context;
  *stream = made;
  Entry entry{"cuStreamCreate", ""};
  entry.at_ns = headway::now_ns();
  entry.stream = *stream;
  entry.value = flags;
  note(entry);
  return CUDA_SUCCESS;
}

}  // extern "C"
