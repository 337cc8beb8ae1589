#include "examples/find_data.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::examples {
namespace {

namespace fs = std::filesystem;

fs::path ProgramDirectory() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

}  // namespace

absl::StatusOr<std::string> FindData(absl::string_view file,
                                     absl::string_view what) {
  const fs::path relative(std::string{file});
  std::vector<std::string> looked;
  const auto found = [&](const fs::path& data) {
    looked.push_back((data / relative.parent_path()).string());
    std::error_code error;
    return fs::exists(data / relative, error);
  };
  if (const char* data = std::getenv("COHORT_DATA")) {
    if (found(data)) return (data / relative).string();
  }
  constexpr int kLevels = 5;  // <tree>/build/release/bin is three deep
  fs::path above = ProgramDirectory();
  for (int level = 0; level < kLevels && !above.empty(); ++level) {
    for (const char* place : {"data", "share/cohort/data"}) {
      if (found(above / place)) return (above / place / relative).string();
    }
    if (above == above.parent_path()) break;
    above = above.parent_path();
  }
  return absl::NotFoundError(absl::StrCat(what, " is in none of ",
                                          absl::StrJoin(looked, ", "),
                                          "; give --data or set COHORT_DATA"));
}

}  // namespace cohort::examples
