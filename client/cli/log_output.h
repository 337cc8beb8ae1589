#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/cli/job_notice.h"
#include "client/cli/log_printer.h"
#include "client/cluster.h"

namespace cohort::cli {

// Where logs are printed: all to stdout, or as the ranks wrote them, to stdout
// and stderr, which may be one terminal, pipe or file.  Thread-compatible.
class LogOutput {
 public:
  struct Options {
    LogLayout layout;  // but for what depends on the place
    bool one_rank = false;
    bool standard_output = true;
    bool standard_error = true;
    bool apart = false;  // stderr to stderr
    // Of each piece whether to print it; null: all.
    std::function<absl::StatusOr<bool>(const LogChunk&)> shows = nullptr;
  };

  explicit LogOutput(Options options);

  // Prints what `options` name of a job's logs, and meanwhile on stderr that a
  // failure is retried, unless it is JSON: of those that `notice` does not
  // know.
  absl::Status Print(const Cluster& cluster, const JobId& id,
                     LogOptions options, JobNotice& notice);
  // Prints lines that have no end.
  absl::Status Finish();
  // Says something on stderr, on a line of its own.
  absl::Status Say(const std::string& text);
  // What is written to stderr next begins a line.
  absl::Status BreakLine();

 private:
  LogPrinter& PrinterOf(LogStream stream);

  const Options options_;
  const bool one_place_;  // stdout and stderr are
  LogPrinter out_;
  std::optional<LogPrinter> err_;  // where that is another place
};

}  // namespace cohort::cli
