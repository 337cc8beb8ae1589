#pragma once

#include <functional>
#include <string>

namespace cohort::cli {

// Runs `run` as a process of its own, and returns when it has called its
// argument, with 0, or when it has ended, with its exit code, which is not 0.
// Until then it is of this terminal, afterwards in a session of its own, and
// writes to `log`.  When nobody waits for that call any more it gets SIGTERM.
// REQUIRES: this process has one thread.
int RunDetached(const std::string& log,
                const std::function<int(std::function<void()> ready)>& run);

}  // namespace cohort::cli
