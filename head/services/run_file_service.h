#pragma once

#include <memory>

#include "common/executor.h"
#include "head/services/node_service.h"
#include "head/services/state_host.h"
#include "rpc/router.h"

namespace cohort::head {

// Serves ReadRunFile: passes on what the node sends of a job's files, piece by
// piece as the client takes it, on the ways of logs (NodeLog).
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task, and are then
// answered UNAVAILABLE.
class RunFileService final {
 public:
  // All outlive the service.
  RunFileService(StateHost& host, NodeService& nodes, Executor& strand);
  ~RunFileService();

  RunFileService(const RunFileService&) = delete;
  RunFileService& operator=(const RunFileService&) = delete;

  void RegisterOn(rpc::Router& router);

 private:
  class Reader;

  StateHost& host_;
  NodeService& nodes_;
  Executor& strand_;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<RunFileService*> self_;
};

}  // namespace cohort::head
