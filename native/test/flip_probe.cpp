// What is reckoned of a kernel while another thread changes its row all the time: every answer is within its bounds, and
// nothing is divided by a value that was read twice.
#include "../identity.cpp"

#include <cstdio>
#include <thread>

namespace headway {

Driver& driver() {
  static Driver only;
  return only;
}

void* driver_function(const char*) { return nullptr; }

}  // namespace headway

int main() {
  using namespace headway;
  constexpr auto relaxed = std::memory_order_relaxed;
  static Kernel kernel;
  static Step step;
  std::atomic<bool> over{false};
  std::thread flipping([&] {
    for (uint32_t i = 0; !over.load(relaxed); ++i) {
      for (uint32_t fit : {0u, 4u, 0u, 0xffffffffu}) kernel.per_sm.store(fit, relaxed);
      kernel.blocks.store(i % 5 ? 1000 : 0xffffffffu, relaxed);
      kernel.varied.store(i & 1, relaxed);
      kernel.work_ns.store(i % 3 ? 0 : INT64_MIN + i % 3, relaxed);
      kernel.longest_ns.store(i % 2 ? INT64_MAX : -1, relaxed);
      step.work_ns.store(i % 4 ? i : 0, relaxed);
    }
  });
  long wrong = 0;
  for (int i = 0; i < 5000000; ++i) {
    const Sms sms = sms_of(i % 3 ? 0xffffffffu : i & 1, i % 2 ? static_cast<uint32_t>(i) : 0);
    const int64_t fill = predicted_ns(&kernel, &step), wave = wave_ns(&kernel, fill, sms);
    const int64_t width = width_ppm(&kernel, sms);
    wrong += fill <= 0 || fill > 60000000000 || wave <= 0 || wave > fill + 1 || width < 0 || width > 1000000;
    if (i % 64 == 0) learn(&kernel, &step, 5000);
  }
  over.store(true);
  flipping.join();
  std::printf("%ld\n", wrong);
  return wrong != 0;
}
