#include "head/services/cluster_service.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

#include "common/hash.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/explain/explanation.h"
#include "head/services/cluster_wire.h"
#include "head/services/job_access.h"
#include "head/services/orphan_service.h"
#include "head/state/job_spec.h"
#include "head/state/node_finder.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Of nodes that follow a later store, as many are named.
constexpr int kLaterStoreNamesMax = 1'000;

// Equal requests have equal hashes whatever process encoded them: maps come in
// order.  `method` tells apart what has the same fields: to stop a job and to
// hold it are two requests.
std::string HashOf(absl::string_view method,
                   const google::protobuf::MessageLite& request) {
  std::string bytes(method);
  {
    google::protobuf::io::StringOutputStream stream(&bytes);  // appends
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  return std::string(Sha256::Of(bytes).bytes());
}

RequestKey KeyOf(const rpc::CallContext& context, const std::string& id,
                 const google::protobuf::MessageLite& request) {
  return {.principal = context.principal().name,
          .request_id = id,
          .body_hash = HashOf(request.GetTypeName(), request)};
}

// As heads have always hashed it: a submit that is tried again across an
// upgrade of the head finds its job.
RequestKey KeyOfSubmit(const rpc::CallContext& context,
                       const v1::SubmitJobRequest& request) {
  return {.principal = context.principal().name,
          .request_id = request.request_id(),
          .body_hash = HashOf("", request)};
}

}  // namespace

// What the Router drives; it may live a task longer than the service.
class ClusterService::LogReader final
    : public rpc::StreamReader<v1::ReadLogRequest> {
 public:
  LogReader(std::shared_ptr<ClusterService*> service, Context context,
            std::shared_ptr<LogStream> stream)
      : service_(std::move(service)),
        context_(std::move(context)),
        stream_(std::move(stream)) {}

  void OnMessage(const v1::ReadLogRequest& request) override {
    if (*service_ == nullptr) return stream_->Close(Gone());
    if (stream_->begun()) {
      return stream_->Close(absl::InvalidArgumentError(
          "a log stream takes one request: open another stream"));
    }
    ClusterService& service = **service_;
    const absl::StatusOr<const ClusterState*> state = service.host_.Readable();
    if (!state.ok()) return stream_->Close(state.status());
    const absl::StatusOr<const JobRecord*> job =
        service.FindJob(**state, context_->principal(), request.job_id());
    if (!job.ok()) return stream_->Close(job.status());
    if (service.log_readers_ >= service.options_.log_readers_max) {
      return stream_->Close(SetReason(
          absl::ResourceExhaustedError(absl::StrCat(
              service.log_readers_,
              " logs are read at once already, which is all that the head "
              "serves: try again when others have ended")),
          "overloaded"));
    }
    stream_->Begin(request);
    if (stream_->job().IsNil()) return;
    service.logs_[stream_->job()].insert(stream_);
    ++service.log_readers_;
  }

  void OnClosed(absl::Status status) override {
    stream_->Close(status);
    if (*service_ != nullptr) (*service_)->ForgetLog(stream_);
  }

 private:
  const std::shared_ptr<ClusterService*> service_;
  const Context context_;
  const std::shared_ptr<LogStream> stream_;  // Shared with the service.
};

ClusterService::ClusterService(ClusterServiceOptions options, StateHost& host,
                               NodeService& nodes, PackageService& packages,
                               Executor& strand)
    : options_(std::move(options)),
      host_(host),
      nodes_(nodes),
      packages_(packages),
      strand_(strand),
      self_(std::make_shared<ClusterService*>(this)) {}

ClusterService::~ClusterService() {
  DropWaiting(Gone());
  *self_ = nullptr;
}

template <typename Req, typename Resp>
void ClusterService::Handle(rpc::Router& router,
                            const rpc::UnaryMethod<Req, Resp>& method,
                            void (ClusterService::*handler)(const Context&,
                                                            const Req&,
                                                            rpc::Reply<Resp>)) {
  router.Handle(
      method, strand_,
      [self = self_, handler](const Context& context, const Req& request,
                              rpc::Reply<Resp> reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        ((*self)->*handler)(context, request, std::move(reply));
      });
}

void ClusterService::RegisterOn(rpc::Router& router) {
  using Self = ClusterService;
  Handle(router, rpc::kSubmitJob, &Self::SubmitJob);
  Handle(router, rpc::kStopJob, &Self::StopJob);
  Handle(router, rpc::kHoldJob, &Self::HoldJob);
  Handle(router, rpc::kReleaseJob, &Self::ReleaseJob);
  Handle(router, rpc::kRemoveJob, &Self::RemoveJob);
  Handle(router, rpc::kResizeJob, &Self::ResizeJob);
  Handle(router, rpc::kGetJob, &Self::GetJob);
  Handle(router, rpc::kExplainJob, &Self::ExplainJob);
  Handle(router, rpc::kWaitJob, &Self::WaitJob);
  Handle(router, rpc::kListJobs, &Self::ListJobs);
  Handle(router, rpc::kListNodes, &Self::ListNodes);
  Handle(router, rpc::kGetNode, &Self::GetNode);
  Handle(router, rpc::kDrainNode, &Self::DrainNode);
  Handle(router, rpc::kUndrainNode, &Self::UndrainNode);
  Handle(router, rpc::kGetResources, &Self::GetResources);
  Handle(router, rpc::kGetStatus, &Self::GetStatus);
  router.HandleStream(
      rpc::kReadLog, strand_,
      [self = self_](const Context& context,
                     std::unique_ptr<LogStream::Writer> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::ReadLogRequest>>> {
        if (*self == nullptr) return Gone();
        ClusterService& service = **self;
        return std::make_unique<LogReader>(
            self, context,
            std::make_shared<LogStream>(service.host_, service.nodes_,
                                        service.options_.last_logs,
                                        service.strand_, std::move(writer)));
      });
}

// ---- changes ----

template <typename Resp>
void ClusterService::SubmitAndAnswer(Transition transition, Resp response,
                                     rpc::Reply<Resp> reply) {
  transition.Then([reply = std::move(reply), response = std::move(response)](
                      const absl::Status& status) mutable {
    if (!status.ok()) return std::move(reply)(status);
    std::move(reply)(std::move(response));
  });
  host_.Submit(std::move(transition));
}

void ClusterService::SubmitJob(const Context& context,
                               const v1::SubmitJobRequest& request,
                               rpc::Reply<v1::SubmitJobResponse> reply) {
  const absl::StatusOr<ClusterState*> state =
      host_.Writable(Admission::kClient);
  if (!state.ok()) return std::move(reply)(state.status());
  const std::string name_space = request.spec().namespace_().empty()
                                     ? kDefaultNamespace
                                     : request.spec().namespace_();
  const absl::Status may =
      CheckMaySubmit(**state, context->principal(), name_space, request.spec());
  if (!may.ok()) return std::move(reply)(may);
  Transition transition;
  RequestKey key = KeyOfSubmit(*context, request);
  key.user = UserOfRank(**state, context->principal());
  const absl::StatusOr<JobId> job =
      (*state)->SubmitJob(key, name_space, request.spec(), transition);
  if (!job.ok()) {
    return AnswerWhenDurable<v1::SubmitJobResponse>(job.status(),
                                                    std::move(reply));
  }
  v1::SubmitJobResponse response;
  response.set_job_id(std::string(job->bytes()));
  SubmitAndAnswer(std::move(transition), std::move(response), std::move(reply));
}

template <typename Req, typename Resp, typename Change>
void ClusterService::ChangeJob(const Context& context, const Req& request,
                               Change change, rpc::Reply<Resp> reply) {
  const absl::StatusOr<ClusterState*> state =
      host_.Writable(Admission::kClient);
  if (!state.ok()) return std::move(reply)(state.status());
  const absl::StatusOr<JobId> job = JobId::FromBytes(request.job_id());
  if (!job.ok()) return std::move(reply)(job.status());
  const absl::Status may = CheckMayUse(**state, context->principal(), *job);
  if (!may.ok()) return std::move(reply)(may);
  Transition transition;
  const absl::Status status = std::invoke(
      change, **state, KeyOf(*context, request.request_id(), request), *job,
      transition);
  if (!status.ok()) return AnswerWhenDurable<Resp>(status, std::move(reply));
  SubmitAndAnswer(std::move(transition), Resp(), std::move(reply));
}

void ClusterService::StopJob(const Context& context,
                             const v1::StopJobRequest& request,
                             rpc::Reply<v1::StopJobResponse> reply) {
  ChangeJob(context, request, JobChange{&ClusterState::StopJob},
            std::move(reply));
}

void ClusterService::HoldJob(const Context& context,
                             const v1::HoldJobRequest& request,
                             rpc::Reply<v1::HoldJobResponse> reply) {
  ChangeJob(context, request, JobChange{&ClusterState::HoldJob},
            std::move(reply));
}

void ClusterService::ReleaseJob(const Context& context,
                                const v1::ReleaseJobRequest& request,
                                rpc::Reply<v1::ReleaseJobResponse> reply) {
  ChangeJob(context, request, JobChange{&ClusterState::ReleaseJob},
            std::move(reply));
}

void ClusterService::RemoveJob(const Context& context,
                               const v1::RemoveJobRequest& request,
                               rpc::Reply<v1::RemoveJobResponse> reply) {
  ChangeJob(context, request, JobChange{&ClusterState::RemoveJob},
            std::move(reply));
}

void ClusterService::ResizeJob(const Context& context,
                               const v1::ResizeJobRequest& request,
                               rpc::Reply<v1::ResizeJobResponse> reply) {
  ChangeJob(
      context, request,
      [&](ClusterState& state, const RequestKey& key, const JobId& job,
          Transition& transition) {
        return state.ResizeJob(key, job, request.num_workers(), transition);
      },
      std::move(reply));
}

template <typename Resp>
void ClusterService::AnswerWithNode(const ClusterState& state,
                                    const absl::StatusOr<NodeId>& node,
                                    Transition transition,
                                    rpc::Reply<Resp> reply) {
  const NodeRecord* record = node.ok() ? state.nodes().Find(*node) : nullptr;
  if (record == nullptr) {
    // A repeated request whose node was forgotten meanwhile.
    return AnswerWhenDurable<Resp>(
        node.ok() ? absl::NotFoundError(absl::StrCat(
                        "node ", node->ToHex(), " is not remembered any more"))
                  : node.status(),
        std::move(reply));
  }
  Resp response;
  *response.mutable_node() = NodeToWire(state, *record);
  SubmitAndAnswer(std::move(transition), std::move(response), std::move(reply));
}

void ClusterService::DrainNode(const Context& context,
                               const v1::DrainNodeRequest& request,
                               rpc::Reply<v1::DrainNodeResponse> reply) {
  const absl::StatusOr<ClusterState*> state =
      host_.Writable(Admission::kClient);
  if (!state.ok()) return std::move(reply)(state.status());
  // A worker names its node by id.
  const rpc::Principal& principal = context->principal();
  if (principal.role == rpc::Role::kWorker &&
      request.node() != principal.node.ToHex()) {
    return std::move(reply)(absl::PermissionDeniedError(
        absl::StrCat("a worker's credential drains its own node only, ",
                     principal.node.ToHex())));
  }
  const absl::StatusOr<DrainOrder> order = FromWire(request);
  if (!order.ok()) return std::move(reply)(order.status());
  Transition transition;
  const absl::StatusOr<NodeId> node =
      (*state)->DrainNode(KeyOf(*context, request.request_id(), request),
                          request.node(), *order, transition);
  AnswerWithNode(**state, node, std::move(transition), std::move(reply));
}

void ClusterService::UndrainNode(const Context& context,
                                 const v1::UndrainNodeRequest& request,
                                 rpc::Reply<v1::UndrainNodeResponse> reply) {
  const absl::StatusOr<ClusterState*> state =
      host_.Writable(Admission::kClient);
  if (!state.ok()) return std::move(reply)(state.status());
  Transition transition;
  const absl::StatusOr<NodeId> node =
      (*state)->UndrainNode(KeyOf(*context, request.request_id(), request),
                            request.node(), transition);
  AnswerWithNode(**state, node, std::move(transition), std::move(reply));
}

// ---- reads ----

template <typename Resp>
void ClusterService::AnswerWhenDurable(absl::StatusOr<Resp> response,
                                       rpc::Reply<Resp> reply) {
  host_.AfterDurable([reply = std::move(reply), response = std::move(response)](
                         const absl::Status& status) mutable {
    if (!status.ok()) return std::move(reply)(status);
    std::move(reply)(std::move(response));
  });
}

absl::StatusOr<JobId> ClusterService::FindNamed(
    const ClusterState& state, const rpc::Principal& principal,
    const std::string& bytes) const {
  COHORT_ASSIGN_OR_RETURN(const JobId id, JobId::FromBytes(bytes));
  if (principal.role == rpc::Role::kRank) {
    if (JobOfRank(state, principal) != id) {
      return absl::PermissionDeniedError(
          "a rank's credential is good for its own job only");
    }
  } else {
    COHORT_RETURN_IF_ERROR(CheckMayUse(state, principal, id));
  }
  if (StateOf(state.jobs(), id).has_value()) return id;
  return state.NoJob(id);
}

absl::StatusOr<const JobRecord*> ClusterService::FindJob(
    const ClusterState& state, const rpc::Principal& principal,
    const std::string& bytes) const {
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindNamed(state, principal, bytes));
  const JobRecord* job = state.jobs().Find(id);
  if (job != nullptr) return job;
  const JobId first = state.jobs().Named(id).front();
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          id.ToText(), " is an array of ", state.jobs().arrays().Find(id)->size,
          " elements: name one of them, as ", first.ToText())),
      "is_array");
}

void ClusterService::GetJob(const Context& context,
                            const v1::GetJobRequest& request,
                            rpc::Reply<v1::GetJobResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  const absl::StatusOr<JobId> job =
      FindNamed(**state, context->principal(), request.job_id());
  if (!job.ok()) {
    return AnswerWhenDurable<v1::GetJobResponse>(job.status(),
                                                 std::move(reply));
  }
  v1::GetJobResponse response;
  *response.mutable_job() = *NamedToWire(**state, *job);
  const MetricsRecord* const metrics =
      request.with_metrics_history() ? (*state)->metrics().Find(*job) : nullptr;
  if (metrics != nullptr) {
    *response.mutable_metrics_history() = metrics->history();
  }
  AnswerWhenDurable<v1::GetJobResponse>(std::move(response), std::move(reply));
}

void ClusterService::ExplainJob(const Context& context,
                                const v1::ExplainJobRequest& request,
                                rpc::Reply<v1::ExplainJobResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  const absl::StatusOr<JobId> id =
      FindNamed(**state, context->principal(), request.job_id());
  if (!id.ok()) {
    return AnswerWhenDurable<v1::ExplainJobResponse>(id.status(),
                                                     std::move(reply));
  }
  ExplainWhen when{.at = std::nullopt, .history = request.history()};
  if (request.has_at()) when.at = rpc::FromWire(request.at());
  const JobTable& jobs = (*state)->jobs();
  const JobRecord* const job = jobs.Find(*id);
  const std::string& package =
      (job != nullptr ? *job->spec : *jobs.arrays().Find(*id)->record.spec)
          .launch()
          .package_hash();
  if (package.empty() || HasEnded(*StateOf(jobs, *id))) {
    return ExplainNow(*id, when, std::move(reply));
  }
  // Nothing would let it start without its package, whose file may be gone.
  packages_.Look(package, [self = self_, id = *id, when,
                           reply = std::move(reply)]() mutable {
    if (*self == nullptr) return std::move(reply)(Gone());
    (*self)->ExplainNow(id, when, std::move(reply));
  });
}

void ClusterService::ExplainNow(const JobId& id, const ExplainWhen& when,
                                rpc::Reply<v1::ExplainJobResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  // It may have been forgotten meanwhile.
  if (!StateOf((*state)->jobs(), id).has_value()) {
    return std::move(reply)((*state)->NoJob(id));
  }
  const bool read_only = !host_.Writable(Admission::kNode).ok();
  const JobRecord* const job = (*state)->jobs().Find(id);
  v1::ExplainJobResponse response =
      job != nullptr
          ? host_.explainer().Explain(**state, *job, read_only, when)
          : host_.explainer().ExplainArray(**state, id, read_only, when);
  if (options_.scaling_of != nullptr && !when.at.has_value()) {
    const absl::StatusOr<JobId> element =
        JobId::FromBytes(response.element_id());
    response.set_scaling(options_.scaling_of(element.value_or(id)));
  }
  AnswerWhenDurable<v1::ExplainJobResponse>(std::move(response),
                                            std::move(reply));
}

void ClusterService::WaitJob(const Context& context,
                             const v1::WaitJobRequest& request,
                             rpc::Reply<v1::WaitJobResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  const absl::StatusOr<JobId> job =
      FindNamed(**state, context->principal(), request.job_id());
  if (!job.ok()) {
    return AnswerWhenDurable<v1::WaitJobResponse>(job.status(),
                                                  std::move(reply));
  }
  if (HasEnded(*StateOf((*state)->jobs(), *job))) {
    v1::WaitJobResponse response;
    *response.mutable_job() = *NamedToWire(**state, *job);
    return AnswerWhenDurable<v1::WaitJobResponse>(std::move(response),
                                                  std::move(reply));
  }
  if (waiters_.size() >= options_.waiters_max) {
    return std::move(reply)(SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            waiters_.size(), " calls wait for jobs already: ask again later")),
        "overloaded"));
  }
  const uint64_t number = next_waiter_++;
  waiters_by_job_[*job].insert(number);
  waiters_.emplace(number, Waiter{.job = *job, .reply = std::move(reply)});
  context->OnCancel([self = self_, number] {
    if (*self != nullptr) (*self)->DropWaiter(number);
  });
}

void ClusterService::DropWaiter(uint64_t number) {
  auto waiter = waiters_.extract(number);
  if (waiter.empty()) return;
  const auto job = waiters_by_job_.find(waiter.mapped().job);
  job->second.erase(number);
  if (job->second.empty()) waiters_by_job_.erase(job);
  std::move(waiter.mapped().reply)(
      absl::DeadlineExceededError("the job has not ended yet"));
}

void ClusterService::JobChanged(const JobId& id) {
  if (const auto logs = logs_.find(id); logs != logs_.end()) {
    const std::set<std::shared_ptr<LogStream>> awake = logs->second;
    for (const std::shared_ptr<LogStream>& log : awake) log->Wake();
  }
  AnswerWaiters(id);
  if (id.IsElement()) AnswerWaiters(id.array());
}

void ClusterService::AnswerWaiters(const JobId& id) {
  const auto waiting = waiters_by_job_.find(id);
  if (waiting == waiters_by_job_.end()) return;
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return;  // they are dropped with the state
  const std::optional<JobState> now = StateOf((*state)->jobs(), id);
  if (now.has_value() && !HasEnded(*now)) return;
  // An ended job does not change any more, so what is shown is durable.
  v1::WaitJobResponse response;
  if (now.has_value()) *response.mutable_job() = *NamedToWire(**state, id);
  const std::set<uint64_t> numbers = std::move(waiting->second);
  waiters_by_job_.erase(waiting);
  for (const uint64_t number : numbers) {
    auto waiter = waiters_.extract(number);
    if (!now.has_value()) {
      std::move(waiter.mapped().reply)(absl::NotFoundError(
          absl::StrCat("job ", id.ToText(), " is not remembered any more")));
    } else {
      std::move(waiter.mapped().reply)(response);
    }
  }
}

void ClusterService::DropWaiting(const absl::Status& why) {
  waiters_by_job_.clear();
  for (auto& [number, waiter] : std::exchange(waiters_, {})) {
    std::move(waiter.reply)(why);
  }
  log_readers_ = 0;
  for (auto& [job, logs] : std::exchange(logs_, {})) {
    for (const std::shared_ptr<LogStream>& log : logs) log->Close(why);
  }
}

void ClusterService::ForgetLog(const std::shared_ptr<LogStream>& log) {
  const auto logs = logs_.find(log->job());
  if (logs == logs_.end()) return;
  log_readers_ -= logs->second.erase(log);
  if (logs->second.empty()) logs_.erase(logs);
}

void ClusterService::ListJobs(const Context& context,
                              const v1::ListJobsRequest& request,
                              rpc::Reply<v1::ListJobsResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  absl::StatusOr<JobQuery> query = FromWire(request);
  if (!query.ok()) return std::move(reply)(query.status());
  query->granted = context->principal().namespaces;
  const absl::Status valid = ValidateJobQuery((*state)->jobs(), *query);
  if (!valid.ok()) {
    return AnswerWhenDurable<v1::ListJobsResponse>(valid, std::move(reply));
  }
  const size_t asked = request.page_size() <= 0
                           ? options_.list_jobs_max
                           : static_cast<size_t>(request.page_size());
  const JobPage page = FindJobs((*state)->jobs(), *query,
                                std::min(asked, options_.list_jobs_max),
                                options_.list_looked_max);
  v1::ListJobsResponse response;
  std::optional<uint64_t> next = page.next;
  size_t bytes = 0;
  for (const JobPage::Item& item : page.jobs) {
    v1::Job wire = item.array != nullptr
                       ? ArrayToWire(**state, *item.array, /*whole=*/false)
                       : JobToWire(**state, *item.job, /*whole=*/false);
    bytes += wire.ByteSizeLong();
    if (bytes > options_.list_bytes_max && response.jobs_size() > 0) {
      next = item.job->row.sequence() + 1;
      break;
    }
    *response.add_jobs() = std::move(wire);
  }
  if (next.has_value()) response.set_next_page_token(PageToken(*next));
  AnswerWhenDurable<v1::ListJobsResponse>(std::move(response),
                                          std::move(reply));
}

void ClusterService::ListNodes(const Context&,
                               const v1::ListNodesRequest& request,
                               rpc::Reply<v1::ListNodesResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  absl::StatusOr<NodeId> after = NodeId();  // before all
  if (!request.page_token().empty()) {
    after = NodeId::FromBytes(request.page_token());
  }
  if (!after.ok()) {
    return std::move(reply)(absl::InvalidArgumentError(
        "the page token is unknown (give the one of the page before)"));
  }
  v1::ListNodesResponse response;
  size_t bytes = 0;
  const auto& nodes = (*state)->nodes().records();
  for (auto it = nodes.upper_bound(*after); it != nodes.end(); ++it) {
    v1::Node wire = NodeToWire(**state, it->second);
    bytes += wire.ByteSizeLong();
    if (bytes > options_.list_bytes_max && response.nodes_size() > 0) {
      response.set_next_page_token(std::string(std::prev(it)->first.bytes()));
      break;
    }
    *response.add_nodes() = std::move(wire);
  }
  AnswerWhenDurable<v1::ListNodesResponse>(std::move(response),
                                           std::move(reply));
}

void ClusterService::GetNode(const Context&, const v1::GetNodeRequest& request,
                             rpc::Reply<v1::GetNodeResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  const absl::StatusOr<NodeId> node =
      FindNode((*state)->nodes(), request.node());
  if (!node.ok()) {
    return AnswerWhenDurable<v1::GetNodeResponse>(node.status(),
                                                  std::move(reply));
  }
  AnswerWhenDurable<v1::GetNodeResponse>(
      WholeNodeToWire(**state, *(*state)->nodes().Find(*node)),
      std::move(reply));
}

void ClusterService::GetResources(const Context&,
                                  const v1::GetResourcesRequest&,
                                  rpc::Reply<v1::GetResourcesResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  v1::GetResourcesResponse response;
  *response.mutable_total() = rpc::ToWire((*state)->nodes().Total());
  *response.mutable_available() = rpc::ToWire((*state)->nodes().Available());
  AnswerWhenDurable<v1::GetResourcesResponse>(std::move(response),
                                              std::move(reply));
}

void ClusterService::GetStatus(const Context&, const v1::GetStatusRequest&,
                               rpc::Reply<v1::GetStatusResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  v1::GetStatusResponse response;
  response.set_address(options_.address);
  response.set_http_address(options_.http_address);
  response.set_head_pid(options_.pid);
  const ClusterRecord& cluster = (*state)->cluster();
  *response.mutable_stamp() = StampOf(cluster);
  for (const auto& [name, count] : (*state)->nodes().CountsByState()) {
    (*response.mutable_nodes_by_state())[name] = count;
  }
  for (const auto& [name, count] : (*state)->jobs().CountsByState()) {
    (*response.mutable_jobs_by_state())[name] = count;
  }
  const absl::Status writable = host_.Writable(Admission::kNode).status();
  response.set_read_only(!writable.ok());
  response.set_read_only_why(std::string(writable.message()));
  if (const auto later = (*state)->later_store()) {
    for (const std::string& name : later->names) {
      if (response.later_store_node_names_size() == kLaterStoreNamesMax) break;
      response.add_later_store_node_names(name);
    }
    response.set_later_store_term(later->term);
    response.set_later_store_why(LaterStoreReason(*later, cluster.term()));
  }
  AddOrphans(**state, response);
  AnswerWhenDurable<v1::GetStatusResponse>(std::move(response),
                                           std::move(reply));
}

}  // namespace cohort::head
