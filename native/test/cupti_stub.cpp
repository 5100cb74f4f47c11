// A CUPTI for tests: a library of the same functions, whose kernels are those that a test or a stub driver reports to it
// with cupti_stub_kernel and cupti_stub_copy. Its clock runs an hour ahead of the machine's, so that a reader who forgets
// to align the two sees it. CUPTI_STUB_REFUSE=1: another profiler is attached.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kAhead = 3600000000000ull;
constexpr size_t kKernelBytes = 208, kCopyBytes = 80;

using Request = void (*)(uint8_t**, size_t*, size_t*);
using Complete = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

std::mutex mutex;
Request request_buffer;
Complete complete_buffer;
bool kernels_on, copies_on;
std::vector<uint8_t> pending;

template <typename T>
void put(uint8_t* record, size_t at, T value) {
  std::memcpy(record + at, &value, sizeof value);
}

size_t bytes_of(const uint8_t* record) {
  uint32_t kind;
  std::memcpy(&kind, record, sizeof kind);
  return kind == 10 ? kKernelBytes : kCopyBytes;
}

}  // namespace

extern "C" {

int cuptiActivityRegisterCallbacks(Request request, Complete complete) {
  if (std::getenv("CUPTI_STUB_REFUSE")) return 39;
  request_buffer = request;
  complete_buffer = complete;
  return 0;
}

int cuptiActivityEnable(uint32_t kind) {
  std::lock_guard<std::mutex> lock(mutex);
  if (kind == 10) kernels_on = true;
  if (kind == 1) copies_on = true;
  return 0;
}

int cuptiActivityDisable(uint32_t kind) {
  std::lock_guard<std::mutex> lock(mutex);
  if (kind == 10) kernels_on = false;
  if (kind == 1) copies_on = false;
  return 0;
}

int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, void** record) {
  auto* at = static_cast<uint8_t*>(*record);
  at = at ? at + bytes_of(at) : buffer;
  if (at >= buffer + valid) return 12;
  *record = at;
  return 0;
}

int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  *dropped = 0;
  return 0;
}

int cuptiGetTimestamp(uint64_t* now) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *now = static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec) + kAhead;
  return 0;
}

int cuptiActivityFlushAll(uint32_t) {
  std::vector<uint8_t> all;
  {
    std::lock_guard<std::mutex> lock(mutex);
    all.swap(pending);
  }
  size_t at = 0;
  while (at < all.size()) {
    uint8_t* buffer = nullptr;
    size_t room = 0, records = 0, used = 0;
    request_buffer(&buffer, &room, &records);
    if (!buffer) return 0;
    while (at < all.size() && used + bytes_of(&all[at]) <= room) {
      const size_t bytes = bytes_of(&all[at]);
      std::memcpy(buffer + used, &all[at], bytes);
      used += bytes;
      at += bytes;
    }
    complete_buffer(nullptr, 0, buffer, room, used);
  }
  return 0;
}

// A kernel that ran, by the machine's clock.
void cupti_stub_kernel(uint32_t correlation, const char* name, int64_t start_ns, int64_t end_ns, const int32_t* grid,
                       const int32_t* block, int32_t shared_bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!kernels_on) return;
  uint8_t record[kKernelBytes] = {};
  put<uint32_t>(record, 0, 10);
  put<uint64_t>(record, 16, start_ns ? static_cast<uint64_t>(start_ns) + kAhead : 0);
  put<uint64_t>(record, 24, end_ns ? static_cast<uint64_t>(end_ns) + kAhead : 0);
  put<uint32_t>(record, 48, 7);
  for (size_t i = 0; i < 3; ++i) {
    put<int32_t>(record, 52 + 4 * i, grid[i]);
    put<int32_t>(record, 64 + 4 * i, block[i]);
  }
  put<int32_t>(record, 80, shared_bytes);
  put<uint32_t>(record, 92, correlation);
  put<const char*>(record, 104, name);
  pending.insert(pending.end(), record, record + sizeof record);
}

void cupti_stub_copy(uint32_t correlation, uint64_t bytes, int64_t start_ns, int64_t end_ns) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!copies_on) return;
  uint8_t record[kCopyBytes] = {};
  put<uint32_t>(record, 0, 1);
  put<uint64_t>(record, 8, bytes);
  put<uint64_t>(record, 16, static_cast<uint64_t>(start_ns) + kAhead);
  put<uint64_t>(record, 24, static_cast<uint64_t>(end_ns) + kAhead);
  put<uint32_t>(record, 44, correlation);
  pending.insert(pending.end(), record, record + sizeof record);
}

// A call of the stub driver (native/test/stub_state.cpp) that ran something. It names no shape: readers go by the order.
void cupti_stub_note(const char* call, const char* name, int64_t start_ns, int64_t end_ns, int64_t bytes) {
  static std::atomic<uint32_t> correlation{0};
  static const int32_t shape[3] = {1, 1, 1};
  if (std::strncmp(call, "cuLaunch", 8) && std::strncmp(call, "cuGraphLaunch", 13) && std::strncmp(call, "cuMemcpy", 8)) return;
  // The kernels of one call on several devices have its number: the stub's clients call it for two.
  static std::atomic<uint32_t> of_several{0};
  const bool second = std::strstr(call, "MultiDevice") && of_several.fetch_add(1) % 2 == 1;
  const uint32_t number = second ? correlation.load() : correlation.fetch_add(1) + 1;
  if (!std::strncmp(call, "cuMemcpy", 8)) {
    cupti_stub_copy(number, static_cast<uint64_t>(bytes), start_ns, end_ns);
    return;
  }
  static std::set<std::string>* names = new std::set<std::string>;  // a record holds a pointer to its name
  const char* kept = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    kept = names->insert(name).first->c_str();
  }
  cupti_stub_kernel(number, kept, start_ns, end_ns, shape, shape, 0);
}

}  // extern "C"
