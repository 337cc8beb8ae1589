#pragma once

#include <memory>

#include "cohort/v1/cluster.pb.h"
#include "common/executor.h"
#include "head/services/state_host.h"
#include "head/state/cluster_state.h"
#include "rpc/router.h"

namespace cohort::head {

// The calls AdoptAttempt and EndAttempt of ClusterService: translates and
// nothing else.
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task, and are then
// answered UNAVAILABLE.
class OrphanService final {
 public:
  // All outlive the service.
  OrphanService(StateHost& host, Executor& strand);
  ~OrphanService();

  OrphanService(const OrphanService&) = delete;
  OrphanService& operator=(const OrphanService&) = delete;

  void RegisterOn(rpc::Router& router);

 private:
  using Decide = absl::StatusOr<JobId> (ClusterState::*)(const RequestKey&,
                                                         const AttemptId&,
                                                         Transition&);

  template <typename Req, typename Resp>
  void Handle(rpc::Router& router, const rpc::UnaryMethod<Req, Resp>& method,
              Decide decide);
  template <typename Req, typename Resp>
  void Answer(const rpc::CallContext& context, const Req& request,
              Decide decide, const char* path, rpc::Reply<Resp> reply);

  StateHost& host_;
  Executor& strand_;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<OrphanService*> self_;
};

// What GetStatus says of it; at most 1,000.
void AddOrphans(const ClusterState& state, v1::GetStatusResponse& response);

}  // namespace cohort::head
