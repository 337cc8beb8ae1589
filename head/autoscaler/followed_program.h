#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cohort::head {

// The longest line that a followed program may write; of a longer one only its
// beginning is given.
inline constexpr size_t kFollowedLineBytesMax = 4'096;

// Runs a program until it ends and gives each line that it writes to stdout, on
// the calling thread, some hundreds a second at most: what writes faster waits.
// Blocks.  It and its process group are killed when `stop` is set, and it is
// when the calling thread ends; its stdin ends then, too.
//
// OK: exit status 0.  Errors, with the last line that it wrote to stderr:
// Unimplemented: exit status 2; NotFound: there is no such program; Aborted: it
// ends in another way; Cancelled: `stop`.
// Thread-safe.
absl::Status FollowProgram(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment,
                           const std::function<void(std::string line)>& on_line,
                           const std::atomic<bool>& stop);

}  // namespace cohort::head
