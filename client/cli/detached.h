#pragma once

#include <functional>
#include <string>

namespace cohort::cli {

// Runs `run` as a process in a session of its own, and returns when it has
// called its argument, with 0, or when it has ended, with its exit code.  Until
// then it writes to this terminal, afterwards to `log`.
// REQUIRES: this process has one thread.
int RunDetached(const std::string& log,
                const std::function<int(std::function<void()> ready)>& run);

}  // namespace cohort::cli
