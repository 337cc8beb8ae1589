#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/clock.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/services/last_logs.h"
#include "head/services/node_log.h"
#include "head/services/node_service.h"
#include "head/services/state_host.h"

namespace cohort::head {

// What is asked of a node that nothing runs on, before it is ended: whose
// results lie only there, and the ends of its logs, which LastLogs keeps.
//
// A node that does not answer, and one whose answers take longer than kTimeMax,
// is asked no more.  At most kAtOnceMax are asked at once, each for results and
// for logs; others wait for their turn, as each costs a look at all attempts.
// Strand-bound.
class NodeFarewells final {
 public:
  static constexpr absl::Duration kTimeMax = absl::Seconds(30);
  static constexpr size_t kAtOnceMax = 4;

  // All outlive it; `last_logs` may be null: then none are kept.  `on_done`
  // runs when something that was asked for is there.
  NodeFarewells(StateHost& host, NodeService& nodes, LastLogs* last_logs,
                const Clock& clock, std::function<void()> on_done);

  // The jobs whose results are there and nowhere else, as far as it is known:
  // of the last kJobsMax that ran there.  Null: it is not known yet.
  const std::vector<JobId>* ResultsOn(const NodeId& node);
  // Whether the ends of its logs are kept, of the newest kLogsMax; the first
  // call begins that.
  bool AreLogsKept(const NodeId& node);
  // The jobs whose results go with it: those of ResultsOn if it has answered,
  // else all of the last kJobsMax that ran there without a storage path.
  struct Losses {
    std::vector<JobId> jobs;
    bool are_known = false;
  };
  Losses LostWith(const NodeId& node) const;
  // Something runs there again, or it is gone.
  void Forget(const NodeId& node);
  void Clear();

 private:
  static constexpr size_t kJobsMax = 100;
  static constexpr size_t kLogsMax = 256;

  // The questions to one node, of one kind, one after the other.
  struct Visit {
    NodeId node;
    absl::Duration until;
    std::deque<v1::SendLog> orders;  // the first is under way
    std::shared_ptr<NodeLog> call;
    v1::LastLog log;  // of a log: what came of it
    int64_t log_bytes = 0;
    std::vector<JobId> results;
    bool done = false;
    bool failed = false;  // something was not answered
  };
  // Shared with what answers.
  using Visits = std::map<NodeId, std::shared_ptr<Visit>>;

  // The one that is under way, or a new one with the orders; null: it is not
  // the node's turn.
  Visit* VisitOf(const NodeId& node, Visits& visits,
                 std::deque<v1::SendLog> (NodeFarewells::*orders)(const NodeId&)
                     const);
  // The attempts that had something there, the newest first.
  std::vector<const AttemptRecord*> AttemptsOn(const NodeId& node) const;
  std::deque<v1::SendLog> ListOrders(const NodeId& node) const;
  std::deque<v1::SendLog> LogOrders(const NodeId& node) const;
  bool IsOver(const Visit& visit) const;
  void Ask(const std::shared_ptr<Visit>& visit);
  void OnPiece(const std::shared_ptr<Visit>& visit,
               const absl::StatusOr<const v1::LogPiece*>& answer);
  void OnLogPiece(const std::shared_ptr<Visit>& visit,
                  const v1::LogPiece& piece);
  void Next(const std::shared_ptr<Visit>& visit);

  StateHost& host_;
  NodeService& nodes_;
  LastLogs* const last_logs_;
  const Clock& clock_;
  const std::function<void()> on_done_;
  Visits results_;
  Visits logs_;
};

}  // namespace cohort::head
