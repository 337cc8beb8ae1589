#include "head/state/hold_gate.h"

#include "absl/strings/str_cat.h"

namespace cohort::head {

void HoldGate::Note(const JobRecord& job, bool held) {
  if (!job.id.IsElement()) return;
  if (held) {
    held_[job.id.array()].insert(job.id);
    return;
  }
  const auto found = held_.find(job.id.array());
  if (found == held_.end()) return;
  found->second.erase(job.id);
  if (found->second.empty()) held_.erase(found);
}

bool HoldGate::Pass(const JobRecord& job) {
  Note(job, job.row.held());
  return !job.row.held();
}

std::optional<Wait> HoldGate::WaitOf(const JobRecord& job) const {
  if (!job.row.held()) return std::nullopt;
  return Wait{.kind = kind(),
              .text = absl::StrCat("held by ", job.row.held_by()),
              .lifted_by = {{.kind = "RELEASE_HOLD",
                             .text = "release it",
                             .how = absl::StrCat("cohort jobs release ",
                                                 job.id.ToText())}}};
}

JobGate::Elements HoldGate::ElementsOf(const JobId& array,
                                       int64_t /*rest*/) const {
  const auto found = held_.find(array);
  if (found == held_.end()) return {};
  return {.count = static_cast<int64_t>(found->second.size()),
          .first = *found->second.begin()};
}

}  // namespace cohort::head
