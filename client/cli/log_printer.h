#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/cluster.h"

namespace cohort::cli {

// How logs are printed.
struct LogLayout {
  bool json = false;   // an object a line
  bool ranks = false;  // "[rank] " before each line
  bool times = false;  // when each line began, before it
  // Nothing else is printed there: what comes need not wait for a line's end.
  bool one_source = false;
  bool follows = false;
  size_t columns = 0;  // of the terminal; 0: it is none
};

// Prints what the ranks wrote to one place.
//
// Lines of different sources (a rank's stream) are never mixed; one that is
// longer than 64 KiB is printed in parts.  While it follows, a line that has no
// end yet is shown after half a second; if another one is printed meanwhile, a
// terminal has it shown again as it goes on, and elsewhere it goes on where it
// was: there each byte is printed once.
//
// Without ranks and times, and not on a terminal, the bytes are what the rank
// wrote.  Otherwise of a line that overwrites itself (progress bars, with
// "\r") its last state is printed: a terminal has it redrawn, as wide as it is;
// elsewhere it is a new line every five seconds.
//
// A line of its own says where bytes are missing, as the keeper's does for a
// full disk.  Thread-compatible.
class LogPrinter {
 public:
  // Writes text of that stream.
  using Write =
      absl::AnyInvocable<absl::Status(LogStream stream, absl::string_view)>;

  LogPrinter(LogLayout layout, Write write)
      : layout_(layout), write_(std::move(write)) {}

  // Errors, here and below: those of `write`.
  absl::Status Add(const LogChunk& chunk, absl::Duration now);
  // Shows what is due; to be called now and then.
  absl::Status ShowDue(absl::Duration now);
  // What has no end of line.
  absl::Status Finish();
  // What somebody else prints there next begins a line.
  absl::Status BreakLine();

 private:
  using Source = std::pair<int, LogStream>;

  // The line that a source has begun.
  struct Line {
    int attempt = 0;
    absl::Time at;     // of its first byte
    std::string text;  // raw: what is not printed yet; else since the last "\r"
    bool returned = false;     // "\r" came; text, if any comes, replaces this
    bool overwritten = false;  // by that, at least once
    bool was_shown = false;
    // While it is open: how much of the text one sees, unless that is not how
    // it begins.
    size_t shown = 0;
    bool is_stale = false;
    absl::Duration due = absl::InfiniteDuration();  // to be shown
  };

  bool is_raw() const {
    return !layout_.json && !layout_.ranks && !layout_.times &&
           layout_.columns == 0;
  }
  bool IsOpen(const Source& source) const { return open_ == source; }
  absl::Status AddRaw(const Source& source, Line& line, absl::string_view data);
  absl::Status AddLines(const Source& source, Line& line,
                        absl::string_view data, absl::Time at);
  void SetDue(const Source& source, Line& line, absl::Duration now);
  absl::Status Show(const Source& source, Line& line, absl::Duration now);
  // Prints it with its end.
  absl::Status EndLine(const Source& source, Line& line);
  // Prints it, on a new line where another source's is open.
  absl::Status Put(const Source& source, absl::string_view text);
  // What has to be printed before a line that is not the open one's.
  absl::string_view Break() const;
  // So much of the text was printed for good.
  size_t Printed(const Line& line) const;
  // What is not.
  std::string Prefixed(const Source& source, const Line& line) const;

  const LogLayout layout_;
  Write write_;
  std::map<Source, Line> lines_;
  // Whose line has no end where it is printed.
  std::optional<Source> open_;
  absl::Duration opened_at_;
  absl::Duration next_due_ = absl::InfiniteDuration();
};

}  // namespace cohort::cli
