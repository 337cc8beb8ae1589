#include "head/state/observed.h"

#include <cstddef>
#include <set>

#include "absl/strings/str_cat.h"

#include "common/host_port.h"
#include "common/node_labels.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr size_t kNodeTextBytesMax = 256;
constexpr size_t kDevicesMax = 1'024;
constexpr size_t kPeersMax = 64;  // of one device

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
    COHORT_RETURN_IF_ERROR(CheckText("device address", device.pci_bus_id));
    COHORT_RETURN_IF_ERROR(CheckText("device parent", device.parent));
    if (device.nvlink_peers.size() > kPeersMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the node's device ", device.id, " has ", device.nvlink_peers.size(),
          " NVLink peers, at most ", kPeersMax, " are possible"));
    }
    for (const std::string& peer : device.nvlink_peers) {
      COHORT_RETURN_IF_ERROR(CheckText("NVLink peer", peer));
    }
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

absl::Status CheckTaints(const std::vector<Taint>& taints) {
  if (taints.size() > kTaintsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node has ", taints.size(), " taints, at most ",
                     kTaintsMax, " are possible"));
  }
  for (const Taint& taint : taints) {
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

absl::Status CheckAttempt(const ObservedAttempt& attempt) {
  const auto wrong = [&](absl::string_view what, int64_t number) {
    return absl::InvalidArgumentError(
        absl::StrCat("the node says of attempt ", attempt.attempt.ToHex(), ": ",
                     what, " ", number, ", which cannot be"));
  };
  if (attempt.attempt.IsNil()) {
    return absl::InvalidArgumentError("the node has an attempt without an id");
  }
  if (attempt.master_port < 0 || attempt.master_port > 65'535) {
    return wrong("port", attempt.master_port);
  }
  std::set<int> ranks;
  for (const ObservedRank& rank : attempt.ranks) {
    if (rank.rank < 0) return wrong("rank", rank.rank);
    if (!ranks.insert(rank.rank).second) return wrong("twice rank", rank.rank);
    if (rank.pid < 0) return wrong("pid", rank.pid);
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
  COHORT_RETURN_IF_ERROR(
      Annotate(CheckNodeLabels(registration.labels), "the node's labels"));
  COHORT_RETURN_IF_ERROR(
      Annotate(registration.resources.Validate(), "the node's resources"));
  COHORT_RETURN_IF_ERROR(CheckText("build", registration.build));
  COHORT_RETURN_IF_ERROR(CheckTaints(registration.taints));
  COHORT_RETURN_IF_ERROR(CheckDevices(registration));
  return ValidateObserved(registration.observed);
}

absl::Status ValidateObserved(const Observed& observed) {
  if (observed.attempts.size() > kObservedAttemptsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the node has ", observed.attempts.size(), " attempts, at most ",
        kObservedAttemptsMax, " are possible"));
  }
  std::set<AttemptId> seen;
  for (const ObservedAttempt& attempt : observed.attempts) {
    COHORT_RETURN_IF_ERROR(CheckAttempt(attempt));
    if (!seen.insert(attempt.attempt).second) {
      return absl::InvalidArgumentError(absl::StrCat("the node names attempt ",
                                                     attempt.attempt.ToHex(),
                                                     " twice in one message"));
    }
  }
  return absl::OkStatus();
}

}  // namespace cohort::head
