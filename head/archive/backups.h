#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "head/archive/backup_manifest.h"
#include "head/store/store.h"

namespace cohort::head {

struct BackupRequest {
  std::string directory;  // absolute; must not exist
  // Names this backup: asked for again, it is answered and not made twice.
  std::string request_id;
  absl::Time at;
};

// Makes backups of the store in use: files on a disk, or a test.
//
// `done` comes exactly once, on the head strand, never inside the call.
// Strand-bound; one backup at a time.
class Backups {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<BackupManifest>) &&>;

  virtual ~Backups() = default;

  // Backs up what was appended to `store` before this call, and perhaps what
  // comes meanwhile: whole transitions, in their order.  The store goes on.
  // Only tasks that this call itself posts to the store's executor use `store`.
  //
  // On an error nothing is left of it.  InvalidArgument: no directory that
  // could be made; AlreadyExists: it is there; ResourceExhausted: the disk has
  // no room; DataLoss: what was copied cannot be read; else what the file
  // system said.
  virtual void Write(Store& store, BackupRequest request, Done done) = 0;
};

}  // namespace cohort::head
