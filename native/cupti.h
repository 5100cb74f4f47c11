// CUPTI's activity records, as exact as the GPU gives them. Nothing of CUPTI is needed to build: it is loaded when it
// is wanted, and where it is missing there are no records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace.h"

namespace headway {

struct Activities {
  std::vector<TraceActivity> rows;
  std::string names;               // a zero byte after each
  std::vector<TraceClock> clocks;  // at the start and at the end
  uint64_t dropped = 0;            // by CUPTI, or without a start or an end
};

// Begin to collect. Returns the library's path, or "" and why not.
std::string cupti_begin(std::string* why);

// End it, and take what was collected.
Activities cupti_end();

}  // namespace headway
