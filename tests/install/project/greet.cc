// A program of somebody else's: it needs nothing but find_package(cohort).

#include <iostream>

#include "common/build_info.h"
#include "common/duration_text.h"

int main() {
  const absl::StatusOr<absl::Duration> wait = cohort::ParseDuration("1m30s");
  if (!wait.ok()) {
    std::cerr << wait.status() << "\n";
    return 1;
  }
  std::cout << "cohort " << cohort::GetBuildInfo().version << " waits "
            << cohort::DurationToText(*wait) << "\n";
  return 0;
}
