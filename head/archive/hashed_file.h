#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "head/archive/backup_manifest.h"

namespace cohort::head {

// Copies the file `from` to `<directory>/<name>`, which must not exist, for its
// owner only, and tells what is there then; durable once OK, but for its name
// (SyncDirectory).  Errors name the path, their code comes from errno; what is
// there then is to be removed.  Blocks.
absl::StatusOr<BackupManifest::File> CopyAndHash(const std::string& from,
                                                 const std::string& directory,
                                                 const std::string& name);

}  // namespace cohort::head
