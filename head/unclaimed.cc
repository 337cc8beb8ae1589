#include "head/unclaimed.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

absl::Status CannotAdopt(const AttemptId& attempt, absl::string_view why) {
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat("attempt ", attempt.ToHex(),
                                                 " cannot be adopted: ", why)),
      "cannot_adopt");
}

bool HasStarted(ObservedPhase phase) {
  return phase == ObservedPhase::kStarting ||
         phase == ObservedPhase::kRunning || phase == ObservedPhase::kEnded;
}

}  // namespace

void UnclaimedTable::Add(const AttemptRecord& attempt) {
  Entry& entry = Insert(attempt.id, attempt.job);
  entry.has_row = true;
  entry.since = attempt.unclaimed_since;
  for (const AttemptPart& part : attempt.parts) entry.nodes.insert(part.node);
}

bool UnclaimedTable::Observe(const NodeId& node,
                             const ObservedAttempt& observed, absl::Time now) {
  auto found = entries_.find(observed.attempt);
  const bool is_new = found == entries_.end();
  if (is_new) {
    if (strangers_ >= kStrangersMax) return false;
    Insert(observed.attempt, observed.job).since = now;
    ++strangers_;
    found = entries_.find(observed.attempt);
  }
  Entry& entry = found->second;
  entry.missing.erase(node);
  ObservedAttempt& seen = entry.seen[node];
  std::optional<DesiredAttempt> wanted = std::move(seen.wanted);
  seen = observed;
  // It is not said each time.
  if (!seen.wanted.has_value()) seen.wanted = std::move(wanted);
  return is_new;
}

std::vector<JobId> UnclaimedTable::NoteFullSet(
    const NodeId& node, const std::set<AttemptId>& present) {
  std::vector<JobId> gone;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto at = it++;
    Entry& entry = at->second;
    if (present.contains(at->first)) continue;
    entry.seen.erase(node);
    if (entry.nodes.contains(node)) entry.missing.insert(node);
    if (entry.has_row || !entry.seen.empty()) continue;
    gone.push_back(entry.job);
    Extract(at);
  }
  return gone;
}

UnclaimedTable::Entry UnclaimedTable::Take(const AttemptId& attempt) {
  const auto found = entries_.find(attempt);
  COHORT_CHECK(found != entries_.end()) << attempt;
  return Extract(found);
}

const UnclaimedTable::Entry* UnclaimedTable::Find(
    const AttemptId& attempt) const {
  const auto found = entries_.find(attempt);
  return found == entries_.end() ? nullptr : &found->second;
}

const UnclaimedTable::Entry* UnclaimedTable::OfJob(const JobId& job) const {
  const auto found = by_job_.find(job);
  return found == by_job_.end() ? nullptr : Find(*found->second.begin());
}

UnclaimedTable::Entry& UnclaimedTable::Insert(const AttemptId& attempt,
                                              const JobId& job) {
  by_job_[job].insert(attempt);
  Entry& entry = entries_[attempt];
  entry.attempt = attempt;
  entry.job = job;
  return entry;
}

UnclaimedTable::Entry UnclaimedTable::Extract(
    std::map<AttemptId, Entry>::iterator at) {
  Entry entry = std::move(at->second);
  entries_.erase(at);
  if (!entry.has_row) --strangers_;
  const auto of_job = by_job_.find(entry.job);
  of_job->second.erase(entry.attempt);
  if (of_job->second.empty()) by_job_.erase(of_job);
  return entry;
}

const char* StateOf(const UnclaimedTable::Entry& entry, size_t nodes) {
  bool prepared = false;
  bool ended = false;
  for (const auto& [node, observed] : entry.seen) {
    if (observed.phase == ObservedPhase::kStarting ||
        observed.phase == ObservedPhase::kRunning) {
      return "RUNNING";
    }
    ended = ended || observed.phase == ObservedPhase::kEnded;
    prepared = prepared || observed.phase != ObservedPhase::kEnded;
  }
  if (entry.seen.size() + entry.missing.size() < nodes) return "AWAY";
  if (prepared) return "PREPARED";
  return ended ? "ENDED" : "MISSING";
}

std::string UnclaimedReason(const UnclaimedTable::Entry& entry) {
  const std::string id = entry.attempt.ToHex();
  return absl::StrCat("attempt ", id,
                      " is unclaimed since the store was restored: `cohort "
                      "adopt ",
                      id, "` goes on with it, `cohort end ", id, "` ends it");
}

AttemptPart PartOf(const NodeId& node, const DesiredAttempt& wanted) {
  AttemptPart part;
  part.node = node;
  const Amount gpus = wanted.resources_per_rank.Get(kGpu);
  const Amount whole = Amount::FromUnits(1);
  for (const DesiredRank& rank : wanted.ranks) {
    part.resources.Add(wanted.resources_per_rank);
    for (const std::string& gpu : rank.gpu_ids) {
      part.devices[gpu] += std::min(gpus, whole);
    }
    AttemptRank& added = part.ranks.emplace_back();
    added.rank = rank.rank;
    added.local_rank = rank.local_rank;
    added.gpu_ids = rank.gpu_ids;
  }
  return part;
}

absl::StatusOr<AttemptRecord> RecordOf(const UnclaimedTable::Entry& entry) {
  if (entry.seen.empty()) {
    return CannotAdopt(entry.attempt, "no node has it any more");
  }
  AttemptRecord record;
  record.id = entry.attempt;
  record.job = entry.job;
  bool started = true;
  std::map<int, AttemptPart> parts;  // by node rank
  int node_count = 0;
  for (const auto& [node, observed] : entry.seen) {
    if (!observed.wanted.has_value()) {
      return CannotAdopt(entry.attempt,
                         "its node has not said what it is, try again");
    }
    const DesiredAttempt& wanted = *observed.wanted;
    record.number = wanted.number;
    record.epoch = wanted.epoch;
    if (!wanted.master_address.empty()) {
      record.master_address = wanted.master_address;
      record.master_port = wanted.master_port;
    }
    node_count = wanted.node_count;
    started = started && HasStarted(observed.phase);
    AttemptPart part = PartOf(node, wanted);
    part.master_port = observed.master_port;
    parts.emplace(wanted.node_rank, std::move(part));
  }
  if (node_count < 1 || parts.size() != static_cast<size_t>(node_count)) {
    return CannotAdopt(
        entry.attempt,
        absl::StrCat("it is on ", node_count, " nodes, of which ", parts.size(),
                     " are here: start the workers of the "
                     "others, or end it"));
  }
  if (record.number < 1 || record.epoch < 1) {
    return CannotAdopt(entry.attempt, "its node says nonsense of it");
  }
  if (!started) {
    return CannotAdopt(entry.attempt,
                       "it never started on all of its nodes: end it");
  }
  for (auto& [rank, part] : parts) record.parts.push_back(std::move(part));
  record.state = AttemptState::kRunning;
  return record;
}

JobRecord JobOf(const UnclaimedTable::Entry& entry) {
  const DesiredAttempt& wanted = *entry.seen.begin()->second.wanted;
  JobRecord job;
  job.id = entry.job;
  JobSpec& spec = job.spec.Own();
  spec.name = wanted.job_name;
  spec.command = wanted.command;
  spec.environment = wanted.environment;
  spec.num_workers = wanted.world_size;
  spec.resources_per_worker = wanted.resources_per_rank;
  spec.storage_path = wanted.storage_path;
  spec.max_failures = wanted.max_failures;
  spec.package_hash = wanted.package_hash;
  return job;
}

}  // namespace cohort::head
