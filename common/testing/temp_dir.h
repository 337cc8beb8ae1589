#pragma once

#include <string>

namespace cohort {

// A directory of this test's own under /var/tmp (a real disk, where /tmp may be
// memory), removed with everything in it at the end.  Immutable.
class TempDir {
 public:
  TempDir();
  ~TempDir();

  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // path()/name.
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace cohort
