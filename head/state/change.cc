#include "head/state/change.h"

#include <utility>

#include "head/state/reconciler.h"

namespace cohort::head {
namespace {

void SendDesired(const Change& change, const TableView& tables,
                 NodeLinks& links, Transition& transition) {
  std::set<NodeId> spoken_to;
  for (const auto& [node, attempts] : change.desired) spoken_to.insert(node);
  for (const auto& [node, attempts] : change.forget) spoken_to.insert(node);
  spoken_to.erase(change.registering);
  for (const NodeId& node : spoken_to) {
    const NodeRecord* record = tables.nodes.Find(node);
    std::vector<v1::DesiredPlace> desired = DesiredOf(node, change, tables);
    if (record == nullptr || record->state == v1::NODE_STATE_DEAD ||
        desired.empty()) {
      continue;
    }
    transition.Then([&links, node, incarnation = record->node.incarnation(),
                     desired = std::move(desired)](const absl::Status& status) {
      if (status.ok()) links.SendDesired(node, incarnation, desired);
    });
  }
}

// While an attempt goes on its slots have rows of their own from their first
// change on, so that one of thousands costs one row.
void PutAttempts(Change& change, const AttemptTable& attempts,
                 Transition& transition) {
  for (const AttemptId& id : change.attempts) {
    transition.Put(*attempts.Find(id));
  }
  for (const auto& [id, slots] : change.slots) {
    const AttemptRecord* const attempt = attempts.Find(id);
    if (attempt == nullptr) continue;  // trimmed in this very decision
    const bool is_over = attempt->state == v1::ATTEMPT_STATE_ENDED;
    for (const int slot : slots) {
      const size_t at = static_cast<size_t>(slot);
      if (!is_over && at < attempt->processes.size()) {
        transition.Put(ProcessRecord{
            .attempt = id, .slot = at, .process = attempt->processes[at]});
      } else {
        change.Delete<ProcessRecord>(id, static_cast<uint64_t>(at));
      }
    }
  }
}

}  // namespace

EventRecord EventOf(const char* kind, std::string text,
                    const EventSubject& subject) {
  EventRecord event;
  event.set_kind(kind);
  event.set_text(std::move(text));
  event.set_job_id(IdBytes(subject.job));
  event.set_attempt_id(IdBytes(subject.attempt));
  event.set_node_id(IdBytes(subject.node));
  event.set_cause(subject.cause);
  return event;
}

StoredSizes PutRows(Change& change, const TableView& tables,
                    Transition& transition) {
  const auto put = [&transition](const auto& touched, const auto& table) {
    for (const auto& id : touched) transition.Put(*table.Find(id));
  };
  const auto add = [&transition](const auto& records) {
    std::vector<size_t> sizes;
    for (const auto& each : records) sizes.push_back(transition.Put(each));
    return sizes;
  };
  put(change.nodes, tables.nodes);
  put(change.jobs, tables.jobs);
  put(change.drivers, tables.drivers);
  PutAttempts(change, tables.attempts, transition);
  transition.Add(std::exchange(change.rows, {}));
  for (const JobId& array : change.arrays) {
    transition.Put(tables.jobs.arrays().Find(array)->record);
  }
  return {.requests = add(change.requests), .events = add(change.events)};
}

std::vector<v1::DesiredPlace> DesiredOf(const NodeId& node,
                                        const Change& change,
                                        const TableView& tables) {
  std::vector<v1::DesiredPlace> desired;
  if (const auto known = change.desired.find(node);
      known != change.desired.end()) {
    for (const auto& [id, forgotten] : known->second) {
      const AttemptRecord* attempt = tables.attempts.Find(id);
      if (attempt == nullptr) continue;   // trimmed in this very decision
      if (attempt->orphaned()) continue;  // nothing is wanted of it (OR-1)
      if (const Place* place = PlaceOn(*attempt, node)) {
        desired.push_back(DesiredFor(*tables.jobs.Find(attempt->job), *attempt,
                                     *place, forgotten,
                                     *tables.nodes.Find(node), tables.now));
      }
    }
  }
  if (const auto unknown = change.forget.find(node);
      unknown != change.forget.end()) {
    for (const auto& [attempt, job] : unknown->second) {
      desired.push_back(
          ForgetOf(attempt, job, "the head did not place it there"));
    }
  }
  return desired;
}

void AddEffects(Change change, const TableView& tables, NodeLinks& links,
                JobWatchers& watchers, Transition& transition) {
  // Before GOAL_FORGET, so that a worker need not say again what is recorded.
  for (auto& [node, acknowledged] : change.acknowledged) {
    transition.Then(
        [&links, node = node,
         incarnation = tables.nodes.Find(node)->node.incarnation(),
         acknowledged = std::move(acknowledged)](const absl::Status& status) {
          if (status.ok())
            links.SendAcknowledge(node, incarnation, acknowledged);
        });
  }
  SendDesired(change, tables, links, transition);
  for (auto& [node, exchanges] : change.exchanges) {
    const NodeRecord* record = tables.nodes.Find(node);
    if (record == nullptr || node == change.registering) continue;
    transition.Then(
        [&links, node = node, incarnation = record->node.incarnation(),
         exchanges = std::move(exchanges)](const absl::Status& status) {
          if (status.ok()) links.SendExchanges(node, incarnation, exchanges);
        });
  }
  for (Change::Disconnect& disconnect : change.disconnects) {
    transition.Then([&links, disconnect = std::move(disconnect)](
                        const absl::Status& status) {
      if (!status.ok()) return;
      links.Disconnect(disconnect.node, disconnect.incarnation,
                       disconnect.reason);
    });
  }
  for (const JobId& job : change.watched) {
    transition.Then([&watchers, job](const absl::Status& status) {
      if (status.ok()) watchers.JobChanged(job);
    });
  }
}

}  // namespace cohort::head
