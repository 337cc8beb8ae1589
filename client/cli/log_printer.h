#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "client/cluster.h"

namespace cohort::cli {

// Turns pieces of logs into what is printed: bytes as they are when there is
// one rank, whole lines with "[rank] " before each when there are more, or JSON
// lines.
//
// Lines of different ranks are never mixed; a line that is longer than 64 KiB
// or has no end yet when the log ends is printed in parts.  A line of its own
// says where bytes are missing, as the keeper's does for a full disk.
// Thread-compatible.
class LogPrinter {
 public:
  enum class Form { kRaw, kPrefixed, kJson };

  // Writes text to where its stream goes.
  using Write =
      absl::AnyInvocable<absl::Status(LogStream stream, absl::string_view)>;

  LogPrinter(Form form, Write write) : form_(form), write_(std::move(write)) {}

  // The errors of `write`.
  absl::Status Add(LogChunk chunk);
  // What has no end of line.
  absl::Status Finish();

  // Whether what `stream` got, or got last of both, has no end of line.
  bool IsMidLine(LogStream stream) const { return mid_line_.contains(stream); }
  bool IsMidLine() const { return IsMidLine(last_); }

 private:
  struct Line {
    int attempt = 0;
    std::string text;
  };

  absl::Status Put(LogStream stream, absl::string_view text);
  std::string Formatted(int rank, LogStream stream, int attempt,
                        absl::string_view line) const;

  const Form form_;
  Write write_;
  // Begun lines.
  std::map<std::pair<int, LogStream>, Line> begun_;
  std::set<LogStream> mid_line_;
  LogStream last_ = v1::LOG_STREAM_STDOUT;
};

}  // namespace cohort::cli
