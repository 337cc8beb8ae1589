#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "cohort/v1/run.pb.h"
#include "common/executor.h"
#include "common/process_id.h"
#include "rpc/call_context.h"
#include "rpc/router.h"
#include "worker/node_state.h"

namespace cohort::worker {

// Where a node keeps what ranks are told of.
struct RunPaths {
  std::string host;  // address that other nodes' ranks can reach
  // Of one attempt on this node.
  std::function<std::string(const AttemptId&)> runtime_directory;
  // <storage>/<job>/attempt-<n>.<epoch>, of those begun in that epoch.
  std::function<std::string(const v1::DesiredPlace& begun)> checkpoint_root;
};

// RunService on the worker's unix socket: translates between processes and
// NodeState.  A process's credential is good for itself only (PR-3).
// Strand-bound to the node strand.
//
// WA-1: of one watch at most one message waits: the newest.
class RunService {
 public:
  // Adds its methods to `router`; all outlive the router's transport.
  RunService(rpc::Router& router, Executor& strand, NodeState& node,
             RunPaths paths);

 private:
  class Watcher;

  // Tells each watcher of the process where it stands, or that it is over.
  void OnChange(const ProcessId& process);
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
  std::multimap<ProcessId, Watcher*> watchers_;  // which take themselves out
};

}  // namespace cohort::worker
