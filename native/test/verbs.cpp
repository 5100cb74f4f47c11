// What the client can do.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "../clock.h"
#include "checksum.h"
#include "client.h"

namespace client {
namespace {

constexpr size_t kCopyBytes = 4 << 20;
constexpr int kTolerant = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: a launch that overlaps the one before

bool goes_on(const Asked& asked, int64_t begin, int64_t launched) {
  if (!asked.until.empty()) return launched % 16 != 0 || access(asked.until.c_str(), F_OK) != 0;
  return asked.for_ms ? headway::now_ns() - begin < asked.for_ms * 1000000 : launched < asked.launches;
}

// Launches, each followed by a pause; a request is what lies between two waits for the GPU.
Done launch_loop(const Asked& asked, const Reached& driver, const std::vector<CUfunction>& kernels, uint64_t thread) {
  Done done;
  CUstream stream = nullptr;
  if (thread) expect(&done, driver.stream_create(&stream, 1) == CUDA_SUCCESS);
  const int64_t begin = headway::now_ns();
  int64_t request = begin;
  for (int64_t i = 0; goes_on(asked, begin, i); ++i) {
    const size_t which = static_cast<size_t>(i) % kernels.size();
    expect(&done, launch_one(asked, driver, kernels[which], stream, thread << 32 | static_cast<uint64_t>(i), &done) == CUDA_SUCCESS);
    if (asked.kernels[which].first.find("nccl") != std::string::npos) ++done.nccl;
    if (asked.gap_us) pause_us(asked.gap_us);
    if (asked.sync_every && (i + 1) % asked.sync_every == 0) {
      expect(&done, driver.stream_wait(stream) == CUDA_SUCCESS);
      ++done.syncs;
      done.requests_ns.push_back(headway::now_ns() - request);
      if (asked.think_us) pause_us(asked.think_us);
      request = headway::now_ns();
    }
  }
  expect(&done, driver.context_wait() == CUDA_SUCCESS);
  ++done.syncs;
  return done;
}

Done in_threads(const Asked& asked, const Reached& driver, const Stub& stub) {
  const auto kernels = functions(asked, stub);
  std::vector<Done> each(static_cast<size_t>(asked.threads));
  std::vector<std::thread> threads;
  for (int t = 1; t < asked.threads; ++t)
    threads.emplace_back([&, t] { each[static_cast<size_t>(t)] = launch_loop(asked, driver, kernels, static_cast<uint64_t>(t)); });
  each[0] = launch_loop(asked, driver, kernels, 0);
  for (auto& thread : threads) thread.join();
  Done done;
  for (const Done& one : each) done.add(one);
  return done;
}

CUdeviceptr at(const void* memory) { return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(memory)); }

void copies(const Reached& driver, Done* done) {
  std::vector<char> from(kCopyBytes), to(kCopyBytes);
  const auto check = [&](CUresult result) {
    expect(done, result == CUDA_SUCCESS && std::memcmp(from.data(), to.data(), kCopyBytes) == 0);
    ++done->copies;
    std::memset(from.data(), static_cast<int>(done->copies), kCopyBytes);
  };
  std::memset(from.data(), 77, kCopyBytes);
  check(driver.copy_async(at(to.data()), at(from.data()), kCopyBytes, nullptr));
  check(driver.to_device_async(at(to.data()), from.data(), kCopyBytes, nullptr));
  check(driver.to_host_async(to.data(), at(from.data()), kCopyBytes, nullptr));
  check(driver.within_async(at(to.data()), at(from.data()), kCopyBytes, nullptr));
  check(driver.copy(at(to.data()), at(from.data()), kCopyBytes));
  check(driver.to_device(at(to.data()), from.data(), kCopyBytes));
  check(driver.to_host(to.data(), at(from.data()), kCopyBytes));
  check(driver.within(at(to.data()), at(from.data()), kCopyBytes));
}

// Boxes of so many bytes in all, which come out the same as a plain copy of them.
constexpr size_t kRows = 64, kWide = kCopyBytes / kRows;

void boxes(const Reached& driver, Done* done) {
  std::vector<char> from(kCopyBytes), to(kCopyBytes);
  const auto check = [&](CUresult result) {
    expect(done, result == CUDA_SUCCESS && std::memcmp(from.data(), to.data(), kCopyBytes) == 0);
    ++done->copies;
    std::memset(from.data(), static_cast<int>(done->copies), kCopyBytes);
  };
  std::memset(from.data(), 99, kCopyBytes);
  Box2D flat = {};
  flat.from_type = flat.to_type = kDeviceMemory;
  flat.from = at(from.data()), flat.to = at(to.data());
  flat.from_pitch = flat.to_pitch = flat.width = kWide, flat.height = kRows;
  Box3D deep = {};
  deep.from_type = kHostMemory, deep.to_type = kDeviceMemory;
  deep.from_host = from.data(), deep.to = at(to.data());
  deep.from_pitch = deep.to_pitch = deep.width = kWide;
  deep.from_height = deep.to_height = deep.height = kRows / 4, deep.depth = 4;
  check(driver.copy_2d_async(&flat, nullptr));
  check(driver.copy_2d(&flat));
  check(driver.copy_2d_unaligned(&flat));
  check(driver.copy_3d_async(&deep, nullptr));
  check(driver.copy_3d(&deep));
  check(driver.peer_3d_async(&deep, nullptr));
  check(driver.peer_3d(&deep));
  check(driver.peer_async(at(to.data()), nullptr, at(from.data()), nullptr, kCopyBytes, nullptr));
  check(driver.peer(at(to.data()), nullptr, at(from.data()), nullptr, kCopyBytes));
  expect(done, driver.copy_2d_async(nullptr, nullptr) != CUDA_SUCCESS);  // refused by the driver, and not copied
}

void sets(const Reached& driver, Done* done) {
  std::vector<char> to(kCopyBytes);
  const auto check = [&](CUresult result, unsigned value, size_t bytes) {
    const char* last = to.data() + kCopyBytes - bytes;
    expect(done, result == CUDA_SUCCESS && std::memcmp(to.data(), &value, bytes) == 0 && std::memcmp(last, &value, bytes) == 0);
    ++done->copies;
    std::memset(to.data(), 0, kCopyBytes);
  };
  const CUdeviceptr here = at(to.data());
  check(driver.set_8_async(here, 0xa1, kCopyBytes, nullptr), 0xa1, 1);
  check(driver.set_16_async(here, 0xa1b2, kCopyBytes / 2, nullptr), 0xa1b2, 2);
  check(driver.set_32_async(here, 0xa1b2c3d4, kCopyBytes / 4, nullptr), 0xa1b2c3d4, 4);
  check(driver.set_8(here, 0xe5, kCopyBytes), 0xe5, 1);
  check(driver.set_16(here, 0xe5f6, kCopyBytes / 2), 0xe5f6, 2);
  check(driver.set_32(here, 0xe5f60718, kCopyBytes / 4), 0xe5f60718, 4);
  check(driver.set_2d_8_async(here, kWide, 0x11, kWide, kRows, nullptr), 0x11, 1);
  check(driver.set_2d_16_async(here, kWide, 0x1122, kWide / 2, kRows, nullptr), 0x1122, 2);
  check(driver.set_2d_32_async(here, kWide, 0x11223344, kWide / 4, kRows, nullptr), 0x11223344, 4);
  check(driver.set_2d_8(here, kWide, 0x55, kWide, kRows), 0x55, 1);
  check(driver.set_2d_16(here, kWide, 0x5566, kWide / 2, kRows), 0x5566, 2);
  check(driver.set_2d_32(here, kWide, 0x55667788, kWide / 4, kRows), 0x55667788, 4);
}

// Memsets and copies of boxes in a stream, by turns; first one that is captured, and so goes nowhere.
Done move_loop(const Asked& asked, const Reached& driver, const Stub&) {
  Done done;
  CUstream stream = nullptr;
  void* graph = nullptr;
  std::vector<char> from(kCopyBytes), to(kCopyBytes);
  Box2D flat = {};
  flat.from_type = flat.to_type = kDeviceMemory;
  flat.from = at(from.data()), flat.to = at(to.data());
  flat.from_pitch = flat.to_pitch = flat.width = kWide, flat.height = kRows;
  expect(&done, driver.stream_create(&stream, 1) == CUDA_SUCCESS && driver.begin_capture(stream, 0) == CUDA_SUCCESS);
  expect(&done, driver.set_8_async(at(to.data()), 1, kCopyBytes, stream) == CUDA_SUCCESS);
  expect(&done, driver.end_capture(stream, &graph) == CUDA_SUCCESS && driver.graph_destroy(graph) == CUDA_SUCCESS);
  ++done.captured;
  for (int64_t i = 0; i < asked.launches; ++i) {
    const CUresult result = i % 2 ? driver.copy_2d_async(&flat, stream) : driver.set_32_async(at(to.data()), 7, kCopyBytes / 4, stream);
    expect(&done, result == CUDA_SUCCESS && driver.stream_wait(stream) == CUDA_SUCCESS);
    ++done.copies, ++done.syncs;
  }
  return done;
}

struct Arguments {
  uint64_t first, second;
  void* params[2];
  explicit Arguments(uint64_t seed) : first(seed), second(~seed * 3), params{&first, &second} {}
};

// A record of cuLaunchCooperativeKernelMultiDevice, as the driver has it.
struct DeviceLaunch {
  CUfunction function;
  unsigned shape[7];
  CUstream stream;
  void** params;
};

void launches_of_all_kinds(const Asked& asked, const Reached& driver, CUfunction kernel, CUstream stream, Done* done) {
  Asked ex = asked;
  ex.through_ex = true;
  launch_one(asked, driver, kernel, stream, 1, done);
  launch_one(ex, driver, kernel, stream, 2, done);
  const unsigned shape[7] = {3, 2, 1, 64, 2, 1, 512};
  Arguments arguments(3);
  done->sum += stub::launch_sum(kernel, shape, stream, arguments.params, nullptr);
  expect(done, driver.cooperative(kernel, 3, 2, 1, 64, 2, 1, 512, stream, arguments.params) == CUDA_SUCCESS);
  DeviceLaunch two[2] = {{kernel, {1, 1, 1, 32, 1, 1, 0}, stream, arguments.params},
                         {kernel, {2, 1, 1, 32, 1, 1, 0}, stream, arguments.params}};
  for (const auto& one : two) done->sum += stub::launch_sum(kernel, one.shape, stream, arguments.params, nullptr);
  expect(done, driver.multi_device(two, 2, 0) == CUDA_SUCCESS);
  // Arguments packed into one buffer.
  uint64_t packed[2] = {11, 22};
  size_t bytes = sizeof packed;
  void* extra[5] = {reinterpret_cast<void*>(uintptr_t{1}), packed, reinterpret_cast<void*>(uintptr_t{2}), &bytes, nullptr};
  done->sum += stub::launch_sum(kernel, shape, stream, nullptr, extra);
  expect(done, driver.launch(kernel, 3, 2, 1, 64, 2, 1, 512, stream, nullptr, extra) == CUDA_SUCCESS);
  done->launches += 4;
}

void graphs(const Reached& driver, const Stub& stub, CUstream stream, int times, Done* done) {
  CUgraphExec graph = stub.graph(200000);
  for (int i = 0; i < times; ++i) {
    done->sum += stub::stir(stub::stir(7, graph), stream);
    expect(done, driver.graph_launch(graph, stream) == CUDA_SUCCESS);
    ++done->graphs;
  }
  expect(done, driver.stream_wait(stream) == CUDA_SUCCESS);
  ++done->syncs;
  expect(done, driver.graph_destroy(graph) == CUDA_SUCCESS);
}

void capture(const Asked& asked, const Reached& driver, CUfunction kernel, CUstream stream, bool into, Done* done) {
  Asked quick = asked;
  int status = -1;
  void* graph = nullptr;
  if (into) expect(done, driver.begin_capture_to(stream, nullptr, nullptr, nullptr, 0, 0) == CUDA_SUCCESS);
  else expect(done, driver.begin_capture(stream, 0) == CUDA_SUCCESS);
  for (int64_t i = 0; i < asked.launches; ++i) {
    quick.through_ex = i % 2 == 1;
    const uint64_t before = done->launches;
    expect(done, launch_one(quick, driver, kernel, stream, static_cast<uint64_t>(i), done) == CUDA_SUCCESS);
    done->launches = before;
    ++done->captured;
  }
  expect(done, driver.is_capturing(stream, &status) == CUDA_SUCCESS && status == 1);
  expect(done, driver.end_capture(stream, &graph) == CUDA_SUCCESS && graph);
  expect(done, driver.is_capturing(stream, &status) == CUDA_SUCCESS && status == 0);
  if (!graph) return;
  for (int i = 0; i < 3; ++i) {
    done->sum += stub::stir(stub::stir(7, graph), stream);
    expect(done, driver.graph_launch(graph, stream) == CUDA_SUCCESS);
    ++done->graphs;
  }
  expect(done, driver.stream_wait(stream) == CUDA_SUCCESS);
  ++done->syncs;
  expect(done, driver.graph_destroy(graph) == CUDA_SUCCESS);
}

Done captures(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done = in_threads(asked, driver, stub);
  CUfunction kernel = stub.function("captured", 20000, 0, 0);
  CUstream stream = nullptr;
  expect(&done, driver.stream_create(&stream, 1) == CUDA_SUCCESS);
  capture(asked, driver, kernel, stream, false, &done);
  capture(asked, driver, kernel, stream, true, &done);
  return done;
}

Done capture_alone(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done;
  CUfunction kernel = stub.function("captured", 20000, 0, 0);
  CUstream stream = nullptr;
  expect(&done, driver.stream_create(&stream, 1) == CUDA_SUCCESS);
  capture(asked, driver, kernel, stream, false, &done);
  return done;
}

// Every entry point, in the order a program might use them.
Done every(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done;
  CUfunction kernel = stub.function("every", 20000, 0, asked.handles ? 1 : 0);
  CUstream plain = nullptr, raised = nullptr;
  CUevent event = nullptr;
  expect(&done, driver.init(0) == CUDA_SUCCESS);
  expect(&done, driver.stream_create(&plain, 1) == CUDA_SUCCESS);
  expect(&done, driver.stream_create_with(&raised, 1, -2) == CUDA_SUCCESS);
  for (int64_t i = 0; i < asked.launches; ++i)
    for (CUstream stream : {plain, raised, static_cast<CUstream>(nullptr)})
      launches_of_all_kinds(asked, driver, kernel, stream, &done);
  graphs(driver, stub, plain, 5, &done);
  graphs(driver, stub, nullptr, 5, &done);
  copies(driver, &done);
  boxes(driver, &done);
  sets(driver, &done);
  Asked few = asked;
  few.launches = 4;
  capture(few, driver, kernel, raised, false, &done);
  capture(few, driver, kernel, plain, true, &done);
  expect(&done, driver.event_create(&event, 0) == CUDA_SUCCESS && driver.event_record(event, plain) == CUDA_SUCCESS);
  expect(&done, driver.event_wait(event) == CUDA_SUCCESS && driver.stream_wait(plain) == CUDA_SUCCESS);
  expect(&done, driver.context_wait() == CUDA_SUCCESS);
  done.syncs += 3;
  void* context = nullptr;
  expect(&done, driver.context(&context) == CUDA_SUCCESS && context);
  for (int i = 0; driver.context_wait_of && i < 2; ++i, done.syncs += 2) {
    expect(&done, driver.context_wait_of(context) == CUDA_SUCCESS);
    expect(&done, driver.context_wait() == CUDA_SUCCESS);
  }
  expect(&done, driver.module_unload(nullptr) == CUDA_SUCCESS && driver.library_unload(nullptr) == CUDA_SUCCESS);
  return done;
}

// A child does the same as its parent did, and then both do it again: the parent must not notice.
Done forks(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done = in_threads(asked, driver, stub);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const Done own = in_threads(asked, driver, stub);
    std::exit(own.errors || own.sum != stub.sum() ? 7 : 0);
  }
  const pid_t idle = fork();  // one that never launches: it must take no slot
  if (idle == 0) std::exit(0);
  done.add(in_threads(asked, driver, stub));
  for (pid_t one : {child, idle}) {
    int status = 0;
    expect(&done, waitpid(one, &status, 0) == one && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  return done;
}

// Forks while other threads launch: the child must find no lock held by a thread that it does not have.
Done forks_in_threads(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done;
  std::thread other([&] { done = in_threads(asked, driver, stub); });
  Asked few = asked;
  few.launches = 20;
  few.threads = 1;
  uint64_t wrong = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(in_threads(few, driver, stub).errors ? 7 : 0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) ++wrong;
  }
  other.join();
  done.errors += wrong;
  return done;
}

// A module is unloaded, another is loaded, and its function has the same handle.
Done reloads(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done;
  CUfunction kernel = stub.function("before", 20000, 0, 0);
  for (uint64_t i = 0; i < 10; ++i) launch_one(asked, driver, kernel, nullptr, i, &done);
  expect(&done, driver.module_unload(nullptr) == CUDA_SUCCESS);
  stub.rename(kernel, "after", 50000);
  for (uint64_t i = 0; i < 10; ++i) launch_one(asked, driver, kernel, nullptr, i, &done);
  expect(&done, driver.library_unload(nullptr) == CUDA_SUCCESS);
  stub.rename(kernel, "at last", 50000);
  for (uint64_t i = 0; i < 10; ++i) launch_one(asked, driver, kernel, nullptr, i, &done);
  return done;
}

// A launch that fails in the driver fails in the program, with the same result.
Done fails(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done;
  constexpr CUresult kLaunchFailed = 719;
  CUfunction broken = stub.function("broken", 20000, 0, 2);
  Asked ex = asked;
  ex.through_ex = true;
  for (uint64_t i = 0; i < 10; ++i) {
    expect(&done, launch_one(asked, driver, broken, nullptr, i, &done) == kLaunchFailed);
    expect(&done, launch_one(ex, driver, broken, nullptr, i, &done) == kLaunchFailed);
  }
  return done;
}

Done graph_loop(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done;
  for (int64_t i = 0; i < asked.launches; i += 10) graphs(driver, stub, nullptr, 10, &done);
  return done;
}

// The table of functions that NVTX's header has in a program, and through which it calls a tool.
using Function = void (*)();
Function nvtx[16];
int nvtx_functions(int module, Function*** table, unsigned* count) {
  static Function* places[16];
  for (int i = 0; i < 16; ++i) places[i] = &nvtx[i];
  *table = places, *count = 16;
  return module == 1;
}
const void* nvtx_table(uint32_t which) {
  static const struct { size_t bytes; int (*functions)(int, Function***, unsigned*); } callbacks = {16, nvtx_functions};
  return which == 1 ? &callbacks : nullptr;
}

// Requests that the program marks, of twice as many launches as lie between its waits: by calls, then by NVTX ranges.
Done marked(const Asked& asked, const Reached& driver, const Stub& stub) {
  Done done;
  const auto kernels = functions(asked, stub);
  auto begin = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "headway_request_begin"));
  auto end = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "headway_request_end"));
  auto inject = reinterpret_cast<int (*)(const void* (*)(uint32_t))>(dlsym(RTLD_DEFAULT, "InitializeInjectionNvtx2"));
  if (inject) expect(&done, inject(nvtx_table) == 1);
  auto push = reinterpret_cast<int (*)(const char*)>(nvtx[9]);
  auto pop = reinterpret_cast<int (*)()>(nvtx[11]);
  for (int64_t i = 0; i < asked.launches; ++i) {
    const bool ranges = i % 2;
    if (begin && !ranges) begin(), begin();  // one within another is part of it
    if (push && ranges) push("other"), push("headway.request"), push("within");
    for (int half = 0; half < 2; ++half) {
      for (const CUfunction kernel : kernels)
        expect(&done, launch_one(asked, driver, kernel, nullptr, static_cast<uint64_t>(i), &done) == CUDA_SUCCESS);
      expect(&done, driver.context_wait() == CUDA_SUCCESS);
      ++done.syncs;
    }
    if (end && !ranges) end(), end(), end();  // once too often: nothing
    if (pop && ranges) pop(), pop(), pop();
  }
  return done;
}

}  // namespace

std::vector<CUfunction> functions(const Asked& asked, const Stub& stub) {
  std::vector<CUfunction> made;
  for (const auto& [name, work_ns] : asked.kernels)
    made.push_back(stub.function(name.c_str(), work_ns, asked.load_ms * 1000000, asked.handles ? 1 : 0));
  return made;
}

void expect(Done* done, bool right) {
  if (!right) ++done->errors;
}

void Done::add(const Done& other) {
  launches += other.launches, graphs += other.graphs, copies += other.copies, captured += other.captured;
  nccl += other.nccl, syncs += other.syncs, sum += other.sum, errors += other.errors;
  requests_ns.insert(requests_ns.end(), other.requests_ns.begin(), other.requests_ns.end());
}

CUresult launch_one(const Asked& asked, const Reached& driver, CUfunction function, CUstream stream, uint64_t seed, Done* done) {
  Arguments arguments(seed);
  ++done->launches;
  if (!asked.through_ex) {
    const unsigned shape[7] = {asked.grid, 1, 1, asked.block, 1, 1, 1024};
    done->sum += stub::launch_sum(function, shape, stream, arguments.params, nullptr);
    return driver.launch(function, asked.grid, 1, 1, asked.block, 1, 1, 1024, stream, arguments.params, nullptr);
  }
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = kTolerant;
  attributes[0].value.bytes[0] = 1;
  attributes[1].id = kAttributePriority;
  attributes[1].value.priority = asked.own_priority;
  const unsigned count = asked.own_priority == -1000 ? 1 : 2;
  const CUlaunchConfig config{asked.grid, 1, 1, asked.block, 1, 1, 1024, stream, attributes, count};
  done->sum += stub::config_sum(&config, function, arguments.params, nullptr);
  return driver.launch_ex(&config, function, arguments.params, nullptr);
}

void pause_us(int64_t us) {
  const int64_t until = headway::now_ns() + us * 1000;
  if (us > 200) headway::sleep_ns((us - 60) * 1000);
  while (headway::now_ns() < until) headway::pause_core();
}

Done run_verb(const Asked& asked, const Reached& driver, const Stub& stub) {
  const std::map<std::string, Done (*)(const Asked&, const Reached&, const Stub&)> verbs = {
      {"launch", in_threads}, {"capture", captures}, {"capture-alone", capture_alone}, {"every", every}, {"fork", forks},
      {"fork-threads", forks_in_threads}, {"reload", reloads}, {"fail", fails}, {"graph", graph_loop}, {"move", move_loop}, {"marked", marked}};
  const auto found = verbs.find(asked.verb);
  if (found == verbs.end()) {
    if (const Verb verb = situation(asked.verb)) return verb(asked, driver, stub);
    std::fprintf(stderr, "client: no verb %s\n", asked.verb.c_str());
    std::exit(9);
  }
  return found->second(asked, driver, stub);
}

}  // namespace client
