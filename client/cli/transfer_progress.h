#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/cli/progress.h"
#include "common/clock.h"

namespace cohort::cli {

// Shows on a terminal how much of a transfer is done and how fast it is, ten
// times a second at most: "uploading 12MiB of 1.5GiB, 98MiB/s".  One that takes
// no longer than that shows nothing.  Thread-compatible.
class TransferProgress {
 public:
  // `verb` and `clock` outlive this; the others as Progress has them.
  TransferProgress(absl::string_view verb, int64_t total_bytes,
                   const Clock& clock, Progress::Kind kind, int fd);

  void Show(int64_t done_bytes);

 private:
  const absl::string_view verb_;
  const int64_t total_bytes_;
  const Clock& clock_;
  const absl::Duration start_;
  absl::Duration last_;
  std::optional<int64_t> first_bytes_;  // done before, as of a resumed upload
  Progress progress_;
};

}  // namespace cohort::cli
