#include "examples/restore.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "examples/program.h"

namespace cohort::examples {

absl::Status RestoreRun(
    const trainer::Session& session,
    absl::FunctionRef<absl::Status(const trainer::Checkpoint&)> restore) {
  if (!session.place().restore) return absl::OkStatus();
  const std::string& path = session.place().restore->path;
  const auto checkpoint = trainer::ReadCheckpoint(path);
  if (absl::IsNotFound(checkpoint.status())) {
    return Annotate(checkpoint.status(),
                    "every node of the gang must see --storage-path");
  }
  COHORT_RETURN_IF_ERROR(checkpoint.status());
  COHORT_RETURN_IF_ERROR(Annotate(restore(*checkpoint), path));
  if (session.is_lead()) {
    const trainer::CheckpointManifest& manifest = checkpoint->manifest;
    Say(absl::StrFormat("going on from step %d in epoch %d: %s", manifest.step,
                        manifest.data_epoch + 1, path));
  }
  return absl::OkStatus();
}

}  // namespace cohort::examples
