#include "head/state/drain_deadlines.h"

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

void DrainDeadlines::Clear(const NodeId& node) {
  due_.Erase(node);
  passed_.erase(node);
}

void DrainDeadlines::Set(const NodeId& node, absl::Duration deadline) {
  Clear(node);
  if (deadline == absl::InfiniteDuration()) return;
  due_.Set(node, clock_.Monotonic() + deadline);
}

void DrainDeadlines::Resume(const NodeId& node, const Drain& drain) {
  if (!drain.has_deadline()) return;
  const absl::Time deadline = rpc::FromWire(drain.deadline());
  Set(node, std::clamp(deadline - clock_.Wall(), absl::ZeroDuration(),
                       std::max(deadline - rpc::FromWire(drain.asked_at()),
                                absl::ZeroDuration())));
}

std::vector<NodeId> DrainDeadlines::TakeDue() {
  std::vector<NodeId> due = due_.TakeDue(clock_.Monotonic());
  passed_.insert(due.begin(), due.end());
  return due;
}

}  // namespace cohort::head
