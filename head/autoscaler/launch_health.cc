#include "head/autoscaler/launch_health.h"

#include <algorithm>

namespace cohort::head {
namespace {

constexpr absl::Duration kBackoffMin = absl::Seconds(5);
constexpr absl::Duration kBackoffMax = absl::Minutes(5);

}  // namespace

absl::Duration ProviderBackoff(int failures) {
  absl::Duration backoff = kBackoffMin;
  for (int i = 1; i < failures && backoff < kBackoffMax; ++i) backoff *= 2;
  return std::min(backoff, kBackoffMax);
}

void LaunchHealth::NoteFailure(const std::string& type, absl::Time decided_at,
                               const std::string& why) {
  OfType& health = types_[type];
  health.failure = why;
  // What was launched along with one that failed says nothing new.
  if (health.failures > 0 && decided_at <= health.failed_at) return;
  health.failed_at = clock_.Wall();
  const absl::Duration backoff = ProviderBackoff(++health.failures);
  health.again_at = clock_.Monotonic() + backoff;
  health.again_at_wall = clock_.Wall() + backoff;
}

void LaunchHealth::NoteSuccess(const std::string& type, absl::Duration took) {
  OfType& health = types_[type];
  health.failures = 0;
  health.failure.clear();
  health.again_at = absl::ZeroDuration();
  took = std::max(took, absl::ZeroDuration());
  // The last ones count more.
  health.usual = health.usual == absl::ZeroDuration()
                     ? took
                     : 0.7 * health.usual + 0.3 * took;
}

bool LaunchHealth::BacksOff(const std::string& type) const {
  const auto found = types_.find(type);
  return found != types_.end() && clock_.Monotonic() < found->second.again_at;
}

}  // namespace cohort::head
