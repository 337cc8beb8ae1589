#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "worker/keeper_host.h"

// What a failed process left behind about why: its error file
// (TORCHELASTIC_ERROR_FILE, written by torch's @record) and the end of its
// stderr.  Pure.
namespace cohort::worker {

struct LastWords {
  // Empty when there is none.
  std::string error_file;
  absl::Time error_file_modified;
  std::string stderr_tail;
  std::string python;  // DescribePython; empty: not known
};

// What `exit` is to say (common/exception_text.h): what it says already or what
// the process raised, the first line with a hint where Python lacks a module
// or was not found.
std::string ExitDetail(const ExitReport& exit, const LastWords& words);

struct RaisedException {
  std::string summary;    // a line, "RuntimeError: boom"
  std::string traceback;  // its end, bounded
  std::optional<absl::Time> at;
};
// Of the error file; nullopt when it is not such a file.  The file has whole
// seconds; when it was `modified` tells more, where that agrees.
std::optional<RaisedException> ParseErrorFile(const std::string& json,
                                              absl::Time modified);
// The last one that Python printed, also with torch's prefix "[rank0]: ".
std::optional<RaisedException> LastTraceback(absl::string_view text);

}  // namespace cohort::worker
