#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "cohort/v1/autoscaler.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "head/autoscaler/autoscaler.h"
#include "head/autoscaler/provider.h"
#include "head/services/state_host.h"
#include "head/state/cluster_state.h"
#include "rpc/principal.h"
#include "rpc/router.h"

namespace cohort::head {

// AutoscalerService: what the autoscaler tells people, and what they ask of it.
// Strand-bound.  Calls may outlive it by a task.
class AutoscalerService final {
 public:
  // All outlive it; `provider` may be null.
  AutoscalerService(Autoscaler& autoscaler, StateHost& host,
                    const Provider* provider, Executor& strand,
                    const Clock& clock);
  ~AutoscalerService();

  AutoscalerService(const AutoscalerService&) = delete;
  AutoscalerService& operator=(const AutoscalerService&) = delete;

  void RegisterOn(rpc::Router& router);

  // Unless it is what is stored.  Why it cannot be is in the log, in an event,
  // and in the status until another file is applied.
  void ApplyAtStart(ClusterFile file);

  // What is done for a job that waits, on one line; empty: nothing.
  std::string ScalingOf(const JobId& job) const;

 private:
  absl::Status CheckFile(const ClusterFile& file, const Fleet& fleet) const;
  static absl::Status CheckProgram(const ClusterFile& file, const Fleet& fleet);
  absl::Status Apply(const rpc::Principal& principal,
                     const v1::ApplyClusterFileRequest& request,
                     ClusterState& state, Transition& transition);
  absl::Status Request(const rpc::Principal& principal,
                       const v1::RequestCapacityRequest& request,
                       ClusterState& state, Transition& transition);
  absl::Status Withdraw(const rpc::Principal& principal,
                        const v1::WithdrawCapacityRequest& request,
                        ClusterState& state, Transition& transition);
  template <typename Req, typename Resp>
  void Handle(rpc::Router& router, const rpc::UnaryMethod<Req, Resp>& method,
              absl::Status (AutoscalerService::*decide)(const rpc::Principal&,
                                                        const Req&,
                                                        ClusterState&,
                                                        Transition&));
  v1::Autoscaling Show(const ClusterState& state) const;
  void ShowTypes(const Fleet& fleet, v1::Autoscaling& shown) const;
  void ShowNext(const ClusterState& state, v1::Autoscaling& shown) const;
  std::string LaunchingText(const JobId& job,
                            const std::map<std::string, int>& nodes) const;

  Autoscaler& autoscaler_;
  StateHost& host_;
  const Provider* const provider_;
  Executor& strand_;
  const Clock& clock_;
  std::string refused_;  // why the file of the start is not applied

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<AutoscalerService*> self_;
};

}  // namespace cohort::head
