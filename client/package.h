#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/hash.h"
#include "common/unique_fd.h"

namespace cohort {

struct PackageOptions {
  // Of the archive.  A package goes to the head and to every worker of the job:
  // what is larger belongs on storage that they share.
  int64_t size_bytes_max = int64_t{4} << 30;
  // Files and directories.
  int entries_max = 1'000'000;
  // Where the archive is written; empty: TMPDIR, else /var/tmp.
  std::string temporary_directory;
};

// A job's files as one archive, named by its content.
//
// A tar archive of plain files and directories that depends on their names,
// bytes and executable bits alone: the same files give the same hash wherever
// and whenever they are packed.  It lies in an unnamed temporary file that goes
// with this object.  Thread-compatible.
class Package {
 public:
  // Packs what is in `directory`.  InvalidArgument, naming the file and the
  // fix, when it is no directory, when something in it is a symbolic link, a
  // second name of another file in it, a device, a socket or a pipe, cannot be
  // read or changes while it is read, or when the archive would be over the
  // limits.  Otherwise what the temporary directory said, as when it is full.
  static absl::StatusOr<Package> FromDirectory(const std::string& directory,
                                               PackageOptions options = {});

  // Packs files, each under the last part of its name.  Errors as above, and
  // for two files with one name.
  static absl::StatusOr<Package> FromFiles(
      const std::vector<std::string>& files, PackageOptions options = {});

  Package(Package&&) = default;
  Package& operator=(Package&&) = default;

  const Digest& hash() const { return hash_; }
  int64_t size_bytes() const { return size_bytes_; }

  // At most `bytes_max` bytes of the archive from `offset`; fewer only at its
  // end.  DataLoss when the temporary file was changed meanwhile.
  absl::StatusOr<std::string> Read(int64_t offset, size_t bytes_max) const;

 private:
  friend class Packer;

  Package(UniqueFd file, Digest hash, int64_t size_bytes);

  UniqueFd file_;
  Digest hash_;
  int64_t size_bytes_;
};

}  // namespace cohort
