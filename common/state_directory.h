#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file.h"

namespace cohort {

// The directory of --state-dir of a daemon: made where it is missing, and
// locked for as long as this lives.
//
// SD-1: of a directory that was seen to be missing or empty a start that is
//       refused leaves nothing: it goes with this unless Keep was called.
//       What lies in any other is never removed.
//
// Thread-compatible.
class StateDirectory {
 public:
  // `check` refuses a directory before anything is written to it.  Errors as
  // `check`, MakeStateDirectory and FileLock::Acquire, and what the file system
  // says of a directory that cannot be listed.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Take(
      const std::string& path, absl::string_view program,
      absl::AnyInvocable<absl::Status() &&> check);
  ~StateDirectory();

  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  // The daemon starts: what is there is to stay.
  void Keep();

 private:
  explicit StateDirectory(const std::string& path);
  void Empty();

  const std::string path_;
  std::vector<std::string> made_;  // the innermost first
  bool is_new_ = false;            // seen with nothing in it
  std::optional<FileLock> lock_;
};

}  // namespace cohort
