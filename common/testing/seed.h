#pragma once

#include <cstdint>

namespace cohort {

// The seed of a randomised test: COHORT_SEED when set, else a fresh one.
// Prints the line that replays the test.
uint64_t TestSeed();

}  // namespace cohort
