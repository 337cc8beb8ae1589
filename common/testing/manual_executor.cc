#include "common/testing/manual_executor.h"

#include <algorithm>

#include "absl/time/civil_time.h"

#include "common/check.h"

namespace cohort {
namespace {

constexpr absl::Duration kOrigin = absl::Hours(1);
constexpr int kTasksMax = 10'000'000;

}  // namespace

absl::Time ManualExecutor::DefaultWall() {
  return absl::FromCivil(absl::CivilSecond(2026, 1, 1), absl::UTCTimeZone());
}

ManualExecutor::ManualExecutor(absl::Time wall)
    : wall_at_zero_(wall - kOrigin), now_(kOrigin) {}

ManualExecutor::~ManualExecutor() {
  // One at a time: what a task holds may post when it dies.
  while (!tasks_.empty()) tasks_.extract(tasks_.begin());
}

void ManualExecutor::Post(Task task) {
  tasks_.emplace(std::make_pair(now_, next_++), std::move(task));
}

void ManualExecutor::PostAfter(absl::Duration delay, Task task) {
  const absl::Duration due = now_ + std::max(delay, absl::ZeroDuration());
  tasks_.emplace(std::make_pair(due, next_++), std::move(task));
}

bool ManualExecutor::RunOne() {
  if (tasks_.empty() || tasks_.begin()->first.first > now_) return false;
  auto node = tasks_.extract(tasks_.begin());
  std::move(node.mapped())();
  return true;
}

void ManualExecutor::RunUntilIdle() {
  for (int n = 0; RunOne(); ++n) {
    COHORT_CHECK(n < kTasksMax) << "tasks post each other forever";
  }
}

void ManualExecutor::AdvanceBy(absl::Duration step) {
  COHORT_CHECK(step >= absl::ZeroDuration());
  const absl::Duration end = now_ + step;
  RunUntilIdle();
  while (!tasks_.empty() && tasks_.begin()->first.first <= end) {
    now_ = std::max(now_, tasks_.begin()->first.first);
    RunUntilIdle();
  }
  now_ = end;
}

std::optional<absl::Duration> ManualExecutor::UntilNext() const {
  if (tasks_.empty()) return std::nullopt;
  return std::max(absl::ZeroDuration(), tasks_.begin()->first.first - now_);
}

}  // namespace cohort
