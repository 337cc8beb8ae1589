#pragma once

#include <optional>

namespace cohort::head {

// What cohort-head does with files alone, without serving: `inspect`,
// `check`, `restore` and `check-cluster-file`.  Gives the exit code; nothing
// when the command line names neither.
std::optional<int> RunOffline(int argc, const char* const* argv);

}  // namespace cohort::head
