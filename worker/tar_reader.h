#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/unique_fd.h"

namespace cohort::worker {

// Reads packages as client/tar_writer writes them: ustar with GNU's long names
// and targets.
//
// By hand and strict: what else tar can hold (hard links, devices, sparse
// files, compression) has no place in a package, and a library that reads it
// all would be most of the daemon.  Thread-compatible.
//
// TR-1: an entry's name leads to a place below the directory that it is
//       unpacked in: relative, no "..", neither empty nor with a NUL.  So does
//       the target of a symbolic link (StaysInTree), as long as nothing is
//       unpacked through links.
class TarReader {
 public:
  struct Entry {
    std::string name;
    bool is_directory = false;
    bool is_executable = false;
    int64_t size_bytes = 0;
    std::string link;  // what a symbolic link names; empty: it is none
  };

  // `path` is named in errors.
  TarReader(UniqueFd file, std::string path);

  // The next entry, after what was not read of the one before; nothing at the
  // archive's end.  InvalidArgument, naming archive and entry, for whatever is
  // not as above; what the file system said.  Not to be used after an error.
  absl::StatusOr<std::optional<Entry>> Next();

  // At most `size` bytes of the entry, 0 at its end.  Errors as Next.
  absl::StatusOr<size_t> Read(char* buffer, size_t size);

 private:
  absl::Status Invalid(absl::string_view what) const;
  absl::Status Refuse(absl::string_view name, absl::string_view why) const;
  absl::Status ReadAll(char* buffer, size_t size);
  absl::Status SkipToNextHeader();
  absl::StatusOr<std::string> ReadLongText(int64_t size_bytes);

  const UniqueFd file_;
  const std::string path_;
  int64_t left_ = 0;     // of the entry's bytes
  int64_t padding_ = 0;  // after them
};

}  // namespace cohort::worker
