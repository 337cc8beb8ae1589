#include "client/program_package.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/package_files.h"
#include "common/status_macros.h"

namespace cohort::client {

absl::StatusOr<ProgramPackage> PackThisProgram(
    const std::vector<std::string>& files) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot tell which program this is: /proc/self/exe: ",
                     error.message()));
  }
  PackageSource source;
  source.paths = files;
  source.paths.push_back(path.string());
  COHORT_ASSIGN_OR_RETURN(const PackageFiles listed, ListPackageFiles(source));
  COHORT_ASSIGN_OR_RETURN(Package package, Package::Pack(listed));
  return ProgramPackage{.program = path.filename().string(),
                        .package = std::move(package)};
}

}  // namespace cohort::client
