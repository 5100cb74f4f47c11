// A program for the tests of the shim: does as its arguments say, prints as JSON what it did.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "../clock.h"
#include "client.h"

using namespace client;

namespace {

std::pair<std::string, int64_t> kernel_of(const char* text) {
  const char* colon = std::strchr(text, ':');
  if (!colon) return {text, 20000};
  return {std::string(text, colon), std::atoll(colon + 1) * 1000};
}

Asked parse(int count, char** arguments) {
  Asked asked;
  std::map<std::string, int64_t*> numbers = {
      {"--launch", &asked.launches},        {"--for-ms", &asked.for_ms},   {"--gap-us", &asked.gap_us},
      {"--think-us", &asked.think_us},      {"--sync-every", &asked.sync_every}, {"--load-ms", &asked.load_ms},
      {"--sleep-ms", &asked.sleep_ms}};
  std::map<std::string, std::string*> texts = {{"--reach", &asked.reach}, {"--verb", &asked.verb}, {"--wait-for", &asked.wait_for},
                                               {"--until", &asked.until}};
  for (int i = 1; i < count; ++i) {
    const std::string flag = arguments[i];
    if (flag == "--handles") asked.handles = true;
    else if (flag == "--ex") asked.through_ex = true;
    else if (i + 1 == count) std::fprintf(stderr, "client: %s?\n", flag.c_str()), std::exit(9);
    else if (numbers.count(flag)) *numbers[flag] = std::atoll(arguments[++i]);
    else if (texts.count(flag)) *texts[flag] = arguments[++i];
    else if (flag == "--kernel") asked.kernels.push_back(kernel_of(arguments[++i]));
    else if (flag == "--threads") asked.threads = std::atoi(arguments[++i]);
    else if (flag == "--grid") asked.grid = static_cast<unsigned>(std::atoi(arguments[++i]));
    else if (flag == "--own-priority") asked.own_priority = std::atoi(arguments[++i]);
    else std::fprintf(stderr, "client: no flag %s\n", flag.c_str()), std::exit(9);
  }
  if (asked.kernels.empty()) asked.kernels.emplace_back("kernel", 20000);
  return asked;
}

// Runs this program again in the same process, as a launcher script does; the flag goes, the rest stays.
void again(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--exec") != 0) continue;
    const Asked asked;
    Asked first = asked;
    first.reach = "dlsym";
    first.kernels.emplace_back("first", 20000);
    run_verb(first, reach(first.reach), reach_stub());
    for (int j = i; j < count; ++j) arguments[j] = arguments[j + 1];
    execv("/proc/self/exe", arguments);
    std::exit(9);
  }
}

int64_t at_share(std::vector<int64_t>& sorted, double share) {
  return sorted.empty() ? 0 : sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

int main(int count, char** arguments) {
  again(count, arguments);
  const Asked asked = parse(count, arguments);
  const Reached driver = reach(asked.reach);
  const Stub stub = reach_stub();
  while (!asked.wait_for.empty() && access(asked.wait_for.c_str(), F_OK) != 0) headway::sleep_ns(1000000);
  const int64_t begin = headway::now_ns();
  Done done = run_verb(asked, driver, stub);
  const int64_t end = headway::now_ns();
  if (asked.sleep_ms) headway::sleep_ns(asked.sleep_ms * 1000000);
  std::sort(done.requests_ns.begin(), done.requests_ns.end());
  std::printf("{\"pid\": %d, \"launches\": %llu, \"graphs\": %llu, \"copies\": %llu, \"captured\": %llu, \"nccl\": %llu, "
              "\"syncs\": %llu, \"errors\": %llu, \"intact\": %s, \"requests\": %zu, \"p50_ns\": %lld, \"p99_ns\": %lld, "
              "\"begin_ns\": %lld, \"end_ns\": %lld}\n",
              getpid(), static_cast<unsigned long long>(done.launches), static_cast<unsigned long long>(done.graphs),
              static_cast<unsigned long long>(done.copies), static_cast<unsigned long long>(done.captured),
              static_cast<unsigned long long>(done.nccl), static_cast<unsigned long long>(done.syncs),
              static_cast<unsigned long long>(done.errors), done.sum == stub.sum() ? "true" : "false", done.requests_ns.size(),
              static_cast<long long>(at_share(done.requests_ns, 0.5)), static_cast<long long>(at_share(done.requests_ns, 0.99)),
              static_cast<long long>(begin), static_cast<long long>(end));
  return 0;
}
