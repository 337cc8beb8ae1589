#include "head/observed.h"

#include <cstddef>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/host_port.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr size_t kTextBytesMax = 256;
constexpr size_t kDevicesMax = 1'024;
constexpr size_t kLabelsMax = 256;

absl::Status CheckText(absl::string_view what, const std::string& text) {
  if (text.size() <= kTextBytesMax) {
    if (IsPrintableUtf8(text)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the node's ", what, " \"", absl::Utf8SafeCHexEscape(text),
                     "\" has unprintable characters"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the node's ", what, " has ", text.size(),
                   " bytes, at most ", kTextBytesMax, " are possible"));
}

absl::Status CheckDevices(const Registration& registration) {
  if (registration.devices.size() > kDevicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node has ", registration.devices.size(),
                     " devices, at most ", kDevicesMax, " are possible"));
  }
  std::set<std::string> ids;
  int64_t gpus = 0;
  for (const Device& device : registration.devices) {
    COHORT_RETURN_IF_ERROR(CheckText("device id", device.id));
    COHORT_RETURN_IF_ERROR(CheckText("device kind", device.kind));
    COHORT_RETURN_IF_ERROR(CheckText("device model", device.model));
    if (device.id.empty() || !ids.insert(device.id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the node offers a device without an id, or \"",
                       device.id, "\" twice"));
    }
    gpus += device.kind == "gpu";
  }
  const Amount offered = registration.resources.Get(kGpu);
  if (offered != Amount::FromUnits(gpus)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node offers GPU ", offered.ToString(), " and ", gpus,
                     " GPU devices: the two must agree"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRegistration(const Registration& registration) {
  if (registration.node.IsNil()) {
    return absl::InvalidArgumentError("the node has no id");
  }
  COHORT_RETURN_IF_ERROR(CheckText("name", registration.name));
  COHORT_RETURN_IF_ERROR(CheckText("host", registration.host));
  if (!registration.host.empty() && !IsHost(registration.host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the node's host \"", registration.host, "\" is no name or address"));
  }
  if (registration.labels.size() > kLabelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node has ", registration.labels.size(),
                     " labels, at most ", kLabelsMax, " are possible"));
  }
  for (const auto& [name, value] : registration.labels) {
    COHORT_RETURN_IF_ERROR(CheckText("label", name));
    COHORT_RETURN_IF_ERROR(CheckText("label", value));
  }
  COHORT_RETURN_IF_ERROR(
      Annotate(registration.resources.Validate(), "the node's resources"));
  return CheckDevices(registration);
}

}  // namespace cohort::head
