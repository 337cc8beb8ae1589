#include "head/state/observed.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "absl/strings/str_cat.h"

#include "common/host_port.h"
#include "common/node_labels.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/taint.h"
#include "head/state/desired.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kAddressesMax = 4;  // of one process

constexpr size_t kNodeTextBytesMax = 256;
constexpr int kDevicesMax = 1'024;
constexpr int kPeersMax = 64;  // of one device
// After an adoption the job counts on from what nodes said.
constexpr uint64_t kIncarnationMax = uint64_t{1} << 62;

absl::Status CheckText(absl::string_view what, const std::string& text) {
  if (text.size() <= kNodeTextBytesMax) {
    if (IsPrintableUtf8(text)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the node's ", what, " ", Quoted(text), " has unprintable characters"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the node's ", what, " has ", text.size(),
                   " bytes, at most ", kNodeTextBytesMax, " are possible"));
}

absl::Status CheckDevices(const v1::Node& node, const ResourceSet& resources) {
  if (node.devices().size() > kDevicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node has ", node.devices().size(),
                     " devices, at most ", kDevicesMax, " are possible"));
  }
  std::set<std::string> ids;
  int64_t gpus = 0;
  for (const Device& device : node.devices()) {
    COHORT_RETURN_IF_ERROR(CheckText("device id", device.id()));
    COHORT_RETURN_IF_ERROR(CheckText("device kind", device.kind()));
    COHORT_RETURN_IF_ERROR(CheckText("device model", device.model()));
    COHORT_RETURN_IF_ERROR(CheckText("device address", device.pci_bus_id()));
    COHORT_RETURN_IF_ERROR(CheckText("device parent", device.parent()));
    if (device.nvlink_peers().size() > kPeersMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("the node's device ", device.id(), " has ",
                       device.nvlink_peers().size(), " NVLink peers, at most ",
                       kPeersMax, " are possible"));
    }
    for (const std::string& peer : device.nvlink_peers()) {
      COHORT_RETURN_IF_ERROR(CheckText("NVLink peer", peer));
    }
    if (device.id().empty() || !ids.insert(device.id()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the node offers a device without an id, or \"",
                       device.id(), "\" twice"));
    }
    gpus += device.kind() == "gpu";
  }
  const Amount offered = resources.Get(kGpu);
  if (offered != Amount::FromUnits(gpus)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node offers GPU ", offered.ToString(), " and ", gpus,
                     " GPU devices: the two must agree"));
  }
  return absl::OkStatus();
}

absl::Status CheckTaints(const v1::Node& node) {
  if (node.taints_size() > static_cast<int>(kTaintsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node has ", node.taints_size(), " taints, at most ",
                     kTaintsMax, " are possible"));
  }
  for (const v1::Taint& told : node.taints()) {
    const Taint taint = rpc::FromWire(told);
    const absl::StatusOr<Taint> read = Taint::Parse(taint.ToString());
    if (!read.ok()) return Annotate(read.status(), "the node's taint");
    if (*read != taint || taint.key.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the node's taint ", Quoted(taint.ToString()),
                       " has a key or a value that cannot be"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(const v1::ObservedPlace& place) {
  const absl::StatusOr<AttemptId> attempt =
      AttemptId::FromBytes(place.attempt_id());
  COHORT_RETURN_IF_ERROR(attempt.status());
  COHORT_RETURN_IF_ERROR(JobId::FromBytes(place.job_id()).status());
  const auto wrong = [&](absl::string_view what, auto number) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node reported an invalid place of attempt ",
                     attempt->ToHex(), ": ", what, " ", number));
  };
  if (attempt->IsNil()) {
    return absl::InvalidArgumentError("the node has an attempt without an id");
  }
  if (place.master_port() < 0 || place.master_port() > 65'535) {
    return wrong("port", place.master_port());
  }
  if (place.processes_size() > kObservedProcessesMax) {
    return wrong("number of processes", place.processes_size());
  }
  COHORT_RETURN_IF_ERROR(
      Annotate(rpc::FromWire(place.resources_per_process()).status(),
               "the node's resources_per_process"));
  std::set<Incarnation> seen;
  for (const v1::ObservedProcess& process : place.processes()) {
    if (process.slot() < 0) return wrong("slot", process.slot());
    if (process.pid() < 0) return wrong("pid", process.pid());
    if (process.incarnation() > kIncarnationMax) {
      return wrong("incarnation", process.incarnation());
    }
    if (!seen.emplace(process.slot(), process.incarnation()).second) {
      return wrong("duplicate slot", process.slot());
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> AddressesOf(const v1::ObservedProcess& process) {
  std::vector<std::string> addresses;
  for (const std::string& each : process.addresses()) {
    if (addresses.size() < kAddressesMax && CheckText("address", each).ok()) {
      addresses.push_back(each);
    }
  }
  return addresses;
}

absl::Status ValidateRegistration(const Registration& registration) {
  const v1::Node& node = registration.node;
  if (registration.id.IsNil()) {
    return absl::InvalidArgumentError("the node has no id");
  }
  COHORT_RETURN_IF_ERROR(CheckText("name", node.name()));
  COHORT_RETURN_IF_ERROR(CheckText("host", node.host()));
  if (!node.host().empty() && !IsHost(node.host())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the node's host \"", node.host(), "\" is not a name or address"));
  }
  COHORT_RETURN_IF_ERROR(
      Annotate(CheckNodeLabels({node.labels().begin(), node.labels().end()}),
               "the node's labels"));
  const absl::StatusOr<ResourceSet> resources = rpc::FromWire(node.resources());
  COHORT_RETURN_IF_ERROR(Annotate(resources.status(), "the node's resources"));
  COHORT_RETURN_IF_ERROR(CheckText("build", node.build()));
  COHORT_RETURN_IF_ERROR(CheckTaints(node));
  COHORT_RETURN_IF_ERROR(CheckDevices(node, *resources));
  return ValidateObserved(registration.observed);
}

absl::Status ValidateObserved(const v1::Observed& observed) {
  if (observed.places_size() > kObservedPlacesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the node has ", observed.places_size(), " attempts, at most ",
        kObservedPlacesMax, " are possible"));
  }
  std::set<absl::string_view> seen;
  for (const v1::ObservedPlace& place : observed.places()) {
    COHORT_RETURN_IF_ERROR(CheckPlace(place));
    if (!seen.insert(place.attempt_id()).second) {
      return absl::InvalidArgumentError(absl::StrCat("the node names attempt ",
                                                     AttemptOf(place).ToHex(),
                                                     " twice in one message"));
    }
  }
  return absl::OkStatus();
}

AttemptId AttemptOf(const v1::ObservedPlace& place) {
  return *AttemptId::FromBytes(place.attempt_id());
}

JobId JobOf(const v1::ObservedPlace& place) {
  return *JobId::FromBytes(place.job_id());
}

ResourceSet ResourcesPerProcess(const v1::ObservedPlace& place) {
  return *rpc::FromWire(place.resources_per_process());
}

std::map<std::string, Amount> DevicesOf(const ResourceSet& each,
                                        const v1::ObservedProcess& process) {
  // A fraction is of one device, more are whole ones.
  const Amount share = std::min(each.Get(kGpu), Amount::FromUnits(1));
  std::map<std::string, Amount> devices;
  for (const std::string& id : process.gpu_ids()) devices[id] = share;
  return devices;
}

bool IsLive(const v1::ObservedPlace& place) {
  return std::any_of(
      place.processes().begin(), place.processes().end(),
      [](const v1::ObservedProcess& each) { return IsLive(each); });
}

}  // namespace cohort::head
