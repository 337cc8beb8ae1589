#include "head/options.h"

#include "absl/strings/str_cat.h"

#include "common/duration_text.h"
#include "common/status_macros.h"

namespace cohort::head {
namespace {

// Below it heartbeats would be the head's main work; above it nobody would call
// a dead node dead.
constexpr absl::Duration kNodeTimeoutMin = absl::Milliseconds(100);
constexpr absl::Duration kNodeTimeoutMax = absl::Hours(24);

// The bytes of their rows are bounded besides.
constexpr int64_t kKeepJobsMax = 1'000'000;
// Who waited for a job through a restart of the head still learns its end.
constexpr absl::Duration kKeepForMin = absl::Minutes(1);

constexpr uint16_t kHttpPort = 7711;

absl::Status CheckBind(absl::string_view flag, const HostPort& address,
                       bool insecure) {
  if (address.IsLoopback() || !insecure) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, " ", address.ToString(),
      ": --insecure listens on loopback only; on a network anybody could read "
      "the credential (leave out --insecure)"));
}

}  // namespace

HostPort HeadOptions::HttpAddress() const {
  return http_address.value_or(
      HostPort{.host = "127.0.0.1",
               .port = address.port == 0 ? uint16_t{0} : kHttpPort});
}

absl::Status HeadOptions::Validate() const {
  if (node_timeout < kNodeTimeoutMin || node_timeout > kNodeTimeoutMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node-timeout ", DurationToText(node_timeout),
                     ": between ", DurationToText(kNodeTimeoutMin), " and ",
                     DurationToText(kNodeTimeoutMax)));
  }
  if (keep_jobs < 1 || keep_jobs > kKeepJobsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--keep-jobs ", keep_jobs, ": between 1 and ", kKeepJobsMax));
  }
  if (keep_for < kKeepForMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("--keep-for ", DurationToText(keep_for), ": at least ",
                     DurationToText(kKeepForMin)));
  }
  COHORT_RETURN_IF_ERROR(CheckBind("--address", address, insecure));
  COHORT_RETURN_IF_ERROR(CheckBind("--http-address", HttpAddress(), insecure));
  if (address.port != 0 && address == HttpAddress()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--address and --http-address are both ",
                     address.ToString(), ": give each a port of its own"));
  }
  return absl::OkStatus();
}

}  // namespace cohort::head
