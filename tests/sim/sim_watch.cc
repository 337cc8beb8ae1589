#include "tests/sim/sim_watch.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/array_spec.h"
#include "head/state/head_lives.h"
#include "head/state/job_spec.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"
#include "tests/sim/sim_invariants.h"

namespace cohort::sim {
namespace {

using head::AttemptRecord;
using head::AttemptState;
using head::ClusterState;
using head::JobRecord;
using head::JobState;
using head::NodeRecord;

// A tick, and the moment until the head is looked at.
constexpr absl::Duration kDeadlineSlack = absl::Seconds(1);

// Whether a process of the attempt has its place on the node.
bool LivesOn(const AttemptRecord& attempt, const NodeId& node) {
  return std::any_of(attempt.processes.begin(), attempt.processes.end(),
                     [&](const head::Process& process) {
                       return process.node == node && !process.over();
                     });
}

// Whether `job` takes one of its array's places.
bool TakesPlace(const ClusterState& state, const JobRecord& job,
                const std::function<bool(const JobRecord&)>& in_line) {
  if (head::HasEnded(job.row.state())) return false;
  return job.row.state() != v1::JOB_STATE_PENDING || in_line(job) ||
         state.gates().back_off().Keeps(job) ||
         state.orphans().OfJob(job.id) != nullptr;
}

bool ArrayIsFull(const ClusterState& state, const JobRecord& job,
                 const std::function<bool(const JobRecord&)>& in_line) {
  if (!job.id.IsElement()) return false;
  const auto spec = ArraySpec::Parse(job.spec->array());
  if (!spec.ok() || !spec->at_once.has_value()) return false;
  int64_t places = 0;
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    if (id.array() != job.id.array() || id == job.id) continue;
    places += TakesPlace(state, *state.jobs().Find(id), in_line);
  }
  return places >= static_cast<int64_t>(*spec->at_once);
}

// What but resources, a back-off and its array keeps it; empty: nothing.
std::string KeptBy(const ClusterState& state, const JobRecord& job) {
  if (job.row.held()) return "a hold";
  for (const head::Dependency& dependency : job.spec->after()) {
    if (!IsMet(state, dependency)) return "a job before it";
  }
  if (state.orphans().OfJob(job.id) != nullptr) return "an orphan";
  return "";
}

// Who waits and does not stand in line is noted at a gate, and counted there.
std::string CheckGates(const ClusterState& state) {
  std::map<head::WaitKind, int64_t> counts;
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    const head::WaitKind gate = state.jobs().GateOf(id);
    const bool is_noted = gate != v1::WAIT_KIND_UNSPECIFIED;
    const bool is_kept =
        job.row.state() == v1::JOB_STATE_PENDING && !state.line().Contains(job);
    if (is_noted) ++counts[gate];
    if (is_kept != is_noted && !state.WillEnd(job)) {
      return absl::StrCat("EL-1: job ", id.ToText(), " is noted at ",
                          EnumText(gate));
    }
  }
  for (const auto& [gate, count] : counts) {
    if (state.jobs().CountAt(gate) == count) continue;
    return absl::StrCat("EL-1: ", state.jobs().CountAt(gate),
                        " jobs are counted at ", EnumText(gate), " instead of ",
                        count);
  }
  return "";
}

}  // namespace

std::string CheckLine(const ClusterState& state,
                      const std::function<bool(const JobRecord&)>& in_line) {
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    if (job.row.state() != v1::JOB_STATE_PENDING || state.WillEnd(job)) {
      continue;
    }
    const std::string kept = KeptBy(state, job);
    const bool waits = state.gates().back_off().Keeps(job) ||
                       state.gates().start_times().Keeps(job);
    if (in_line(job)) {
      if (kept.empty() && !waits) continue;
      return absl::StrCat("EL-1: job ", id.ToText(),
                          " stands in line in spite ", "of ",
                          kept.empty() ? "its time" : kept);
    }
    if (kept.empty() && !waits && !ArrayIsFull(state, job, in_line)) {
      return absl::StrCat("EL-1: nothing keeps job ", id.ToText(),
                          ", and it does not stand in line");
    }
  }
  return CheckGates(state);
}

std::string CheckWoken(const ClusterState& state,
                       const head::PlacementIndex& nodes) {
  if (state.cluster().settling()) return "";
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    if (job.row.state() != v1::JOB_STATE_PENDING ||
        !state.line().Contains(job)) {
      continue;
    }
    const head::Placement placement =
        head::PlaceGang(nodes, head::RequestOf(job));
    if (std::holds_alternative<head::Plan>(placement)) {
      return absl::StrCat("PL-5: job ", id.ToText(),
                          " waits although there is room for it");
    }
  }
  return "";
}

std::string EpochWatch::Check(const ClusterState& state) {
  const uint64_t life = head::NonceOf(state.cluster());
  if (std::exchange(life_, life) != life) {
    seen_.clear();  // what was not durable is decided again
  }
  std::map<AttemptId, Seen> now;
  for (const auto& [id, attempt] : state.attempts().all()) {
    if (attempt.state != v1::ATTEMPT_STATE_RUNNING || attempt.orphaned()) {
      continue;
    }
    Seen& seen = now[id];
    seen.epoch = attempt.epoch;
    for (const head::Process& process : attempt.processes) {
      seen.members.push_back(head::MemberIncarnation(process));
    }
    const auto before = seen_.find(id);
    if (before == seen_.end()) continue;
    const bool same = before->second.members == seen.members;
    if (seen.epoch < before->second.epoch ||
        (seen.epoch == before->second.epoch && !same)) {
      return absl::StrCat("PR-4: attempt ", id.ToHex(), " has two memberships ",
                          "of epoch ", seen.epoch);
    }
  }
  seen_ = std::move(now);
  return "";
}

// ---- nodes that take nothing ----

std::string NodeWatch::Check(const ClusterState& state) {
  const uint64_t life = head::NonceOf(state.cluster());
  if (std::exchange(life_, life) != life) {
    // An attempt whose end was not durable is there again.
    closed_.clear();
    first_incarnation_ = state.cluster().next_incarnation();
  }
  for (const auto& [id, node] : state.nodes().records()) {
    const bool is_offered = state.nodes().IsOffered(id);
    if (is_offered && node.node.incarnation() < first_incarnation_) {
      return absl::StrCat("PL-3: ", node.node.name(),
                          " is offered before it has registered");
    }
    const std::string& not_ready = state.nodes().NotReadyBecause(id);
    if (is_offered && !node.node.has_drain() && not_ready.empty() &&
        node.state == v1::NODE_STATE_ALIVE) {
      closed_.erase(id);
      continue;
    }
    Closed now{.is_offered = is_offered,
               .not_ready = not_ready,
               .incarnation = node.node.incarnation(),
               .state = node.state,
               .drain = node.node.drain(),
               .attempts = {}};
    for (const AttemptId& attempt : state.attempts().OnNode(id)) {
      if (LivesOn(*state.attempts().Find(attempt), id)) {
        now.attempts.insert(attempt);
      }
    }
    const auto [closed, first] = closed_.try_emplace(id);
    // Closed for another reason, it may have been open in between.
    const bool is_same =
        !first && closed->second.is_offered == is_offered &&
        closed->second.not_ready == not_ready &&
        closed->second.incarnation == node.node.incarnation() &&
        closed->second.state == node.state &&
        closed->second.drain == node.node.drain();
    for (const AttemptId& attempt : now.attempts) {
      if (!is_same || closed->second.attempts.contains(attempt)) continue;
      return absl::StrCat("DR-1: attempt ", attempt.ToHex(), " was placed on ",
                          node.node.name(), ", which takes nothing");
    }
    closed->second = std::move(now);
  }
  return "";
}

// ---- devices that are fenced ----

namespace {

// Nobody gave it that now: it is what a node still has of before.
bool HasAsOrphan(const ClusterState& state, const NodeId& node,
                 const AttemptId& attempt, const std::string& device) {
  const auto* const held = state.nodes().FindOrphan(node, attempt);
  return held != nullptr &&
         std::any_of(
             held->processes.begin(), held->processes.end(),
             [&](const auto& each) { return each.second.contains(device); });
}

}  // namespace

std::string DeviceWatch::Check(const ClusterState& state) {
  const uint64_t life = head::NonceOf(state.cluster());
  if (std::exchange(life_, life) != life) {
    // An attempt whose end was not durable is there again.
    fenced_.clear();
  }
  for (const auto& [id, node] : state.nodes().records()) {
    for (const head::Device& device : node.node.devices()) {
      if (device.state() != v1::DEVICE_STATE_FENCED) {
        fenced_.erase({id, device.id()});
        continue;
      }
      Fenced now{.since = rpc::FromWire(device.since()), .holders = {}};
      for (const auto& [attempt, amount] :
           state.nodes().HoldersOf(id, device.id())) {
        now.holders.insert(attempt);
      }
      const auto [fenced, first] = fenced_.try_emplace({id, device.id()});
      const bool is_same = !first && fenced->second.since == now.since;
      for (const AttemptId& attempt : now.holders) {
        if (!is_same || fenced->second.holders.contains(attempt) ||
            HasAsOrphan(state, id, attempt, device.id())) {
          continue;
        }
        return absl::StrCat("DV-5: device ", device.id(), " of ",
                            node.node.name(), " is fenced and was given out");
      }
      // Who held it may be seen there again: a node that was dead comes back
      // with what it still runs.
      if (is_same) now.holders.merge(fenced->second.holders);
      fenced->second = std::move(now);
    }
  }
  return "";
}

// ---- drains with a deadline ----

std::string DrainWatch::Check(const ClusterState& state, absl::Duration now,
                              absl::Duration steady_since) {
  const uint64_t life = head::NonceOf(state.cluster());
  if (std::exchange(life_, life) != life) {
    drained_.clear();
  }
  for (const auto& [id, node] : state.nodes().records()) {
    const head::Drain& drain = node.node.drain();
    if (!drain.has_deadline()) {
      drained_.erase(id);
      continue;
    }
    Seen& seen = drained_[id];
    const absl::Time asked_at = rpc::FromWire(drain.asked_at());
    if (seen.asked_at != asked_at) {
      seen = {.asked_at = asked_at,
              .due = now + (rpc::FromWire(drain.deadline()) - asked_at)};
    }
    if (now < std::max(seen.due, steady_since) + kDeadlineSlack) continue;
    for (const AttemptId& attempt : state.attempts().OnNode(id)) {
      const AttemptRecord& record = *state.attempts().Find(attempt);
      if (record.orphaned() || record.state == v1::ATTEMPT_STATE_ENDING ||
          record.state == v1::ATTEMPT_STATE_ENDED) {
        continue;
      }
      for (const head::Process& process : record.processes) {
        // One that has exited is as good as gone.
        if (process.node != id || process.state >= v1::PROCESS_STATE_EXITED ||
            process.leaving || process.retired) {
          continue;
        }
        return absl::StrCat("DR-2: something is on ", node.node.name(),
                            " beyond its drain's deadline");
      }
    }
  }
  return "";
}

}  // namespace cohort::sim
