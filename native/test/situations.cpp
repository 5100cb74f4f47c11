// What programs do that is hard on a gate: threads that wait for one another's work, streams that overlap, captures beside
// launches, more shapes than there is room for, contexts that go, an exit while threads still launch.
#include <atomic>
#include <map>
#include <thread>

#include "../clock.h"
#include "checksum.h"
#include "client.h"

namespace client {
namespace {

constexpr size_t kCopyBytes = 2 << 20;
constexpr int kGlobal = 0;

// A stream of its own and launches into it that are all right.
struct Lane {
  const Asked& asked;
  const Reached& driver;
  Done done;
  CUstream stream = nullptr;
  uint64_t seed = 0;

  Lane(const Asked& what, const Reached& reached, bool own) : asked(what), driver(reached) {
    if (own) expect(&done, driver.stream_create(&stream, 1) == CUDA_SUCCESS);
  }
  void launch(CUfunction kernel, int64_t times = 1) {
    for (int64_t i = 0; i < times; ++i) expect(&done, launch_one(asked, driver, kernel, stream, ++seed, &done) == CUDA_SUCCESS);
  }
  void wait() {
    expect(&done, driver.stream_wait(stream) == CUDA_SUCCESS);
    ++done.syncs;
  }
};

Done together(std::initializer_list<const Lane*> lanes) {
  Done done;
  for (const Lane* lane : lanes) done.add(lane->done);
  return done;
}

void until_counted(const Stub& stub, const char* call) {
  while (!stub.count(call)) headway::sleep_ns(1000000);
}

// The first kernel is learnt, and then does not end for eight seconds; a thread launches the second one elsewhere.
Done stuck(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane one(asked, driver, true), other(asked, driver, true);
  other.launch(kernels[1], 10);
  other.wait();
  for (int i = 0; asked.think_us && i < 4; ++i) {  // known for what it was until now
    one.launch(kernels[0]);
    one.wait();
  }
  stub.rename(kernels[0], asked.kernels[0].first.c_str(), 8000000000);
  one.launch(kernels[0]);
  std::thread thread([&] {
    for (int i = 0; i < 4; ++i) {
      headway::sleep_ns(20000000);
      other.launch(kernels[1]);
    }
  });
  one.launch(kernels[1], 3);
  thread.join();
  return together({&one, &other});
}

// A copy that waits for a kernel of three seconds, and a launch of another thread meanwhile.
Done behind_copy(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane legacy(asked, driver, false), other(asked, driver, true);
  other.launch(kernels[0], 10);
  other.wait();
  legacy.launch(stub.function("slow", 3000000000, 0, 0));
  std::thread thread([&] {
    std::vector<char> from(kCopyBytes), to(kCopyBytes);
    const auto at = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(to.data()));
    expect(&legacy.done, driver.to_device(at, from.data(), kCopyBytes) == CUDA_SUCCESS);
    ++legacy.done.copies;
  });
  until_counted(stub, "cuMemcpyHtoD_v2");
  other.launch(kernels[0], 3);
  thread.join();
  return together({&legacy, &other});
}

// A launch that stays in the driver for two seconds, and launches of another thread meanwhile.
Done behind_launch(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane one(asked, driver, true), other(asked, driver, true);
  other.launch(kernels[0], 10);
  other.wait();
  std::thread thread([&] { one.launch(stub.function("lazy", 20000, 2000000000, 0)); });
  until_counted(stub, "loading");
  other.launch(kernels[0], 3);
  thread.join();
  return together({&one, &other});
}

// Captures in one thread while another launches, and waits in the gate, all the time.
Done beside_captures(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane launching(asked, driver, true), capturing(asked, driver, true);
  std::atomic<bool> over{false};
  launching.launch(kernels[0], 5);
  std::thread thread([&] {
    while (!over) launching.launch(kernels[0]);
  });
  for (int64_t i = 0; i < asked.launches; ++i) {
    Done& done = capturing.done;
    void* graph = nullptr;
    headway::sleep_ns(1000000);
    expect(&done, driver.begin_capture(capturing.stream, kGlobal) == CUDA_SUCCESS);
    headway::sleep_ns(2000000);
    capturing.launch(kernels[0]);
    --done.launches;
    ++done.captured;
    expect(&done, driver.end_capture(capturing.stream, &graph) == CUDA_SUCCESS && graph);
    if (graph) expect(&done, driver.graph_destroy(graph) == CUDA_SUCCESS);
  }
  over = true;
  thread.join();
  return together({&launching, &capturing});
}

// The first kernel in as many shapes as asked for, the others each in fifty more.
Done shapes(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Asked shaped = asked;
  Lane lane(shaped, driver, true);
  for (int64_t i = 0; i < asked.launches; ++i) {
    shaped.grid = static_cast<unsigned>(i + 1);
    lane.launch(kernels[0]);
  }
  lane.wait();
  for (size_t which = 1; which < kernels.size(); ++which)
    for (unsigned i = 0; i < 50; ++i) {
      shaped.grid = 100000 + i;
      lane.launch(kernels[which]);
      lane.wait();
    }
  return together({&lane});
}

// Two streams whose work overlaps; it waits for the one, then for the other.
Done two_streams(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane one(asked, driver, true), other(asked, driver, true);
  for (int64_t i = 0; i < asked.launches; ++i) {
    one.launch(kernels[0], 2);
    other.launch(kernels[0], 2);
    one.wait();
    other.wait();
  }
  return together({&one, &other});
}

// Waits for an event that lies before the last kernel: that one still runs.
Done old_event(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane lane(asked, driver, true);
  CUevent event = nullptr;
  expect(&lane.done, driver.event_create(&event, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 6; ++i)
    for (CUfunction kernel : kernels) {
      lane.launch(kernel);
      lane.wait();
    }
  lane.launch(kernels[0], 2);
  expect(&lane.done, driver.event_record(event, lane.stream) == CUDA_SUCCESS);
  lane.launch(kernels[1]);
  expect(&lane.done, driver.event_wait(event) == CUDA_SUCCESS);
  ++lane.done.syncs;
  return together({&lane});
}

// Little for a while, then a lot at once.
Done flood(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane lane(asked, driver, true);
  for (CUfunction kernel : kernels) lane.launch(kernel, 4);
  const int64_t begin = headway::now_ns();
  while (headway::now_ns() - begin < asked.for_ms * 1000000) {
    lane.launch(kernels[0]);
    headway::sleep_ns(50000000);
  }
  lane.launch(kernels[1], asked.launches);
  return together({&lane});
}

// A context goes, and another comes: three ways, with work in flight each time.
Done contexts(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Done done;
  for (int way = 0; way < 4; ++way) {
    Lane lane(asked, driver, true);
    lane.launch(kernels[0], asked.launches / 2);
    lane.wait();
    lane.launch(kernels[0], asked.launches / 2);
    void* context = nullptr;
    expect(&done, driver.context(&context) == CUDA_SUCCESS && context);
    if (way == 0) expect(&done, driver.context_destroy(context) == CUDA_SUCCESS);
    if (way == 1) expect(&done, driver.primary_reset(0) == CUDA_SUCCESS);
    if (way == 2) expect(&done, driver.primary_release(0) == CUDA_SUCCESS);
    done.add(lane.done);
  }
  return done;
}

// A context goes while a launch into it is in the driver; another comes, and is launched into.
Done across(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Done done;
  for (uint64_t way = 0; way < 3; ++way) {
    Lane old(asked, driver, true);
    old.launch(kernels[0], asked.launches);
    old.wait();
    void* context = nullptr;
    expect(&done, driver.context(&context) == CUDA_SUCCESS && context);
    std::thread thread([&] {
      old.launch(kernels[0], 5);  // known to this thread, so that it is timed
      old.wait();
      stub.load(kernels[0], 100000000);
      old.launch(kernels[0]);
    });
    while (stub.count("loading") <= way) headway::sleep_ns(1000000);
    if (way == 0) expect(&done, driver.context_destroy(context) == CUDA_SUCCESS);
    if (way == 1) expect(&done, driver.primary_reset(0) == CUDA_SUCCESS);
    if (way == 2) expect(&done, driver.primary_release(0) == CUDA_SUCCESS);
    thread.join();
    expect(&done, driver.primary_retain(&context, 0) == CUDA_SUCCESS && context);
    Lane lane(asked, driver, true);
    lane.launch(kernels[0], asked.launches);
    lane.wait();
    if (way < 2) expect(&done, driver.primary_release(0) == CUDA_SUCCESS);
    done.add(together({&old, &lane}));
  }
  return done;
}

// Launches into the default stream of whatever context is there, while contexts go and come; then a few into the last one, which stays.
Done beside_resets(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane launching(asked, driver, false), going(asked, driver, false);
  std::atomic<bool> over{false};
  launching.launch(kernels[0], 5);
  std::thread thread([&] {
    while (!over) launching.launch(kernels[0]);
  });
  for (int64_t i = 0; i < asked.launches; ++i) {
    headway::sleep_ns(2000000);
    expect(&going.done, driver.primary_reset(0) == CUDA_SUCCESS);
  }
  over = true;
  thread.join();
  for (int i = 0; i < 10; ++i) {
    launching.launch(kernels[0]);
    launching.wait();
  }
  return together({&launching, &going});
}

// The primary context is retained and released again and again, and stays there all the time.
Done retained(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  Lane lane(asked, driver, true);
  for (int64_t i = 0; i < asked.launches; ++i) {
    void* context = nullptr;
    expect(&lane.done, driver.primary_retain(&context, 0) == CUDA_SUCCESS && context);
    lane.launch(kernels[0], 10);
    expect(&lane.done, driver.primary_release(0) == CUDA_SUCCESS);
  }
  lane.wait();
  return together({&lane});
}

struct Slow {
  bool on = false;
  ~Slow() {
    if (on) headway::sleep_ns(600000000);
  }
} slow;

// The process takes its time to exit, and a thread of it launches until it is gone.
Done exits(const Asked& asked, const Reached& driver, const Stub& stub) {
  static const auto& kept = *new Asked(asked);  // never destroyed: the thread outlives them
  static const Reached reached = driver;
  static const auto& kernels = *new std::vector<CUfunction>(functions(asked, stub));
  static std::atomic<uint64_t> launched{0};
  std::thread([] {
    for (Done own;; pause_us(100)) launch_one(kept, reached, kernels[0], nullptr, ++launched, &own);
  }).detach();
  while (launched < 200) headway::sleep_ns(1000000);
  slow.on = true;
  return Done{};
}

}  // namespace

Verb situation(const std::string& name) {
  const std::map<std::string, Verb> all = {
      {"stuck", stuck},     {"behind-copy", behind_copy}, {"behind-launch", behind_launch}, {"beside-captures", beside_captures},
      {"shapes", shapes},   {"two-streams", two_streams}, {"old-event", old_event},         {"flood", flood},
      {"contexts", contexts}, {"across", across},         {"retained", retained},           {"beside-resets", beside_resets},
      {"exit", exits}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace client
