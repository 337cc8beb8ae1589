#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "client/package_files.h"
#include "common/hash.h"
#include "common/unique_fd.h"

namespace cohort {

struct PackageOptions {
  // Of the archive.  A package goes to the head and to every worker of the job:
  // what is larger belongs on storage that they share.
  int64_t size_bytes_max = int64_t{4} << 30;
  // Where the archive is written; empty: TMPDIR, else /var/tmp.
  std::string temporary_directory;
  // Called now and then with how much of PackageFiles::size_bytes() is packed.
  std::function<void(int64_t)> on_progress;
};

// A job's files as one archive, named by its content.
//
// A tar archive of plain files, directories and symbolic links that depends on
// their names, bytes, executable bits and targets alone: the same files give
// the same hash wherever and whenever they are packed.  A hard link is a copy.
// It lies in an unnamed temporary file that goes with this object.
// Thread-compatible.
class Package {
 public:
  // Packs what was listed.  InvalidArgument, naming the file and the fix, when
  // one cannot be read or has changed since it was listed, and when the archive
  // would be over the limit.  Otherwise what the temporary directory said, as
  // when it is full.
  static absl::StatusOr<Package> Pack(const PackageFiles& files,
                                      const PackageOptions& options = {});

  Package(Package&&) = default;
  Package& operator=(Package&&) = default;

  const Digest& hash() const { return hash_; }
  int64_t size_bytes() const { return size_bytes_; }

  // At most `bytes_max` bytes of the archive from `offset`; fewer only at its
  // end.  DataLoss when the temporary file was changed meanwhile.
  absl::StatusOr<std::string> Read(int64_t offset, size_t bytes_max) const;

 private:
  Package(UniqueFd file, Digest hash, int64_t size_bytes);

  UniqueFd file_;
  Digest hash_;
  int64_t size_bytes_;
};

}  // namespace cohort
