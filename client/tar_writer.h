#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/hash.h"
#include "common/unique_fd.h"

namespace cohort::client {

// InvalidArgument, with what to do, when an archive of so much would be too
// large.
absl::Status CheckArchiveSize(int64_t size_bytes, int64_t size_bytes_max);

// Writes a tar archive to a file and hashes it on the way.
//
// By hand and not with an archive library, because the bytes are the package's
// name: they may not depend on a library's version.  The format is ustar, with
// GNU's long names and targets where one is over what ustar holds (pax names
// would be converted between character sets by their readers).  Times, owners
// and groups are zero.  Thread-compatible.
class TarWriter {
 public:
  // `size_bytes_max` bounds the archive.
  TarWriter(UniqueFd file, int64_t size_bytes_max);

  // InvalidArgument when the archive would be too large; what the file system
  // said, ResourceExhausted when it is full.
  absl::Status AddDirectory(const std::string& name);
  // A file of `size_bytes`, which come by AddBytes next, all of them.
  absl::Status AddFile(const std::string& name, int64_t size_bytes,
                       bool is_executable);
  absl::Status AddBytes(absl::string_view bytes);
  // A symbolic link to `target`.
  absl::Status AddLink(const std::string& name, const std::string& target);
  // Ends the file begun last.
  absl::Status EndFile();
  // Ends the archive.
  absl::Status Finish();

  // After Finish.
  Digest TakeHash() { return hash_.Finish(); }
  UniqueFd TakeFile() { return std::move(file_); }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  absl::Status AddHeader(const std::string& name, char type, int64_t size_bytes,
                         int mode, absl::string_view link = "");
  // What the next header has no room for.
  absl::Status AddLong(char type, const std::string& text);
  absl::Status Pad();
  absl::Status Write(absl::string_view bytes);
  absl::Status Flush();

  UniqueFd file_;
  const int64_t size_bytes_max_;
  int64_t size_bytes_ = 0;
  Sha256 hash_;
  std::string buffer_;
};

}  // namespace cohort::client
