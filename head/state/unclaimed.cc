#include "head/state/unclaimed.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

// Roughly what it takes to keep.
size_t BytesOf(const ObservedAttempt& observed) {
  size_t bytes = sizeof(ObservedAttempt) + observed.detail.size() +
                 observed.stderr_tail.size() + observed.generation.size();
  for (const ObservedRank& rank : observed.ranks) {
    bytes += sizeof(rank) + (rank.exit ? rank.exit->detail.size() : 0) +
             rank.gpu_why.size();
  }
  for (const MetricsReport& report : observed.metrics) {
    bytes += sizeof(report) + report.json.size();
  }
  for (const Checkpoint& checkpoint : observed.checkpoints) {
    bytes += sizeof(checkpoint) + checkpoint.path.size();
  }
  for (const PendingExchange& exchange : observed.exchanges) {
    bytes += sizeof(exchange) + exchange.tag.size() + exchange.blob.size();
  }
  if (observed.preflight.has_value()) {
    bytes +=
        observed.preflight->summary.size() + observed.preflight->json.size();
  }
  for (const std::string& path : observed.removed_checkpoints) {
    bytes += sizeof(path) + path.size();
  }
  if (!observed.wanted.has_value()) return bytes;
  const DesiredAttempt& wanted = *observed.wanted;
  bytes += sizeof(wanted) + wanted.job_name.size() +
           wanted.package_hash.size() + wanted.storage_path.size() +
           wanted.master_address.size();
  for (const std::string& word : wanted.command) {
    bytes += sizeof(word) + word.size();
  }
  for (const auto& [name, value] : wanted.environment) {
    bytes += sizeof(name) + name.size() + sizeof(value) + value.size();
  }
  for (const auto& [name, amount] : wanted.resources_per_rank) {
    bytes += sizeof(amount) + sizeof(name) + name.size();
  }
  for (const DesiredRank& rank : wanted.ranks) {
    bytes += sizeof(rank);
    for (const std::string& gpu : rank.gpu_ids) {
      bytes += sizeof(gpu) + gpu.size();
    }
  }
  return bytes;
}

absl::Status TooMuch(std::string what) {
  return SetReason(
      absl::ResourceExhaustedError(absl::StrCat(
          what,
          ": `cohort status` lists unclaimed attempts, `cohort adopt` and "
          "`cohort end` take them off it")),
      "too_many_unclaimed");
}

}  // namespace

void UnclaimedTable::Add(const AttemptRecord& attempt) {
  Entry& entry = Insert(attempt.id, attempt.job);
  entry.has_row = true;
  entry.since = attempt.unclaimed_since;
  for (const AttemptPart& part : attempt.parts) {
    entry.nodes.insert(part.node);
    by_node_[part.node].insert(attempt.id);
  }
}

absl::Status UnclaimedTable::CheckRoom(
    const NodeId& node,
    const std::vector<const ObservedAttempt*>& reports) const {
  if (reports.empty()) return absl::OkStatus();
  size_t strangers = strangers_;
  size_t more = 0;
  size_t less = 0;
  for (const ObservedAttempt* report : reports) {
    more += BytesOf(*report);
    const auto known = entries_.find(report->attempt);
    if (known == entries_.end()) {
      ++strangers;
      continue;
    }
    const auto before = known->second.seen.find(node);
    if (before == known->second.seen.end()) continue;
    less += BytesOf(before->second);
    // Kept when it is not said again.
    if (!report->wanted.has_value() && before->second.wanted.has_value()) {
      ObservedAttempt kept;
      kept.wanted = before->second.wanted;
      more += BytesOf(kept);
    }
  }
  const auto of_node = bytes_of_.find(node);
  const size_t bytes =
      (of_node == bytes_of_.end() ? 0 : of_node->second) + more - less;
  if (bytes > kNodeBytesMax) {
    return TooMuch(absl::StrCat("the node says ", bytes,
                                " bytes of its unclaimed attempts, at most ",
                                kNodeBytesMax, " are kept"));
  }
  if (bytes_ + more - less > kBytesMax || strangers > kStrangersMax) {
    return TooMuch(
        absl::StrCat("with the node's there would be ", strangers,
                     " unclaimed attempts that the store does not know, of ",
                     bytes_ + more - less, " bytes; at most ", kStrangersMax,
                     " and ", kBytesMax, " bytes are kept"));
  }
  return absl::OkStatus();
}

bool UnclaimedTable::Observe(const NodeId& node,
                             const ObservedAttempt& observed, absl::Time now) {
  auto found = entries_.find(observed.attempt);
  const bool is_new = found == entries_.end();
  if (is_new) {
    Insert(observed.attempt, observed.job).since = now;
    ++strangers_;
    found = entries_.find(observed.attempt);
  }
  Entry& entry = found->second;
  entry.missing.erase(node);
  std::optional<DesiredAttempt> wanted;
  if (const auto before = entry.seen.find(node); before != entry.seen.end()) {
    wanted = before->second.wanted;
  }
  DropReport(node, entry);
  by_node_[node].insert(observed.attempt);
  ObservedAttempt& seen = entry.seen[node];
  seen = observed;
  // It is not said each time.
  if (!seen.wanted.has_value()) seen.wanted = std::move(wanted);
  bytes_of_[node] += BytesOf(seen);
  bytes_ += BytesOf(seen);
  return is_new;
}

void UnclaimedTable::DropReport(const NodeId& node, Entry& entry) {
  const auto seen = entry.seen.find(node);
  if (seen == entry.seen.end()) return;
  const size_t bytes = BytesOf(seen->second);
  bytes_ -= bytes;
  const auto of_node = bytes_of_.find(node);
  of_node->second -= bytes;
  if (of_node->second == 0) bytes_of_.erase(of_node);
  entry.seen.erase(seen);
  LeaveNode(node, entry);
}

void UnclaimedTable::LeaveNode(const NodeId& node, const Entry& entry) {
  if (entry.nodes.contains(node) || entry.seen.contains(node)) return;
  const auto of_node = by_node_.find(node);
  if (of_node == by_node_.end()) return;
  of_node->second.erase(entry.attempt);
  if (of_node->second.empty()) by_node_.erase(of_node);
}

std::set<AttemptId> UnclaimedTable::On(const NodeId& node) const {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? std::set<AttemptId>() : found->second;
}

std::vector<JobId> UnclaimedTable::NoteFullSet(
    const NodeId& node, const std::set<AttemptId>& present) {
  std::vector<JobId> gone;
  for (const AttemptId& id : On(node)) {
    if (present.contains(id)) continue;
    const auto at = entries_.find(id);
    Entry& entry = at->second;
    DropReport(node, entry);
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

void UnclaimedTable::MarkEnding(const AttemptId& attempt) {
  Entry& entry = entries_.at(attempt);
  COHORT_CHECK(!entry.has_row) << attempt;
  entry.ending = true;
}

std::optional<JobId> UnclaimedTable::NoteGone(const NodeId& node,
                                              const AttemptId& attempt) {
  const auto found = entries_.find(attempt);
  if (found == entries_.end() || !found->second.ending) return std::nullopt;
  DropReport(node, found->second);
  if (!found->second.seen.empty()) return std::nullopt;
  return Extract(found).job;
}

std::vector<AttemptId> UnclaimedTable::EndingOn(const NodeId& node) const {
  std::vector<AttemptId> ending;
  for (const AttemptId& id : On(node)) {
    const Entry& entry = entries_.at(id);
    if (entry.ending && entry.seen.contains(node)) ending.push_back(id);
  }
  return ending;
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

std::vector<const UnclaimedTable::Entry*> UnclaimedTable::OfArray(
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

const UnclaimedTable::Entry* UnclaimedTable::KeepsBack(
    const JobRecord& job) const {
  const Entry* const entry = OfJob(job.id);
  const bool waits = job.state == JobState::kPending;
  return entry != nullptr && (waits || !entry->ending) ? entry : nullptr;
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
  Entry entry = at->second;
  while (!at->second.seen.empty()) {
    DropReport(NodeId(at->second.seen.begin()->first), at->second);
  }
  for (const NodeId& node : std::exchange(at->second.nodes, {})) {
    LeaveNode(node, at->second);
  }
  entries_.erase(at);
  if (!entry.has_row) --strangers_;
  const auto of_job = by_job_.find(entry.job);
  of_job->second.erase(entry.attempt);
  if (of_job->second.empty()) by_job_.erase(of_job);
  return entry;
}

const char* StateOf(const UnclaimedTable::Entry& entry, size_t nodes,
                    const std::set<NodeId>& away) {
  if (entry.ending) return "ENDING";
  size_t heard = entry.missing.size();
  bool running = false;
  bool prepared = false;
  bool ended = false;
  for (const auto& [node, observed] : entry.seen) {
    if (away.contains(node)) continue;
    ++heard;
    switch (observed.phase) {
      case ObservedPhase::kStarting:
      case ObservedPhase::kRunning:
        running = true;
        break;
      case ObservedPhase::kEnded:
        ended = true;
        break;
      default:
        prepared = true;
    }
  }
  if (heard < nodes) return "AWAY";
  if (running) return "RUNNING";
  if (prepared) return "PREPARED";
  return ended ? "ENDED" : "MISSING";
}

std::string UnclaimedReason(const UnclaimedTable::Entry& entry) {
  const std::string id = entry.attempt.ToHex();
  if (entry.ending) {
    return absl::StrCat("attempt ", id,
                        " was ended after the store was restored: the job goes "
                        "on once its nodes said that it is gone, or are dead");
  }
  return absl::StrCat("attempt ", id,
                      " is unclaimed since the store was restored: `cohort "
                      "adopt ",
                      id, "` goes on with it, `cohort end ", id, "` ends it");
}

}  // namespace cohort::head
