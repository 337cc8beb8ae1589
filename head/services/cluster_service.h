#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/cluster.pb.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "head/explain/explanation.h"
#include "head/services/last_logs.h"
#include "head/services/log_stream.h"
#include "head/services/node_service.h"
#include "head/services/package_service.h"
#include "head/services/state_host.h"
#include "head/state/node_links.h"
#include "rpc/router.h"

namespace cohort::head {

struct ClusterServiceOptions {
  // Shown by GetStatus.
  std::string address;
  std::string http_address;  // empty: it serves no HTTP
  int64_t pid = 0;
  // WaitJob calls at once.
  size_t waiters_max = 10'000;
  // Of one ListJobs answer: what fits below the message limit.
  size_t list_jobs_max = 10'000;
  // Readers of logs at once; HeadCoreOptions has it.
  size_t log_readers_max = 0;
  LastLogs* last_logs = nullptr;  // outlives it; null: none are kept
  // Jobs that it looks at to find them.
  size_t list_looked_max = 20'000;
  size_t list_bytes_max = 6 << 20;
  // What the autoscaler does for a job that waits; empty: nothing.
  std::function<std::string(const JobId& job)> scaling_of = nullptr;
};

// ClusterService but for packages: what clients, and ranks about their own job,
// ask.  Translates and nothing else; decisions are ClusterState's.
//
//   CS-1: answers to changes leave by the change's commit, answers to reads
//         after everything that they show is durable (CM-1).
//   CS-2: a rank reads its own job and the status, nothing else; it changes
//         only actors that end with it (job_access.h).
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task, and are then
// answered UNAVAILABLE.
class ClusterService final : public JobWatchers {
 public:
  // All outlive the service.
  ClusterService(ClusterServiceOptions options, StateHost& host,
                 NodeService& nodes, PackageService& packages,
                 Executor& strand);
  ~ClusterService() override;

  ClusterService(const ClusterService&) = delete;
  ClusterService& operator=(const ClusterService&) = delete;

  void RegisterOn(rpc::Router& router);
  void SetAddresses(std::string address, std::string http_address) {
    options_.address = std::move(address);
    options_.http_address = std::move(http_address);
  }

  // The state that waiting calls were waiting on is gone: they are answered
  // with `why` and ask again.
  void DropWaiting(const absl::Status& why);

  // JobWatchers.
  void JobChanged(const JobId& job) override;

 private:
  using Context = std::shared_ptr<rpc::CallContext>;
  class LogReader;

  template <typename Req, typename Resp>
  void Handle(rpc::Router& router, const rpc::UnaryMethod<Req, Resp>& method,
              void (ClusterService::*handler)(const Context&, const Req&,
                                              rpc::Reply<Resp>));

  void SubmitJob(const Context& context, const v1::SubmitJobRequest& request,
                 rpc::Reply<v1::SubmitJobResponse> reply);
  void StopJob(const Context& context, const v1::StopJobRequest& request,
               rpc::Reply<v1::StopJobResponse> reply);
  void HoldJob(const Context& context, const v1::HoldJobRequest& request,
               rpc::Reply<v1::HoldJobResponse> reply);
  void ReleaseJob(const Context& context, const v1::ReleaseJobRequest& request,
                  rpc::Reply<v1::ReleaseJobResponse> reply);
  void RemoveJob(const Context& context, const v1::RemoveJobRequest& request,
                 rpc::Reply<v1::RemoveJobResponse> reply);
  void ResizeJob(const Context& context, const v1::ResizeJobRequest& request,
                 rpc::Reply<v1::ResizeJobResponse> reply);
  void GetJob(const Context& context, const v1::GetJobRequest& request,
              rpc::Reply<v1::GetJobResponse> reply);
  void ExplainJob(const Context& context, const v1::ExplainJobRequest& request,
                  rpc::Reply<v1::ExplainJobResponse> reply);
  void WaitJob(const Context& context, const v1::WaitJobRequest& request,
               rpc::Reply<v1::WaitJobResponse> reply);
  void ListJobs(const Context& context, const v1::ListJobsRequest& request,
                rpc::Reply<v1::ListJobsResponse> reply);
  void ListNodes(const Context& context, const v1::ListNodesRequest& request,
                 rpc::Reply<v1::ListNodesResponse> reply);
  void GetNode(const Context& context, const v1::GetNodeRequest& request,
               rpc::Reply<v1::GetNodeResponse> reply);
  void DrainNode(const Context& context, const v1::DrainNodeRequest& request,
                 rpc::Reply<v1::DrainNodeResponse> reply);
  void UndrainNode(const Context& context,
                   const v1::UndrainNodeRequest& request,
                   rpc::Reply<v1::UndrainNodeResponse> reply);
  void GetResources(const Context& context,
                    const v1::GetResourcesRequest& request,
                    rpc::Reply<v1::GetResourcesResponse> reply);
  void GetStatus(const Context& context, const v1::GetStatusRequest& request,
                 rpc::Reply<v1::GetStatusResponse> reply);

  void ExplainNow(const JobId& id, const ExplainWhen& when,
                  rpc::Reply<v1::ExplainJobResponse> reply);

  // A call of ClusterState about one job.
  using JobChange = absl::Status (ClusterState::*)(const RequestKey&,
                                                   const JobId&, Transition&);
  // `change`, of the job that `request` names.
  template <typename Req, typename Resp, typename Change>
  void ChangeJob(const Context& context, const Req& request, Change change,
                 rpc::Reply<Resp> reply);
  // The job or array that `bytes` names, which the caller may see.
  absl::StatusOr<JobId> FindNamed(const ClusterState& state,
                                  const rpc::Principal& principal,
                                  const std::string& bytes) const;
  void AnswerWaiters(const JobId& job);
  // The job that `bytes` names, which the caller may see.  FailedPrecondition
  // for an array: its elements are jobs.
  absl::StatusOr<const JobRecord*> FindJob(const ClusterState& state,
                                           const rpc::Principal& principal,
                                           const std::string& bytes) const;
  // Ends a change: the answer to it, once it is durable.
  template <typename Resp>
  void SubmitAndAnswer(Transition transition, Resp response,
                       rpc::Reply<Resp> reply);
  // Ends a change of `node`: the node as it is then.
  template <typename Resp>
  void AnswerWithNode(const ClusterState& state,
                      const absl::StatusOr<NodeId>& node, Transition transition,
                      rpc::Reply<Resp> reply);
  // Answers after everything that the present state shows is durable.
  template <typename Resp>
  void AnswerWhenDurable(absl::StatusOr<Resp> response, rpc::Reply<Resp> reply);
  void DropWaiter(uint64_t number);
  void ForgetLog(const std::shared_ptr<LogStream>& log);

  ClusterServiceOptions options_;
  StateHost& host_;
  NodeService& nodes_;
  PackageService& packages_;
  Executor& strand_;

  struct Waiter {
    JobId job;
    rpc::Reply<v1::WaitJobResponse> reply;
  };
  std::map<uint64_t, Waiter> waiters_;
  std::map<JobId, std::set<uint64_t>> waiters_by_job_;
  uint64_t next_waiter_ = 1;

  // Shared with their readers.
  std::map<JobId, std::set<std::shared_ptr<LogStream>>> logs_;
  size_t log_readers_ = 0;  // in logs_

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<ClusterService*> self_;
};

}  // namespace cohort::head
