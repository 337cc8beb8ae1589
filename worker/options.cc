#include "worker/options.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/host_port.h"
#include "common/printable_text.h"

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
  if (name.size() > 128 || !IsPrintableUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name \"", absl::Utf8SafeCHexEscape(name.substr(0, 64)),
                     "\": a name is one line of printable UTF-8, at most 128 "
                     "bytes"));
  }
  if (!host.empty() && !IsHost(host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--host \"", absl::Utf8SafeCHexEscape(host.substr(0, 64)),
        "\": give a name or an address of this machine, without a port"));
  }
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > 64 || value.size() > 256 ||
        !IsPrintableUtf8(key) || !IsPrintableUtf8(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--labels \"", absl::Utf8SafeCHexEscape(key.substr(0, 64)), "=",
          absl::Utf8SafeCHexEscape(value.substr(0, 64)),
          "\": a label has a key of 1 to 64 bytes and a value of at most 256, "
          "both printable UTF-8"));
    }
  }
  return inventory.custom.Validate();
}

}  // namespace cohort::worker
