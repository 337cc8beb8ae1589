#include "client/program_package.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "client/package_files.h"
#include "common/status_macros.h"

namespace cohort::client {
namespace {

// Opens as the file that this process runs, whatever became of its path.
constexpr char kThisProgram[] = "/proc/self/exe";
// How the kernel ends the path of a program whose file is gone.
constexpr absl::string_view kRemoved = " (deleted)";

}  // namespace

absl::StatusOr<ProgramPackage> PackThisProgram(
    const std::vector<std::string>& files) {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::read_symlink(kThisProgram, error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot tell which program this is: ", kThisProgram, ": ",
                     error.message()));
  }
  PackageSource source;
  source.paths = files;
  // Not by its path: the file there may have been replaced or removed, and
  // processes elsewhere must run what this one does.
  const std::string program(
      absl::StripSuffix(path.filename().string(), kRemoved));
  source.named[program] = kThisProgram;
  COHORT_ASSIGN_OR_RETURN(const PackageFiles listed, ListPackageFiles(source));
  COHORT_ASSIGN_OR_RETURN(Package package, Package::Pack(listed));
  return ProgramPackage{.program = program, .package = std::move(package)};
}

}  // namespace cohort::client
