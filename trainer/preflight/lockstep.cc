#include "trainer/preflight/lockstep.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "trainer/comm/gather.h"

namespace cohort::trainer {

Exchange Lockstep::With(int peer, int steps_max) {
  return [this, peer, steps_max](
             absl::string_view tag, std::string mine,
             absl::Duration) -> absl::StatusOr<std::vector<std::string>> {
    if (steps_ >= steps_max) {
      return absl::InternalError(
          absl::StrCat("an exchange of ", tag, " beyond step ", steps_max));
    }
    // A byte in front: an empty blob counts as missing.
    COHORT_ASSIGN_OR_RETURN(std::vector<std::string> all,
                            Step(absl::StrCat("+", mine)));
    const std::string& theirs = all[peer];
    if (theirs.empty()) {
      return absl::UnavailableError(
          absl::StrCat("rank ", peer, " did not connect"));
    }
    std::vector<std::string> both = {mine, theirs.substr(1)};
    if (peer < all_.rank()) std::swap(both[0], both[1]);
    return both;
  };
}

absl::Status Lockstep::ComeTo(int steps) {
  while (status_.ok() && steps_ < steps) Step("").status().IgnoreError();
  return status_;
}

absl::StatusOr<std::vector<std::string>> Lockstep::Step(
    absl::string_view mine) {
  COHORT_RETURN_IF_ERROR(status_);
  ++steps_;
  auto blobs = GatherBlobs(all_, mine, kBlobBytesMax + 1, deadline_);
  // One that was too large is this pair's fault, and all took the step.
  if (!absl::IsInvalidArgument(blobs.status())) status_ = blobs.status();
  return blobs;
}

}  // namespace cohort::trainer
