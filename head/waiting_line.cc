#include "head/waiting_line.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"

namespace cohort::head {

std::string WaitingLine::KeyOf(const JobSpec& spec) {
  std::string key =
      absl::StrCat(static_cast<int>(spec.strategy), "/", spec.num_workers);
  for (const auto& [name, amount] : spec.resources_per_worker) {
    absl::StrAppend(&key, "/", name, "=", amount.ten_thousandths());
  }
  return key;
}

void WaitingLine::Add(const JobRecord& job) {
  const std::string key = KeyOf(job.spec);
  Shape& shape = shapes_[key];
  Unindex(shape);
  COHORT_CHECK(shape.jobs.emplace(job.sequence, job.id).second) << job.id;
  ++size_;
  Index(key, shape);
}

void WaitingLine::Remove(const JobRecord& job) {
  const auto found = shapes_.find(KeyOf(job.spec));
  if (found == shapes_.end()) return;
  Shape& shape = found->second;
  if (!shape.jobs.contains(job.sequence)) return;
  Unindex(shape);
  shape.jobs.erase(job.sequence);
  --size_;
  if (shape.jobs.empty()) {
    shapes_.erase(found);
  } else {
    Index(found->first, shape);
  }
}

void WaitingLine::Index(const std::string& key, const Shape& shape) {
  if (!shape.refused) heads_.emplace(shape.jobs.begin()->first, key);
}

void WaitingLine::Unindex(const Shape& shape) {
  if (!shape.jobs.empty()) heads_.erase(shape.jobs.begin()->first);
}

std::optional<JobId> WaitingLine::Next() const {
  if (heads_.empty()) return std::nullopt;
  return shapes_.at(heads_.begin()->second).jobs.begin()->second;
}

void WaitingLine::Refuse(const JobRecord& job, Refusal refusal) {
  Shape& shape = shapes_.at(KeyOf(job.spec));
  Unindex(shape);
  shape.refused = true;
  shape.reason = std::move(refusal.reason);
}

void WaitingLine::Freed() {
  for (auto& [key, shape] : shapes_) {
    if (!shape.refused) continue;
    shape.refused = false;
    Index(key, shape);
  }
}

std::string WaitingLine::ReasonOf(const JobRecord& job) const {
  const auto found = shapes_.find(KeyOf(job.spec));
  return found == shapes_.end() ? "" : found->second.reason;
}

GangRequest RequestOf(const JobSpec& spec) {
  return {.num_workers = spec.num_workers,
          .per_worker = spec.resources_per_worker,
          .strategy = spec.strategy};
}

}  // namespace cohort::head
