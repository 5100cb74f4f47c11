// A pass that is granted on a look: a launch above that came after that look, and before the pass was there, ends it.
#include "../pass.h"

#include <cstdio>

int main() {
  using namespace headway;
  static Slot own, above, beside;
  own.priority.store(5);
  beside.priority.store(5);
  Slot* others[] = {&beside, &above};
  const auto taken = [&](int64_t seen_ns, int64_t launched_ns) {
    Pass pass;
    const int64_t seen[] = {0, seen_ns};
    above.pulse.launch_ns.store(launched_ns);
    beside.pulse.launch_ns.store(77);  // who is not above ends nothing
    pass.grant(own, others, seen, 2, 1000, 0, 1000);
    return pass.take(own, 10, 500);
  };
  std::printf("%d %d\n", taken(100, 100), taken(100, 101));
  return 0;
}
