#include "head/state/orphans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "head/state/exchange_table.h"

namespace cohort::head {
namespace {

// What a node says once only and a later report of it lacks; beyond the bound
// of an attempt's exchanges the head would not take them either.
void KeepToldOnce(v1::ObservedPlace&& before, v1::ObservedPlace& seen) {
  for (v1::ObservedProcess& each : *seen.mutable_processes()) {
    for (v1::ObservedProcess& old : *before.mutable_processes()) {
      if (old.slot() == each.slot() &&
          old.incarnation() == each.incarnation() &&
          each.stderr_tail().empty()) {
        each.set_stderr_tail(std::move(*old.mutable_stderr_tail()));
      }
    }
  }
  size_t bytes = 0;
  for (const v1::PendingExchange& each : seen.exchanges()) {
    bytes += each.SpaceUsedLong();
  }
  for (v1::PendingExchange& each : *before.mutable_exchanges()) {
    bytes += each.SpaceUsedLong();
    if (bytes > ExchangeTable::kAttemptBytesMax) return;
    *seen.add_exchanges() = std::move(each);
  }
}

}  // namespace

void OrphanTable::Add(const AttemptRecord& attempt) {
  Entry& entry = Insert(attempt.id, attempt.job);
  entry.has_row = true;
  entry.since = attempt.orphaned_since;
  for (const Place& place : attempt.places) {
    entry.parts.emplace(place.node, Part{});
    by_node_[place.node].insert(attempt.id);
  }
}

bool OrphanTable::Observe(const NodeId& node, const v1::ObservedPlace& observed,
                          absl::Time now) {
  const AttemptId id = AttemptOf(observed);
  const bool is_new = !entries_.contains(id);
  if (is_new) {
    Insert(id, JobOf(observed)).since = now;
    ++rowless_;
  }
  Entry& entry = entries_.at(id);
  Part& part = entry.parts[node];
  by_node_[node].insert(id);
  v1::ObservedPlace seen;
  if (entry.has_row) {
    seen = observed;
    if (part.seen.has_value()) KeepToldOnce(*std::move(part.seen), seen);
  } else {
    seen.set_attempt_id(observed.attempt_id());
    seen.set_job_id(observed.job_id());
    seen.set_phase(observed.phase());
    for (const v1::ObservedProcess& each : observed.processes()) {
      seen.add_processes()->set_state(each.state());
    }
  }
  part = {.seen = std::move(seen), .missing = false};
  return is_new;
}

std::vector<JobId> OrphanTable::NoteFullSet(
    const NodeId& node, const std::set<AttemptId>& present) {
  std::vector<JobId> gone;
  for (const AttemptId& id : On(node)) {
    if (present.contains(id)) continue;
    Entry& entry = entries_.at(id);
    if (entry.has_row) {
      entry.parts.at(node) = {.seen = {}, .missing = true};
    } else if (const auto job = OnOrphanGone(node, id)) {
      gone.push_back(*job);
    }
  }
  return gone;
}

OrphanTable::Entry OrphanTable::Take(const AttemptId& attempt) {
  const auto found = entries_.find(attempt);
  COHORT_CHECK(found != entries_.end()) << attempt;
  return Extract(found);
}

void OrphanTable::MarkEnding(const AttemptId& attempt) {
  Entry& entry = entries_.at(attempt);
  COHORT_CHECK(!entry.has_row) << attempt;
  entry.ending = true;
}

std::optional<JobId> OrphanTable::OnOrphanGone(const NodeId& node,
                                               const AttemptId& attempt) {
  const auto found = entries_.find(attempt);
  if (found == entries_.end() || found->second.has_row) return std::nullopt;
  found->second.parts.erase(node);
  LeaveNode(node, attempt);
  if (!found->second.parts.empty()) return std::nullopt;
  return Extract(found).job;
}

std::vector<AttemptId> OrphanTable::EndingOn(const NodeId& node) const {
  std::vector<AttemptId> ending;
  for (const AttemptId& id : On(node)) {
    if (entries_.at(id).ending) ending.push_back(id);
  }
  return ending;
}

const OrphanTable::Entry* OrphanTable::Find(const AttemptId& attempt) const {
  const auto found = entries_.find(attempt);
  return found == entries_.end() ? nullptr : &found->second;
}

const OrphanTable::Entry* OrphanTable::OfJob(const JobId& job) const {
  const auto found = by_job_.find(job);
  return found == by_job_.end() ? nullptr : Find(*found->second.begin());
}

std::vector<const OrphanTable::Entry*> OrphanTable::OfArray(
    const JobId& array) const {
  std::vector<const Entry*> entries;
  for (auto at = by_job_.lower_bound(array);
       at != by_job_.end() && at->first.array() == array; ++at) {
    for (const AttemptId& attempt : at->second) {
      entries.push_back(Find(attempt));
    }
  }
  return entries;
}

const OrphanTable::Entry* OrphanTable::KeepsBack(const JobRecord& job) const {
  const Entry* const entry = OfJob(job.id);
  const bool waits = job.row.state() == v1::JOB_STATE_PENDING;
  return entry != nullptr && (waits || !entry->ending) ? entry : nullptr;
}

OrphanTable::Entry& OrphanTable::Insert(const AttemptId& attempt,
                                        const JobId& job) {
  by_job_[job].insert(attempt);
  Entry& entry = entries_[attempt];
  entry.attempt = attempt;
  entry.job = job;
  return entry;
}

OrphanTable::Entry OrphanTable::Extract(
    std::map<AttemptId, Entry>::iterator at) {
  Entry entry = std::move(at->second);
  entries_.erase(at);
  for (const auto& [node, part] : entry.parts) LeaveNode(node, entry.attempt);
  if (!entry.has_row) --rowless_;
  const auto of_job = by_job_.find(entry.job);
  of_job->second.erase(entry.attempt);
  if (of_job->second.empty()) by_job_.erase(of_job);
  return entry;
}

std::set<AttemptId> OrphanTable::On(const NodeId& node) const {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? std::set<AttemptId>() : found->second;
}

void OrphanTable::LeaveNode(const NodeId& node, const AttemptId& attempt) {
  const auto of_node = by_node_.find(node);
  if (of_node == by_node_.end()) return;
  of_node->second.erase(attempt);
  if (of_node->second.empty()) by_node_.erase(of_node);
}

std::optional<Wait> OrphanTable::WaitOf(const JobRecord& job) const {
  const Entry* const entry = OfJob(job.id);
  if (entry == nullptr) return std::nullopt;
  const std::string id = entry->attempt.ToHex();
  Wait wait{.kind = kind(), .text = OrphanReason(*entry), .lifted_by = {}};
  if (entry->has_row) {
    wait.lifted_by.push_back({.kind = "ADOPT_ATTEMPT",
                              .text = absl::StrCat("adopt attempt ", id),
                              .how = absl::StrCat("cohort adopt ", id)});
  }
  if (!entry->ending) {  // else a person has spoken
    wait.lifted_by.push_back({.kind = "END_ATTEMPT",
                              .text = absl::StrCat("end attempt ", id),
                              .how = absl::StrCat("cohort end ", id)});
  }
  return wait;
}

const char* StateOf(const OrphanTable::Entry& entry,
                    const std::set<NodeId>& away) {
  if (entry.ending) return "ENDING";
  bool running = false;
  bool prepared = false;
  bool ended = false;
  for (const auto& [node, part] : entry.parts) {
    if (away.contains(node)) return "AWAY";
    if (part.missing) continue;
    if (!part.seen.has_value()) return "AWAY";
    const auto& all = part.seen->processes();
    const bool none_left =
        !all.empty() && std::all_of(all.begin(), all.end(), [](const auto& p) {
          return p.state() == v1::PROCESS_STATE_ENDED;
        });
    if (IsLive(*part.seen)) {
      running = true;
    } else if (none_left || part.seen->phase() == v1::PHASE_FAILED) {
      ended = true;
    } else {
      prepared = true;
    }
  }
  if (running) return "RUNNING";
  if (prepared) return "PREPARED";
  return ended ? "ENDED" : "MISSING";
}

std::string OrphanReason(const OrphanTable::Entry& entry) {
  const std::string id = entry.attempt.ToHex();
  if (entry.ending) {
    return absl::StrCat("attempt ", id,
                        " was ended after the store was restored: the job goes "
                        "on once its nodes said that it is gone, or are dead");
  }
  if (!entry.has_row) {
    return absl::StrCat("attempt ", id,
                        " is an orphan that the restored store has no record "
                        "of: the job goes on once it has ended; `cohort end ",
                        id, "` ends it");
  }
  return absl::StrCat("attempt ", id,
                      " is an orphan since the store was restored: `cohort "
                      "adopt ",
                      id, "` goes on with it, `cohort end ", id, "` ends it");
}

}  // namespace cohort::head
