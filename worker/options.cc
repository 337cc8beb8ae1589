#include "worker/options.h"

#include "absl/strings/str_cat.h"

namespace cohort::worker {

absl::Status WorkerOptions::Validate() const {
  if (head.port == 0) {
    return absl::InvalidArgumentError(
        "--address HOST:PORT: a worker needs the head's port");
  }
  if (credential_file.empty()) {
    return absl::InvalidArgumentError(
        "no credential: give --credential-file or COHORT_CREDENTIAL_FILE, the "
        "file that the head made (<its state directory>/credential)");
  }
  if (simulated_gpus.has_value() && inventory.gpus.has_value()) {
    return absl::InvalidArgumentError(
        "--num-gpus and --simulate-gpus: offer real devices or simulated ones, "
        "not both");
  }
  if (name.size() > 128) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name: ", name.size(), " bytes; at most 128"));
  }
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > 64 || value.size() > 256) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--labels ", key, "=", value,
          ": a label has a key of 1 to 64 bytes and a value of at most 256"));
    }
  }
  return inventory.custom.Validate();
}

}  // namespace cohort::worker
