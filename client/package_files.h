#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort {

// What a package shall hold.
struct PackageSource {
  // What lies in it is at the top of the package.  Empty: nothing.
  std::string directory;
  // Files and directories, each at the top under the last part of its name.
  // They are taken even where `directory` has them and leaves them out.
  std::vector<std::string> paths;
  // More such files, by their names in the package.
  std::map<std::string, std::string> named;
  // Patterns as in gitignore(5), for names in the package.  They have the last
  // word.
  std::vector<std::string> exclude;
  // In each directory honour .cohortignore, else .gitignore, and leave out
  // .git, __pycache__ and Python's venvs.
  bool use_ignore_files = true;
};

// The files of a package before they are packed.  A value.
struct PackageFiles {
  struct Entry {
    std::string name;  // in the package
    std::string path;  // here
    struct stat info;  // when it was listed
    std::string link;  // what a symbolic link names; empty: it is none

    bool is_directory() const { return S_ISDIR(info.st_mode); }
    bool is_executable() const { return (info.st_mode & S_IXUSR) != 0; }
    int64_t size_bytes() const {
      return S_ISREG(info.st_mode) ? info.st_size : 0;
    }
  };
  struct LeftOut {
    std::string name;  // a directory's stands for all that is in it
    std::string why;   // ".gitignore line 3, *.o"
  };

  // Each directory before what is in it; names in order.
  std::vector<Entry> entries;
  std::vector<LeftOut> left_out;

  int64_t size_bytes() const;
};

// Lists what goes into a package.  Symbolic links are kept where they lead to
// something in the same tree, by StaysInTree; those named in `paths` are
// followed.  InvalidArgument, with the reason "cannot_pack", naming the file
// and the fix: for other links and those that lead in a circle, for devices,
// sockets and pipes, for what is not there or cannot be read, for two files
// with one name, and for more than `entries_max` files and directories.
absl::StatusOr<PackageFiles> ListPackageFiles(const PackageSource& source,
                                              size_t entries_max = 1'000'000);

// "cannot pack PATH: why", as above.
absl::Status CannotPack(absl::string_view path, absl::string_view why);
absl::Status CannotPack(absl::string_view path, int error_number);

}  // namespace cohort
