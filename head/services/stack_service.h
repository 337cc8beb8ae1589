#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/cluster.pb.h"
#include "common/executor.h"
#include "head/services/node_log.h"
#include "head/services/node_service.h"
#include "head/services/state_host.h"
#include "rpc/router.h"

namespace cohort::head {

// Serves GetStack and GetServedCalls: asks the node of a rank's process for its
// stacks or calls, on the ways of logs (NodeLog), and answers when all of them
// have come.
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task, and are then
// answered UNAVAILABLE.
class StackService final {
 public:
  // Reads at once: each holds at most 1 MiB.
  static constexpr size_t kReadsMax = 64;

  // All outlive the service.
  StackService(StateHost& host, NodeService& nodes, Executor& strand);
  ~StackService();

  StackService(const StackService&) = delete;
  StackService& operator=(const StackService&) = delete;

  void RegisterOn(rpc::Router& router);

  // Those who wait are answered with `why`.
  void DropWaiting(const absl::Status& why);

 private:
  // Whose process it is, and what its node sent; or why it did not.
  using Done = absl::AnyInvocable<void(const absl::Status& status,
                                       v1::Rank rank, std::string bytes) &&>;
  struct Read {
    Done done;
    v1::Rank rank;
    std::string bytes;  // so far
    std::shared_ptr<NodeLog> log;
  };
  // What the node is asked, of that rank.
  struct Question {
    NodeId node;
    v1::SendLog order;
    v1::Rank rank;
  };

  // The order lacks what is to be sent.
  absl::StatusOr<Question> Ask(const rpc::Principal& principal,
                               const std::string& job, int rank) const;
  void AnswerStack(const rpc::Principal& principal,
                   const v1::GetStackRequest& request,
                   rpc::Reply<v1::GetStackResponse> reply);
  void AnswerCalls(const rpc::Principal& principal,
                   const v1::GetServedCallsRequest& request,
                   rpc::Reply<v1::GetServedCallsResponse> reply);
  void Begin(Question question, Done done);
  void OnPiece(uint64_t number,
               const absl::StatusOr<const v1::LogPiece*>& answer);
  void Finish(uint64_t number, const absl::Status& status);

  StateHost& host_;
  NodeService& nodes_;
  Executor& strand_;
  std::map<uint64_t, Read> reads_;
  uint64_t next_ = 1;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<StackService*> self_;
};

}  // namespace cohort::head
