#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::head {

struct ProgramBounds {
  absl::Duration timeout = absl::Seconds(60);
  size_t output_bytes_max = 4 << 20;
};

// Runs a program to its end and gives what it wrote to stdout; blocks.  It and
// its process group are killed when it takes too long, writes too much, or
// `stop` is set.  What it leaves behind in another session lives on, also with
// its stdout open.
//
// Errors, with the last line that it wrote to stderr: NotFound: there is no
// such program; DeadlineExceeded; ResourceExhausted; Aborted: it exits with
// another status than 0, or by a signal; Cancelled: `stop`.
// Thread-safe.
absl::StatusOr<std::string> RunProgram(
    const std::vector<std::string>& command,
    const std::vector<std::string>& environment, const ProgramBounds& bounds,
    const std::atomic<bool>& stop);

}  // namespace cohort::head
