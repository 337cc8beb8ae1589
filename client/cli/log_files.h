#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"

#include "client/cluster.h"

namespace cohort::cli {

// What ranks print, in files laid out as torchrun has them:
// DIR/<job>/attempt_<n, from 0>/<rank>/stdout.log and stderr.log.
class LogFiles {
 public:
  // An empty directory: none.  `streams`: bits 1 (stdout) and 2 (stderr).
  LogFiles(std::string directory, int streams)
      : directory_(std::move(directory)), streams_(streams) {}

  // Writes it at its offset.  The errors of the file system.
  absl::Status Add(const JobId& job, const LogChunk& chunk) const;

 private:
  const std::string directory_;
  const int streams_;
};

}  // namespace cohort::cli
