#include "common/testing/seed.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"

#include "common/check.h"
#include "common/random.h"

namespace cohort {

uint64_t TestSeed() {
  uint64_t seed = SystemRandom().Uint64();
  if (const char* text = std::getenv("COHORT_SEED")) {
    COHORT_CHECK(absl::SimpleAtoi(text, &seed))
        << "COHORT_SEED is a number, not " << text;
  }
  std::printf("replay with COHORT_SEED=%llu\n",
              static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace cohort
