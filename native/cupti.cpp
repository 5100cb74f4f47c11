#include "cupti.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "clock.h"
#include "real.h"

namespace headway {
namespace {

constexpr uint32_t kCopyRecord = 1;
constexpr uint32_t kKernelRecord = 10;  // concurrent: kernels are not put one after another
constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kMostRows = 40000000;
constexpr uint32_t kForced = 1;

// The beginning of a kernel's record, as CUpti_ActivityKernel9 (CUDA 12) and CUpti_ActivityKernel10 (CUDA 13.0) have it;
// later versions are documented to add fields.
struct KernelRecord {
  uint32_t kind;
  uint8_t cache, shared_config;
  uint16_t registers;
  int32_t partitioned[2];
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, grid) == 52, "as CUPTI has it");
static_assert(offsetof(KernelRecord, correlation) == 92 && offsetof(KernelRecord, name) == 104, "as CUPTI has it");

// The beginning of a copy's, as CUpti_ActivityMemcpy5 and 6 have it.
struct CopyRecord {
  uint32_t kind;
  uint8_t direction, from, to, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};
static_assert(offsetof(CopyRecord, start) == 16 && offsetof(CopyRecord, correlation) == 44, "as CUPTI has it");

using Request = void (*)(uint8_t**, size_t*, size_t*);
using Complete = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

struct Cupti {
  int (*register_callbacks)(Request, Complete);
  int (*enable)(uint32_t);
  int (*disable)(uint32_t);
  int (*next)(uint8_t*, size_t, void**);
  int (*flush)(uint32_t);
  int (*timestamp)(uint64_t*);
  int (*dropped)(void*, uint32_t, size_t*);
} cupti;

std::mutex collecting;
Activities* found = nullptr;
std::unordered_map<std::string, uint32_t>* named = nullptr;

template <typename F>
bool take(void* library, const char* name, F* to) {
  *to = reinterpret_cast<F>(real_dlsym()(library, name));
  return *to != nullptr;
}

bool complete_interface(void* library) {
  take(library, "cuptiActivityGetNumDroppedRecords", &cupti.dropped);
  take(library, "cuptiActivityDisable", &cupti.disable);
  return take(library, "cuptiActivityRegisterCallbacks", &cupti.register_callbacks) &&
         take(library, "cuptiActivityEnable", &cupti.enable) &&
         take(library, "cuptiActivityGetNextRecord", &cupti.next) &&
         take(library, "cuptiActivityFlushAll", &cupti.flush) && take(library, "cuptiGetTimestamp", &cupti.timestamp);
}

// --- finding the library ---------------------------------------------------------------------------------------------

struct Loaded {
  std::string cupti;
  std::vector<std::string> packages;  // site-packages folders that something was loaded from
};

int look_at(dl_phdr_info* library, size_t, void* into) {
  auto* loaded = static_cast<Loaded*>(into);
  const std::string path = library->dlpi_name ? library->dlpi_name : "";
  if (path.find("/libcupti.so") != std::string::npos) loaded->cupti = path;
  const size_t at = path.find("/site-packages/");
  const size_t other = path.find("/dist-packages/");
  const size_t folder = at != std::string::npos ? at : other;
  if (folder != std::string::npos) {
    const std::string place = path.substr(0, folder + 14);
    if (loaded->packages.empty() || loaded->packages.back() != place) loaded->packages.push_back(place);
  }
  return 0;
}

void add_matching(const std::string& pattern, std::vector<std::string>* to) {
  glob_t matching{};
  if (glob(pattern.c_str(), 0, nullptr, &matching) == 0)
    for (size_t i = matching.gl_pathc; i > 0; --i) to->push_back(matching.gl_pathv[i - 1]);  // newest version first
  globfree(&matching);
}

std::vector<std::string> candidates() {
  Loaded loaded;
  dl_iterate_phdr(look_at, &loaded);
  std::vector<std::string> all;
  if (!loaded.cupti.empty()) all.push_back(loaded.cupti);  // the program's own: never two of them in a process
  for (const std::string& place : loaded.packages) add_matching(place + "/nvidia/*/lib/libcupti.so*", &all);
  for (const char* name : {"libcupti.so", "libcupti.so.13", "libcupti.so.12"}) all.push_back(name);
  for (const char* folder : {"/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"})
    add_matching(std::string(folder) + "/libcupti.so*", &all);
  return all;
}

void* open_library(std::string* path, std::string* why) {
  const char* given = std::getenv("HEADWAY_CUPTI");
  if (given && std::strcmp(given, "off") == 0) {
    *why = "HEADWAY_CUPTI=off";
    return nullptr;
  }
  std::vector<std::string> all;
  if (given && *given) all.push_back(given);
  else all = candidates();
  for (const std::string& each : all) {
    void* library = dlopen(each.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    if (complete_interface(library)) {
      *path = each;
      return library;
    }
    dlclose(library);
  }
  *why = given && *given ? std::string(given) + " cannot be loaded" : "libcupti.so was not found (HEADWAY_CUPTI names it)";
  return nullptr;
}

// --- collecting ------------------------------------------------------------------------------------------------------

void request(uint8_t** buffer, size_t* bytes, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *records = 0;
}

uint32_t number(const char* name) {
  auto made = named->emplace(name ? name : "unnamed", static_cast<uint32_t>(named->size()));
  if (made.second) found->names.append(made.first->first).push_back('\0');
  return made.first->second;
}

void add(const void* record) {
  uint32_t kind;
  std::memcpy(&kind, record, sizeof kind);
  TraceActivity row{};
  row.kind = kind;
  if (kind == kKernelRecord) {
    KernelRecord k;
    std::memcpy(&k, record, sizeof k);
    row.start = k.start, row.end = k.end, row.correlation = k.correlation, row.stream = k.stream;
    row.bytes = static_cast<uint64_t>(k.dynamic_shared);
    std::memcpy(row.grid, k.grid, sizeof row.grid);
    std::memcpy(row.block, k.block, sizeof row.block);
    row.name = number(k.name);
  } else if (kind == kCopyRecord) {
    CopyRecord c;
    std::memcpy(&c, record, sizeof c);
    row.start = c.start, row.end = c.end, row.correlation = c.correlation, row.stream = c.stream;
    row.bytes = c.bytes;
    row.name = number("copy");
  } else {
    return;
  }
  // A kernel that had not ended when its record was taken has no times.
  if (row.start == 0 || row.end < row.start || found->rows.size() >= kMostRows) ++found->dropped;
  else found->rows.push_back(row);
}

void complete(void* context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  {
    std::lock_guard<std::mutex> lock(collecting);
    void* record = nullptr;
    while (found && valid && cupti.next(buffer, valid, &record) == 0) add(record);
    size_t lost = 0;
    if (found && cupti.dropped && cupti.dropped(context, stream, &lost) == 0) found->dropped += lost;
  }
  std::free(buffer);
}

// Both clocks at one moment: of a few tries the one whose two readings of ours lie closest together.
TraceClock both_clocks() {
  TraceClock best{};
  int64_t least = INT64_MAX;
  for (int i = 0; i < 32; ++i) {
    uint64_t theirs = 0;
    const int64_t before = now_ns();
    if (cupti.timestamp(&theirs) != 0) break;
    const int64_t after = now_ns();
    if (after - before < least) {
      least = after - before;
      best = TraceClock{before + (after - before) / 2, theirs};
    }
  }
  return best;
}

}  // namespace

std::string cupti_begin(std::string* why) {
  std::string path;
  if (!open_library(&path, why)) return "";
  {
    std::lock_guard<std::mutex> lock(collecting);
    // never freed: CUPTI may hand over a buffer while the process ends
    if (!named) named = new std::unordered_map<std::string, uint32_t>;
    named->clear();
    delete found;
    found = new Activities;
  }
  const int registered = cupti.register_callbacks(request, complete);
  const int kernels = registered ? registered : cupti.enable(kKernelRecord);
  if (kernels != 0) {
    *why = path + " refuses (error " + std::to_string(kernels) + "; another profiler may be attached)";
    return "";
  }
  cupti.enable(kCopyRecord);
  const TraceClock clock = both_clocks();
  std::lock_guard<std::mutex> lock(collecting);
  found->clocks.push_back(clock);
  return path;
}

Activities cupti_end() {
  if (!cupti.flush) return {};
  const TraceClock clock = both_clocks();
  cupti.flush(0);
  cupti.flush(kForced);
  if (cupti.disable) {
    cupti.disable(kKernelRecord);
    cupti.disable(kCopyRecord);
  }
  std::lock_guard<std::mutex> lock(collecting);
  if (!found) return {};
  Activities taken;
  std::swap(taken, *found);
  delete found;
  found = nullptr;
  taken.clocks.push_back(clock);
  return taken;
}

}  // namespace headway
