// The bookkeeping of work in flight by itself, over a driver that is told what has ended: for a test that compares it with
// the one of the simulation. A line in, a line out.
#include "../flight.cpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace headway {

Driver& driver() {
  static Driver only;
  return only;
}

void* driver_function(const char*) { return nullptr; }

uint32_t tenure() { return 0; }

}  // namespace headway

namespace {

std::map<void*, long> left_at;
long number = 0, finished = 0, made = 0;

CUresult create(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(++made);
  return CUDA_SUCCESS;
}

CUresult record(CUevent event, CUstream) {
  left_at[event] = number;
  return CUDA_SUCCESS;
}

CUresult query(CUevent event) { return left_at[event] < finished ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }

}  // namespace

int main() {
  using namespace headway;
  driver().event_create.at = reinterpret_cast<void*>(create);
  driver().event_record.at = reinterpret_cast<void*>(record);
  driver().event_query.at = reinterpret_cast<void*>(query);
  auto* slot = static_cast<Slot*>(std::aligned_alloc(alignof(Slot), sizeof(Slot)));
  std::memset(static_cast<void*>(slot), 0, sizeof(Slot));
  slot->rules.gate.store(1);
  auto* flight = new Flight;
  auto* share = new Share;
  share->slot.set(slot);
  char what;
  long a, b, c, d;
  while (std::scanf(" %c %ld %ld %ld %ld", &what, &a, &b, &c, &d) == 5) {
    long answer = 0;
    if (what == 'N') *flight = Flight{}, number = finished = 0;
    if (what == 'L') number = a, flight->end(Known{}, nullptr, nullptr, nullptr, b, c, d, false);
    if (what == 'C') finished = b, flight->collect(*share, a);
    if (what == 'E') answer = flight->end_ns(a, b);
    if (what == 'O') answer = flight->overdue(a, b);
    std::printf("%ld\n", answer);
  }
}
