// Marks come by two ways: the functions below (`with headway.request():` calls them), or an NVTX range of the name
// "headway.request", where NVTX_INJECTION64_PATH names this library.
#include "spans.h"

#include <cstddef>
#include <cstring>

#include "clock.h"
#include "identity.h"
#include "share.h"

#define HEADWAY_EXPORT extern "C" __attribute__((visibility("default")))

namespace headway {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr const char* kRange = "headway.request";
constexpr uint32_t kRanges = 64;  // NVTX ranges within each other that are told apart

struct Request {
  uint32_t depth, launches;
  int64_t begin_ns, waited_ns;
  uint64_t kind;
  uint32_t ranges;
  uint64_t ours;  // of the ranges within each other: a bit for each that is a request
};
thread_local Request request __attribute__((tls_model("initial-exec"))) = {};

void begin_request() {
  if (request.depth++) return;  // requests within a request are part of it
  request.begin_ns = now_ns();
  request.waited_ns = 0;
  request.launches = 0;
  request.kind = 0;
}

void end_request() {
  if (!request.depth || --request.depth || !request.launches) return;
  const int64_t now = now_ns();
  if (Slot* slot = share().slot)  // it has launched: it has joined, if it can
    record_span(slot, request.begin_ns, now, now - request.begin_ns - request.waited_ns, request.launches, request.kind, true);
}

}  // namespace

void record_span(Slot* slot, int64_t begin_ns, int64_t end_ns, int64_t cpu_ns, uint32_t launches, uint64_t kind, bool marked) {
  const uint64_t at = slot->ledger.spans.fetch_add(1, relaxed);
  Span& span = slot->spans[at % kSpans];
  span.number.store(0, std::memory_order_release);
  span.begin_ns.store(begin_ns, relaxed);
  span.end_ns.store(end_ns, relaxed);
  span.cpu_ns.store(cpu_ns, relaxed);
  span.launches.store(launches, relaxed);
  span.kind.store(static_cast<uint32_t>(kind ^ kind >> 32), relaxed);
  span.marked.store(marked, relaxed);
  span.number.store(static_cast<uint32_t>(at + 1), std::memory_order_release);
  if (marked) slot->ledger.marked.fetch_add(1, relaxed);
}

void launch_in_request(uint64_t kernel) {
  if (!request.depth) return;
  request.launches += 1;
  request.kind = mix(request.kind, kernel);
}

void wait_in_request(int64_t began_ns, int64_t now_ns) {
  if (request.depth) request.waited_ns += now_ns - (began_ns > request.begin_ns ? began_ns : request.begin_ns);
}

}  // namespace headway

using namespace headway;

HEADWAY_EXPORT void headway_request_begin() { begin_request(); }
HEADWAY_EXPORT void headway_request_end() { end_request(); }

// --- NVTX ---------------------------------------------------------------------------------------------------------------
// The interface of NVTX 3 to a tool, as its headers have it: a table of pointers to the functions that a program calls.

namespace {

struct Attributes {  // of a range; the message is at the same place in every version
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};
constexpr int32_t kAscii = 1;

using Function = void (*)();
struct Callbacks {
  size_t bytes;
  int (*functions)(int module, Function*** table, unsigned* count);
};
constexpr uint32_t kCallbacks = 1;
constexpr int kCore = 1;
constexpr unsigned kPushEx = 8, kPushAscii = 9, kPushWide = 10, kPop = 11;

int push(const char* text) {
  const uint32_t at = request.ranges++;
  if (at >= kRanges) return static_cast<int>(at);
  const bool ours = text && std::strcmp(text, kRange) == 0;
  const uint64_t bit = uint64_t{1} << at;
  request.ours = ours ? request.ours | bit : request.ours & ~bit;
  if (ours) begin_request();
  return static_cast<int>(at);
}

int push_ex(const Attributes* about) {
  return push(about && about->message_type == kAscii ? about->message : nullptr);
}

int push_wide(const wchar_t*) { return push(nullptr); }

int pop() {
  if (!request.ranges) return -1;
  const uint32_t at = --request.ranges;
  if (at < kRanges && request.ours >> at & 1) end_request();
  return static_cast<int>(at);
}

}  // namespace

HEADWAY_EXPORT int InitializeInjectionNvtx2(const void* (*table_of)(uint32_t)) {
  auto callbacks = static_cast<const Callbacks*>(table_of(kCallbacks));
  Function** table = nullptr;
  unsigned count = 0;
  if (!callbacks || callbacks->bytes < sizeof(Callbacks) || !callbacks->functions(kCore, &table, &count)) return 0;
  if (!table || count <= kPop) return 0;
  *table[kPushEx] = reinterpret_cast<Function>(&push_ex);
  *table[kPushAscii] = reinterpret_cast<Function>(&push);
  *table[kPushWide] = reinterpret_cast<Function>(&push_wide);
  *table[kPop] = reinterpret_cast<Function>(&pop);
  return 1;
}
