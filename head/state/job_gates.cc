#include "head/state/job_gates.h"

#include <algorithm>
#include <optional>

#include "rpc/enum_text.h"

namespace cohort::head {

void JobGates::Added(const JobRecord& job) {
  for (JobGate* const gate : gates_) gate->Added(job);
}

bool JobGates::Pass(const JobRecord& job) {
  WaitKind kept = v1::WAIT_KIND_UNSPECIFIED;
  for (JobGate* const gate : gates_) {
    if (kept != v1::WAIT_KIND_UNSPECIFIED) {
      gate->KeptBefore(job);
    } else if (!gate->Pass(job)) {
      kept = gate->kind();
    }
  }
  jobs_.SetGate(job.id, kept);
  return kept == v1::WAIT_KIND_UNSPECIFIED;
}

void JobGates::Leave(const JobRecord& job) {
  for (JobGate* const gate : gates_) gate->Leave(job);
  jobs_.SetGate(job.id, v1::WAIT_KIND_UNSPECIFIED);
}

void JobGates::Ended(const JobRecord& job) {
  for (JobGate* const gate : gates_) gate->Ended(job);
}

std::vector<JobId> JobGates::TakeOpened() {
  std::vector<JobId> opened;
  for (JobGate* const gate : gates_) {
    const std::vector<JobId> more = gate->TakeOpened();
    opened.insert(opened.end(), more.begin(), more.end());
  }
  return opened;
}

std::map<std::string, int64_t> JobGates::Counts() const {
  std::map<std::string, int64_t> counts;
  for (const JobGate* const gate : gates_) {
    counts[LowerEnumText(gate->kind())] = jobs_.CountAt(gate->kind());
  }
  return counts;
}

WaitKind JobGates::PhaseOf(const JobRecord& job) const {
  for (const JobGate* const gate : gates_) {
    if (gate->Keeps(job)) return gate->kind();
  }
  return v1::WAIT_KIND_RESOURCES;
}

std::vector<Wait> JobGates::WaitsOf(const JobRecord& job) const {
  std::vector<Wait> waits;
  for (const JobGate* const gate : gates_) {
    std::optional<Wait> wait = gate->WaitOf(job);
    if (!wait.has_value()) continue;
    waits.push_back(*std::move(wait));
    // What runs of it already may be all that it needs.
    if (gate->kind() == v1::WAIT_KIND_ORPHAN) break;
  }
  return waits;
}

std::vector<std::pair<WaitKind, JobGate::Elements>> JobGates::ElementsOf(
    const JobId& array, int64_t pending) const {
  std::vector<std::pair<WaitKind, JobGate::Elements>> waiting;
  for (const JobGate* const gate : gates_) {
    const JobGate::Elements elements = gate->ElementsOf(array, pending);
    if (elements.count == 0) continue;
    waiting.emplace_back(gate->kind(), elements);
    pending -= elements.count;
  }
  std::reverse(waiting.begin(), waiting.end());
  return waiting;
}

}  // namespace cohort::head
