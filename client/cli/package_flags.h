#pragma once

#include <optional>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/cluster.h"
#include "client/job.h"
#include "client/package.h"
#include "client/package_files.h"

namespace cohort::cli {

// The flags that say which files a job's ranks start with.
struct PackageFlags {
  std::string working_dir;
  std::vector<std::string> files;
  std::vector<std::string> exclude;
  bool no_ignore = false;
};

void AddPackageFlags(CLI::App& command, PackageFlags& flags);

// Packs what `flags` name; nothing when they name nothing.  InvalidArgument,
// also when `spec`'s command names a file that is here and that the ranks will
// not find.  Unless `is_quiet`, says on stderr what was left out, what is large
// and how to run a program that is sent along, and shows progress.
absl::StatusOr<std::optional<Package>> Pack(const PackageFlags& flags,
                                            const JobSpec& spec, bool is_quiet);

// Gives it to the head, and shows progress.  Errors as Cluster::UploadPackage.
absl::Status Upload(Cluster& cluster, const Package& package, bool is_quiet);

// Whether ranks that start among `files` find what `command` names as its
// program or its script.  InvalidArgument, with what to do, when they do not
// and this process does, in its current directory.
absl::Status CheckCommand(const std::vector<std::string>& command,
                          const PackageFiles& files);

}  // namespace cohort::cli
