#include "examples/program.h"

#include <cerrno>
#include <iostream>

namespace cohort::examples {
namespace {

constexpr int kExitFailure = 1;

void Tell(const absl::Status& status) {
  std::cerr << program_invocation_short_name << ": " << status.message()
            << std::endl;
}

}  // namespace

void Say(absl::string_view line) { std::cout << line << std::endl; }

int ExitCodeOf(const absl::Status& done) {
  if (done.ok()) return 0;
  Tell(done);
  const bool bad_value =
      absl::IsInvalidArgument(done) || absl::IsNotFound(done);
  return bad_value ? kExitUsage : kExitFailure;
}

}  // namespace cohort::examples
