#include "worker/options.h"

#include "absl/strings/str_cat.h"

#include "common/host_port.h"
#include "common/node_labels.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {

absl::Status WorkerOptions::Validate() const {
  if (head.port == 0) {
    return absl::InvalidArgumentError(
        "--address HOST:PORT: a worker needs the head's port");
  }
  if (!credential_file.empty() && !join.empty()) {
    return absl::InvalidArgumentError(
        "--join and --credential-file: give one of them");
  }
  if (simulated_gpus.has_value() && inventory.gpus.has_value()) {
    return absl::InvalidArgumentError(
        "--num-gpus and --simulate-gpus: offer real devices or simulated ones, "
        "not both");
  }
  if (nvml_library.empty()) {
    return absl::InvalidArgumentError(
        "--nvml-library: give the name or the path of a library");
  }
  if (name.size() > 128 || (!name.empty() && !IsNameText(name))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name ", Quoted(name),
                     ": a name is one line of printable UTF-8, at most 128 "
                     "bytes, without spaces at its ends"));
  }
  if (!host.empty() && !IsHost(host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--host ", Quoted(host),
        ": give a name or an address of this machine, without a port"));
  }
  COHORT_RETURN_IF_ERROR(Annotate(CheckNodeLabels(labels), "--labels"));
  return inventory.custom.Validate();
}

}  // namespace cohort::worker
