#include "head/autoscaler/node_farewells.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "common/log.h"

namespace cohort::head {

NodeFarewells::NodeFarewells(StateHost& host, NodeService& nodes,
                             LastLogs* last_logs, const Clock& clock,
                             std::function<void()> on_done)
    : host_(host),
      nodes_(nodes),
      last_logs_(last_logs),
      clock_(clock),
      on_done_(std::move(on_done)) {}

const std::vector<JobId>* NodeFarewells::ResultsOn(const NodeId& node) {
  const Visit* const visit =
      VisitOf(node, results_, &NodeFarewells::ListOrders);
  return visit != nullptr && IsOver(*visit) ? &visit->results : nullptr;
}

bool NodeFarewells::AreLogsKept(const NodeId& node) {
  if (last_logs_ == nullptr) return true;
  const Visit* const visit = VisitOf(node, logs_, &NodeFarewells::LogOrders);
  return visit != nullptr && IsOver(*visit);
}

NodeFarewells::Losses NodeFarewells::LostWith(const NodeId& node) const {
  const auto visit = results_.find(node);
  if (visit != results_.end() && visit->second->done &&
      !visit->second->failed) {
    return {visit->second->results, true};
  }
  Losses losses;
  for (const v1::SendLog& order : ListOrders(node)) {
    losses.jobs.push_back(IdOf<JobId>(order.job_id()));
  }
  return losses;
}

void NodeFarewells::Forget(const NodeId& node) {
  results_.erase(node);
  logs_.erase(node);
}

void NodeFarewells::Clear() {
  results_.clear();
  logs_.clear();
}

bool NodeFarewells::IsOver(const Visit& visit) const {
  return visit.done || clock_.Monotonic() >= visit.until;
}

NodeFarewells::Visit* NodeFarewells::VisitOf(
    const NodeId& node, Visits& visits,
    std::deque<v1::SendLog> (NodeFarewells::*orders)(const NodeId&) const) {
  const auto known = visits.find(node);
  if (known != visits.end()) return known->second.get();
  const auto under_way =
      std::count_if(visits.begin(), visits.end(),
                    [this](const auto& each) { return !IsOver(*each.second); });
  if (under_way >= static_cast<std::ptrdiff_t>(kAtOnceMax)) return nullptr;
  const auto visit = std::make_shared<Visit>();
  visits.emplace(node, visit);
  visit->node = node;
  visit->until = clock_.Monotonic() + kTimeMax;
  visit->orders = (this->*orders)(node);
  visit->done = visit->orders.empty();
  if (!visit->done) Ask(visit);
  return visit.get();
}

std::vector<const AttemptRecord*> NodeFarewells::AttemptsOn(
    const NodeId& node) const {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return {};
  using Newest = std::pair<uint64_t, const AttemptRecord*>;
  std::vector<Newest> found;
  for (const auto& [id, attempt] : (*state)->attempts().all()) {
    if (PlaceOn(attempt, node) == nullptr) continue;
    const JobRecord* const job = (*state)->jobs().Find(attempt.job);
    if (job != nullptr) found.emplace_back(job->row.sequence(), &attempt);
  }
  std::sort(found.begin(), found.end(), [](const Newest& a, const Newest& b) {
    return std::pair(a.first, a.second->number) >
           std::pair(b.first, b.second->number);
  });
  std::vector<const AttemptRecord*> attempts;
  for (const Newest& each : found) attempts.push_back(each.second);
  return attempts;
}

std::deque<v1::SendLog> NodeFarewells::ListOrders(const NodeId& node) const {
  std::deque<v1::SendLog> orders;
  std::set<JobId> seen;
  for (const AttemptRecord* const attempt : AttemptsOn(node)) {
    const JobRecord* const job = (*host_.Readable())->jobs().Find(attempt->job);
    // What lies on storage outlives the node.
    if (!job->spec->run().storage_path().empty() ||
        !seen.insert(job->id).second) {
      continue;
    }
    if (orders.size() == kJobsMax) break;
    v1::SendLog& order = orders.emplace_back();
    order.set_job_id(IdBytes(job->id));
    order.set_list(true);
  }
  return orders;
}

std::deque<v1::SendLog> NodeFarewells::LogOrders(const NodeId& node) const {
  std::deque<v1::SendLog> orders;
  for (const AttemptRecord* const attempt : AttemptsOn(node)) {
    for (const Process& process : attempt->processes) {
      if (process.node != node) continue;
      for (const v1::LogStream stream :
           {v1::LOG_STREAM_STDOUT, v1::LOG_STREAM_STDERR}) {
        if (orders.size() == kLogsMax) return orders;
        v1::SendLog& order = orders.emplace_back();
        order.set_attempt_id(IdBytes(attempt->id));
        order.set_job_id(IdBytes(attempt->job));
        order.set_attempt_number(attempt->number);
        order.set_slot(process.slot);
        order.set_incarnation(process.incarnation);
        order.set_stream(stream);
        order.set_offset(-LastLogs::kLogBytesMax);
      }
    }
  }
  return orders;
}

void NodeFarewells::Ask(const std::shared_ptr<Visit>& visit) {
  visit->log.Clear();
  visit->log_bytes = 0;
  // What it answers belongs to the visit: without that nobody listens.
  visit->call = nodes_.OpenLog(
      visit->node, visit->orders.front(),
      [this, weak = std::weak_ptr<Visit>(visit)](const auto& answer) {
        const std::shared_ptr<Visit> still = weak.lock();
        if (still != nullptr) OnPiece(still, answer);
      });
}

void NodeFarewells::OnPiece(const std::shared_ptr<Visit>& visit,
                            const absl::StatusOr<const v1::LogPiece*>& answer) {
  if (!answer.ok()) {
    COHORT_LOG(kWarning, "farewell_unanswered", {"node", visit->node},
               {"why", answer.status()});
    visit->failed = true;
    visit->orders.resize(1);
    return Next(visit);
  }
  const v1::LogPiece& piece = **answer;
  if (!visit->orders.front().list()) return OnLogPiece(visit, piece);
  if (piece.known() && piece.files_size() > 0) {
    visit->results.push_back(IdOf<JobId>(visit->orders.front().job_id()));
  }
  Next(visit);
}

void NodeFarewells::OnLogPiece(const std::shared_ptr<Visit>& visit,
                               const v1::LogPiece& piece) {
  const auto size = static_cast<int64_t>(piece.data().size());
  // That a log is empty is kept, too: else it would seem to be lost.
  if (piece.known() && (size > 0 || visit->log.pieces().empty())) {
    *visit->log.add_pieces() = piece;
    visit->log_bytes += size;
    if (size > 0 && !piece.end() && visit->log_bytes < LastLogs::kLogBytesMax) {
      return visit->call->Next(piece.offset() + size);
    }
  }
  if (visit->log.pieces().empty()) return Next(visit);
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  const NodeRecord* const node =
      state.ok() ? (*state)->nodes().Find(visit->node) : nullptr;
  visit->log.set_node_name(node == nullptr ? visit->node.ToHex()
                                           : node->node.name());
  const v1::SendLog& order = visit->orders.front();
  last_logs_->Keep(
      {.attempt = IdOf<AttemptId>(order.attempt_id()),
       .slot = order.slot(),
       .incarnation = order.incarnation(),
       .stream = order.stream()},
      std::move(visit->log),
      [this, weak = std::weak_ptr<Visit>(visit)](const absl::Status& status) {
        const std::shared_ptr<Visit> still = weak.lock();
        if (still == nullptr) return;
        if (!status.ok()) {
          COHORT_LOG(kWarning, "last_log_not_kept", {"node", still->node},
                     {"why", status});
        }
        Next(still);
      });
}

void NodeFarewells::Next(const std::shared_ptr<Visit>& visit) {
  visit->call.reset();
  visit->orders.pop_front();
  if (!visit->orders.empty() && !IsOver(*visit)) return Ask(visit);
  visit->failed |= !visit->orders.empty();
  visit->done = true;
  on_done_();
}

}  // namespace cohort::head
