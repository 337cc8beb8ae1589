#include "examples/mnist_directory.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "examples/find_data.h"

namespace cohort::examples {
namespace {

namespace fs = std::filesystem;

constexpr char kProbe[] = "train-images-idx3-ubyte.gz";

}  // namespace

absl::StatusOr<std::string> FindMnist(const std::string& given) {
  if (!given.empty()) {
    std::error_code error;
    if (fs::exists(fs::path(given) / kProbe, error)) return given;
    return absl::NotFoundError(
        absl::StrCat("--data ", given, " has no ", kProbe));
  }
  COHORT_ASSIGN_OR_RETURN(const std::string probe,
                          FindData(absl::StrCat("mnist/", kProbe), "MNIST"));
  return fs::path(probe).parent_path().string();
}

}  // namespace cohort::examples
