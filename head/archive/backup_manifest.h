#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/hash.h"
#include "common/strong_id.h"

namespace cohort::head {

// What a backup is and has: the file `BACKUP` in its directory, which is
// written last and makes the directory a backup.
//
// A backup directory looks like a head's state directory: `store/`,
// `store.mark`, `credential`, `ca.key`, `packages/`.  A head refuses to start
// on it, because two heads of one generation would end each other's ranks; it
// is restored under a new one.  A value.
struct BackupManifest {
  struct File {
    std::string name;  // relative, as "store/CURRENT"
    int64_t size_bytes = 0;
    Digest hash;

    friend bool operator==(const File&, const File&) = default;
  };

  ClusterId cluster;
  GenerationId generation;
  uint64_t term = 0;
  uint32_t schema = 0;
  absl::Time at = absl::InfinitePast();  // for people
  std::string request_id;                // of the call that asked for it
  std::vector<File> files;
  // Of packages that jobs need and that could not be read: hashes, in hex.
  std::vector<std::string> missing_packages;

  int64_t bytes() const;

  friend bool operator==(const BackupManifest&,
                         const BackupManifest&) = default;
};

inline constexpr char kBackupManifestName[] = "BACKUP";

// As text, one thing a line; the last line has a SHA-256 of those before it.
std::string ToText(const BackupManifest& manifest);

// DataLoss, saying what, for anything that ToText does not write.
absl::StatusOr<BackupManifest> ParseBackupManifest(absl::string_view text);

}  // namespace cohort::head
