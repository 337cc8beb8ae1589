#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "cohort/v1/run.pb.h"
#include "common/executor.h"
#include "common/strong_id.h"
#include "rpc/call_context.h"
#include "rpc/router.h"
#include "worker/node_state.h"

namespace cohort::worker {

// Where a node keeps what ranks are told of.
struct RunPaths {
  std::string host;  // address that other nodes' ranks can reach
  // Of one attempt on this node.
  std::function<std::string(const AttemptId&)> runtime_directory;
  // <storage>/<job>/attempt-<n>.<epoch>
  std::function<std::string(const v1::DesiredAttempt&)> checkpoint_root;
};

// RunService on the worker's unix socket: translates between ranks and
// NodeState.  A rank's credential is good for its own attempt only.
// Strand-bound to the node strand.
class RunService {
 public:
  // Adds its methods to `router`; all outlive the router's transport.
  RunService(rpc::Router& router, Executor& strand, NodeState& node,
             RunPaths paths);

 private:
  absl::StatusOr<v1::JoinRunResponse> Join(const rpc::CallContext& context,
                                           const v1::JoinRunRequest& request);
  void Exchange(const rpc::CallContext& context,
                const v1::ExchangeRequest& request,
                rpc::Reply<v1::ExchangeResponse> reply);
  void CommitCheckpoint(const rpc::CallContext& context,
                        const v1::CommitCheckpointRequest& request,
                        rpc::Reply<v1::CommitCheckpointResponse> reply);
  void ReportPreflight(const rpc::CallContext& context,
                       const v1::ReportPreflightRequest& request,
                       rpc::Reply<v1::ReportPreflightResponse> reply);
  void ReportGpuEnd(const rpc::CallContext& context,
                    const v1::ReportGpuEndRequest& request,
                    rpc::Reply<v1::ReportGpuEndResponse> reply);

  NodeState& node_;
  const RunPaths paths_;
};

}  // namespace cohort::worker
