#include "common/testing/temp_dir.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/check.h"

namespace cohort {

TempDir::TempDir() : path_("/var/tmp/cohort-test-XXXXXX") {
  COHORT_CHECK(::mkdtemp(path_.data()) != nullptr) << path_;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace cohort
