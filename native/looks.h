// A tape of looks and verdicts, for the proof that this reflex and the Python one agree: HEADWAY_LOOKS=FILE.
#pragma once

#include "decide.h"

namespace headway {

void record_look(const Look& look, const Verdict& verdict);

}  // namespace headway
