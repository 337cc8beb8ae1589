#include "examples/mnist/data_directory.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::mnist {
namespace {

namespace fs = std::filesystem;

constexpr char kProbe[] = "train-images-idx3-ubyte.gz";

bool HasData(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / kProbe, error);
}

fs::path ProgramDirectory() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

}  // namespace

absl::StatusOr<std::string> FindData(const std::string& given) {
  if (!given.empty()) {
    if (HasData(given)) return given;
    return absl::NotFoundError(
        absl::StrCat("--data ", given, " has no ", kProbe));
  }
  std::vector<std::string> looked;
  const auto found = [&looked](const fs::path& directory) {
    looked.push_back(directory.string());
    return HasData(directory);
  };
  if (const char* data = std::getenv("COHORT_DATA")) {
    const fs::path directory = fs::path(data) / "mnist";
    if (found(directory)) return directory.string();
  }
  constexpr int kLevels = 5;  // <tree>/build/release/bin is three deep
  fs::path above = ProgramDirectory();
  for (int level = 0; level < kLevels && !above.empty(); ++level) {
    for (const char* place : {"data/mnist", "share/cohort/data/mnist"}) {
      if (found(above / place)) return (above / place).string();
    }
    if (above == above.parent_path()) break;
    above = above.parent_path();
  }
  return absl::NotFoundError(
      absl::StrCat("MNIST is in none of ", absl::StrJoin(looked, ", "),
                   "; give --data DIR or set COHORT_DATA"));
}

}  // namespace cohort::mnist
