#include "head/state/drain_order.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

#include "common/printable_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kReasonBytesMax = 1'024;
// Beyond it nobody waits, and wall times of rows end.
constexpr absl::Duration kDeadlineMax = absl::Hours(24 * 366 * 100);

}  // namespace

absl::Status ValidateDrainOrder(const DrainOrder& order) {
  if (order.reason.size() > kReasonBytesMax || !IsPrintableUtf8(order.reason)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the reason of a drain is one line of printable UTF-8, at "
                     "most ",
                     kReasonBytesMax, " bytes"));
  }
  const bool none = order.deadline == absl::InfiniteDuration();
  if (order.deadline < absl::ZeroDuration() ||
      (!none && order.deadline > kDeadlineMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the deadline of a drain is 0 to 100 years from now, not ",
                     absl::FormatDuration(order.deadline)));
  }
  return absl::OkStatus();
}

absl::Duration RestOf(const Drain& drain, absl::Time now) {
  if (!drain.has_deadline()) return absl::InfiniteDuration();
  const absl::Time deadline = rpc::FromWire(drain.deadline());
  return std::clamp(deadline - now, absl::ZeroDuration(),
                    std::max(deadline - rpc::FromWire(drain.asked_at()),
                             absl::ZeroDuration()));
}

}  // namespace cohort::head
