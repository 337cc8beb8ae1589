#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "common/unique_fd.h"

namespace cohort::worker {

// The programs of one package (ELF files that may be run), once on this node:
// places get hard links to them, so that the next place of a package of 20 MB
// costs no more than one of a script.
//
// A program is named by its number among the archive's entries.  It is nobody's
// to write: it has no permission for it and one time of change that is the same
// for all, which shows when somebody wrote to it all the same.  Such a one is
// made again for the next place; those that have it keep it.
//
// SX-1: a program has its name once it is whole on the disk, so a daemon or a
//       machine that dies leaves none that is half there.
// SX-2: removing the directory takes nothing from a place.
//
// Blocks.  Thread-compatible; one at a time for a directory.
class SharedPrograms {
 public:
  // `directory` is made with the first program.
  explicit SharedPrograms(std::string directory)
      : directory_(std::move(directory)) {}

  // Whether the program is there as it was made.
  bool Has(int number, int64_t size_bytes) const;

  // Adds the program that `write` writes to the file that it is given; errors
  // as it says, and as the disk says.
  absl::Status Add(int number, absl::FunctionRef<absl::Status(int file)> write);

  // Puts the program into `place`, an open directory, as `name`: a copy that is
  // the place's own where no link can be.  AlreadyExists when there is one.
  absl::Status Give(int number, const UniqueFd& place,
                    const std::string& name) const;

  // Whether this is one, or a link to one, as it was made.
  static bool IsOne(const struct stat& file);
  // Of one: whether nobody has written to it.  Another job may have changed who
  // may run it, which is all the same to what is in it.
  static bool IsUnwritten(const struct stat& file);

 private:
  std::string Path(int number) const;

  const std::string directory_;
};

}  // namespace cohort::worker
