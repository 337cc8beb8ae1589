#include "head/state/deadlines.h"

namespace cohort::head {
namespace {

bool IsSilence(DueKind kind) {
  return kind == DueKind::kSuspect || kind == DueKind::kDead ||
         kind == DueKind::kDriver;
}

}  // namespace

Deadlines::Deadlines(absl::Duration tick_period, const Clock& clock)
    : tick_period_(tick_period), clock_(clock), last_tick_(clock.Monotonic()) {}

absl::Duration Deadlines::Now(DueKind kind) const {
  if (kind == DueKind::kStartTime) return clock_.Wall() - absl::UnixEpoch();
  return clock_.Monotonic() -
         (IsSilence(kind) ? paused_ : absl::ZeroDuration());
}

void Deadlines::Set(const Due& due, absl::Duration left) {
  if (left == absl::InfiniteDuration()) return Erase(due);
  Line& line = LineOf(due.kind);
  const absl::Duration time = Now(due.kind) + left;
  const auto [known, is_new] = line.times.try_emplace(due, time);
  if (!is_new) {
    line.order.erase({known->second, due});
    known->second = time;
  }
  line.order.emplace(time, due);
}

void Deadlines::Erase(const Due& due) {
  Line& line = LineOf(due.kind);
  const auto known = line.times.find(due);
  if (known == line.times.end()) return;
  line.order.erase({known->second, due});
  line.times.erase(known);
}

std::optional<absl::Duration> Deadlines::LeftOf(const Due& due) const {
  const auto known = Of(due.kind).find(due);
  if (known == Of(due.kind).end()) return std::nullopt;
  return known->second - Now(due.kind);
}

void Deadlines::Tick() {
  const absl::Duration before = std::exchange(last_tick_, clock_.Monotonic());
  const absl::Duration gap = last_tick_ - before;
  if (gap > 2 * tick_period_) {
    // This process did not run: what it did not hear then proves nothing.
    paused_ += gap;
  } else {
    silent_by_ = before - paused_;
  }
}

std::vector<Due> Deadlines::TakeDue(DueKind kind, size_t most) {
  const absl::Duration by = IsSilence(kind) ? silent_by_ : Now(kind);
  Line& line = LineOf(kind);
  std::vector<Due> due;
  while (!line.order.empty() && line.order.begin()->first <= by &&
         due.size() < most) {
    due.push_back(line.order.extract(line.order.begin()).value().second);
    line.times.erase(due.back());
  }
  return due;
}

}  // namespace cohort::head
