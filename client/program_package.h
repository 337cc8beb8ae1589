#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "client/package.h"

namespace cohort::client {

// The executable of this process, for processes elsewhere that run it too.
struct ProgramPackage {
  std::string program;  // its name at the top of the package
  Package package;
};

// Packs it and `files`, files and directories that it needs beside itself.  It
// is packed as it runs, also when its file was replaced or removed meanwhile.
// Errors as ListPackageFiles and Package::Pack; INTERNAL when the system does
// not say which program this is.
absl::StatusOr<ProgramPackage> PackThisProgram(
    const std::vector<std::string>& files = {});

}  // namespace cohort::client
