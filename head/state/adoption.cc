#include "head/state/adoption.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::head {
namespace {

absl::Status CannotAdopt(const AttemptId& attempt, absl::string_view why) {
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat("attempt ", attempt.ToHex(),
                                                 " cannot be adopted: ", why)),
      "cannot_adopt");
}

// GPUs of a rank that was given `gpus`: whole ones, or a share of one.
size_t DevicesFor(Amount gpus) {
  const Amount whole = Amount::FromUnits(1);
  return gpus.IsZero()  ? 0
         : gpus < whole ? 1
                        : static_cast<size_t>(gpus.WholeUnits());
}

// Whether two nodes speak of one attempt.
bool Agree(const DesiredAttempt& a, const DesiredAttempt& b) {
  return a.number == b.number && a.epoch == b.epoch &&
         a.world_size == b.world_size && a.node_count == b.node_count &&
         a.resources_per_rank == b.resources_per_rank;
}

// Adds the ranks that `node` has to `ranks`; why they cannot be, or nothing.
std::string TakeRanks(const NodeId& node, const DesiredAttempt& wanted,
                      std::set<int>& ranks) {
  const size_t devices = DevicesFor(wanted.resources_per_rank.Get(kGpu));
  for (const DesiredRank& rank : wanted.ranks) {
    if (rank.rank < 0 || rank.rank >= wanted.world_size ||
        rank.local_rank < 0) {
      return absl::StrCat("node ", node.ToHex(), " says that it has rank ",
                          rank.rank, " of ", wanted.world_size);
    }
    if (!ranks.insert(rank.rank).second) {
      return absl::StrCat("rank ", rank.rank, " is there twice, once on node ",
                          node.ToHex());
    }
    if (rank.gpu_ids.size() != devices) {
      return absl::StrCat("node ", node.ToHex(), " says that rank ", rank.rank,
                          " has ", rank.gpu_ids.size(), " GPUs and asked for ",
                          wanted.resources_per_rank.Get(kGpu).ToString());
    }
  }
  return "";
}

// Its ranks were begun there, whatever became of them.
bool HadRanks(ObservedPhase phase) {
  return phase == ObservedPhase::kStarting ||
         phase == ObservedPhase::kRunning || phase == ObservedPhase::kEnded;
}

}  // namespace

absl::Status CheckNotOver(const UnclaimedTable::Entry& entry,
                          const AttemptRecord& attempt) {
  if (attempt.state != AttemptState::kPreparing) return absl::OkStatus();
  for (const AttemptPart& part : attempt.parts) {
    if (entry.seen.contains(part.node)) continue;
    return CannotAdopt(entry.attempt,
                       "it had not started when the backup was made, and not "
                       "all of its nodes have it now: it may be over; end it");
  }
  return absl::OkStatus();
}

// Beyond any attempt of a job, and room to count on.
constexpr int kNumberMax = 1'000'000'000;

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
  std::set<int> ranks;
  int node_count = 0;
  const DesiredAttempt* first = nullptr;
  for (const auto& [node, observed] : entry.seen) {
    if (!observed.wanted.has_value()) {
      return CannotAdopt(entry.attempt,
                         "its node has not said what it is, try again");
    }
    const DesiredAttempt& wanted = *observed.wanted;
    if (first == nullptr) first = &wanted;
    if (observed.job != entry.job || wanted.job != entry.job ||
        wanted.attempt != entry.attempt || !Agree(wanted, *first)) {
      return CannotAdopt(
          entry.attempt,
          absl::StrCat("what node ", node.ToHex(),
                       " says of it contradicts itself or another node: end "
                       "it"));
    }
    const std::string wrong = TakeRanks(node, wanted, ranks);
    if (!wrong.empty()) return CannotAdopt(entry.attempt, wrong);
    record.number = wanted.number;
    record.epoch = wanted.epoch;
    if (!wanted.master_address.empty()) {
      record.master_address = wanted.master_address;
      record.master_port = wanted.master_port;
    }
    node_count = wanted.node_count;
    started = started && HadRanks(observed.phase);
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
  if (record.number < 1 || record.number > kNumberMax || record.epoch < 1 ||
      record.epoch > kNumberMax ||
      ranks.size() != static_cast<size_t>(first->world_size)) {
    return CannotAdopt(
        entry.attempt,
        absl::StrCat("its nodes say that it is number ", record.number,
                     " in epoch ", record.epoch, " with ", ranks.size(),
                     " ranks of ", first->world_size, ": end it"));
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
  spec.preflight = wanted.preflight;
  // Another goal's grace is not the job's.
  if (wanted.goal == Goal::kRun) {
    spec.grace = wanted.grace;
    spec.time_limit = wanted.time_limit;
  }
  return job;
}

}  // namespace cohort::head
