#include "actor/fan_out.h"

#include "actor/reducer.h"

namespace cohort::actor {

FanOut::FanOut(size_t parts, std::string reducer, Ends ends, Done done)
    : reducer_(std::move(reducer)),
      ends_(ends),
      done_(std::move(done)),
      results_(parts),
      left_(parts) {}

void FanOut::Set(size_t part, SliceResult result) {
  const bool has_failed =
      !result.status.ok() && ends_ == Ends::kWithFirstFailure;
  Done done;
  std::vector<SliceResult> results;
  // Destroyed without the lock.
  std::vector<std::pair<std::shared_ptr<CallTarget>, uint64_t>> rest;
  {
    MutexLock lock(mutex_);
    --left_;
    if (done_ == nullptr) return;
    const bool is_last = left_ == 0;
    if (!has_failed) {
      results_[part] = std::move(result);
      if (!is_last) return;
    }
    done = std::exchange(done_, nullptr);
    results.swap(results_);
    rest.swap(under_way_);
  }
  if (has_failed) return std::move(done)(std::move(result));
  std::move(done)(Combined(std::move(results)));
}

SliceResult FanOut::Combined(std::vector<SliceResult> results) const {
  SliceResult all;
  for (SliceResult& each : results) {
    for (std::string& value : each.values) {
      if (reducer_.empty() || all.values.empty()) {
        all.values.push_back(std::move(value));
        continue;
      }
      absl::StatusOr<std::string> one =
          Reduced(reducer_, all.values.front(), value);
      if (!one.ok()) return {.status = std::move(one).status(), .values = {}};
      all.values.front() = *std::move(one);
    }
  }
  return all;
}

void FanOut::Carries(std::shared_ptr<CallTarget> target, uint64_t call) {
  {
    MutexLock lock(mutex_);
    if (done_ == nullptr) return;
    if (!cancelled_) {
      under_way_.emplace_back(std::move(target), call);
      return;
    }
  }
  target->Cancel(call);
}

void FanOut::Cancel() {
  std::vector<std::pair<std::shared_ptr<CallTarget>, uint64_t>> under_way;
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    under_way = under_way_;
  }
  for (const auto& [target, call] : under_way) target->Cancel(call);
}

}  // namespace cohort::actor
