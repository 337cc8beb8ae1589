#include "head/options.h"

#include "absl/strings/str_cat.h"

#include "common/duration_text.h"

namespace cohort::head {
namespace {

// Below it heartbeats would be the head's main work; above it nobody would call
// a dead node dead.
constexpr absl::Duration kNodeTimeoutMin = absl::Milliseconds(100);
constexpr absl::Duration kNodeTimeoutMax = absl::Hours(24);

}  // namespace

absl::Status HeadOptions::Validate() const {
  if (node_timeout < kNodeTimeoutMin || node_timeout > kNodeTimeoutMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node-timeout ", DurationToText(node_timeout),
                     ": between ", DurationToText(kNodeTimeoutMin), " and ",
                     DurationToText(kNodeTimeoutMax)));
  }
  if (!address.IsLoopback() && !insecure_bind) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--address ", address.ToString(),
        ": without TLS the head listens on loopback only; --insecure-bind "
        "listens there all the same, and whoever reads that network reads the "
        "credential"));
  }
  return absl::OkStatus();
}

}  // namespace cohort::head
