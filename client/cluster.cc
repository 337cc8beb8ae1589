#include "client/cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/connection.h"
#include "client/event_follower.h"
#include "client/head_client.h"
#include "client/log_follower.h"
#include "client/log_tail.h"
#include "client/message_text.h"
#include "client/package_upload.h"
#include "client/run_file_stream.h"
#include "client/wire.h"
#include "common/checkpoint_path.h"
#include "common/duration_text.h"
#include "common/gate.h"
#include "common/job_limits.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/thread_pool.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort {
namespace {

// One stream each; a reader of more names the rank that it wants.
constexpr int kRanksReadMax = 1024;
// Nodes that are asked for what those of a job had on shared storage.
constexpr int kOthersAskedMax = 3;
// Jobs of one page of a list: a few hundred KiB.
constexpr size_t kPageMax = 2'000;

using SubmitDone = absl::AnyInvocable<void(absl::StatusOr<JobId>) &&>;

// Runs `done` once, as CANCELLED when it is dropped.
class Completion {
 public:
  explicit Completion(SubmitDone done) : done_(std::move(done)) {}
  ~Completion() {
    if (done_ != nullptr) {
      std::move(done_)(absl::CancelledError("the client was closed"));
    }
  }

  Completion(Completion&& other) noexcept
      : done_(std::exchange(other.done_, nullptr)) {}
  Completion& operator=(Completion&&) = delete;

  void operator()(absl::StatusOr<JobId> result) {
    std::exchange(done_, nullptr)(std::move(result));
  }

 private:
  SubmitDone done_;
};

absl::StatusOr<v1::SubmitJobRequest> ToRequest(const JobSpec& spec,
                                               const SubmitOptions& options,
                                               Random& random) {
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec));
  if (!options.request_id.empty()) {
    COHORT_RETURN_IF_ERROR(CheckRequestId(options.request_id));
  }
  v1::SubmitJobRequest request;
  request.set_request_id(options.request_id.empty()
                             ? RequestId::New(random).ToHex()
                             : options.request_id);
  *request.mutable_spec() = client::ToWire(spec);
  return request;
}

absl::StatusOr<JobId> SubmittedJob(
    const absl::StatusOr<v1::SubmitJobResponse>& response) {
  if (!response.ok()) return response.status();
  const absl::StatusOr<JobId> job = JobId::FromBytes(response->job_id());
  if (!job.ok()) return absl::InternalError(job.status().message());
  return job;
}

}  // namespace

class Cluster::Core {
 public:
  Core(std::unique_ptr<rpc::Channel> channel, ClusterOptions options)
      : options_(std::move(options)),
        channel_(std::move(channel)),
        head_(*channel_, clock_, random_, {.on_retry = options_.on_retry}) {}

  ~Core() {
    ThreadPool* pool = nullptr;
    {
      MutexLock lock(mutex_);
      pool = pool_.get();
    }
    // First the thread that could start calls, then the calls in flight, whose
    // ends are then dropped, and with them their Completions.
    if (pool != nullptr) pool->Stop();
    channel_.reset();
    submits_.Close();
    submits_.WaitUntilIdle();
  }

  client::HeadClient& head() { return head_; }
  Random& random() { return random_; }
  const ClusterOptions& options() const { return options_; }
  absl::Duration Or(std::optional<absl::Duration> deadline) const {
    return deadline.value_or(options_.deadline);
  }

  // The thread on which callbacks run; there is none until one is needed.
  Executor& callbacks() {
    MutexLock lock(mutex_);
    if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>(1);
    return *pool_;
  }

  // Held by each SubmitAsync until its callback has run.
  Gate& submits() { return submits_; }

 private:
  const ClusterOptions options_;
  const MachineClock clock_;
  SystemRandom random_;
  Gate submits_;
  Mutex mutex_;
  std::unique_ptr<ThreadPool> pool_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<rpc::Channel> channel_;
  client::HeadClient head_;
};

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Connect(
    ClusterOptions options) {
  COHORT_ASSIGN_OR_RETURN(const std::string address,
                          client::FindAddress(options.address));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          client::FindCredential(options.credential_file));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Channel> channel,
                          rpc::NewGrpcChannel(address, credential));
  return ConnectThrough(std::move(channel), std::move(options));
}

std::unique_ptr<Cluster> Cluster::ConnectThrough(
    std::unique_ptr<rpc::Channel> channel, ClusterOptions options) {
  return std::unique_ptr<Cluster>(new Cluster(
      std::make_unique<Core>(std::move(channel), std::move(options))));
}

Cluster::Cluster(std::unique_ptr<Core> core) : core_(std::move(core)) {}

Cluster::~Cluster() = default;

absl::StatusOr<JobId> Cluster::Submit(const JobSpec& spec,
                                      SubmitOptions options) {
  COHORT_ASSIGN_OR_RETURN(const v1::SubmitJobRequest request,
                          ToRequest(spec, options, core_->random()));
  return SubmittedJob(core_->head().CallAndWait(rpc::kSubmitJob, request,
                                                core_->Or(options.deadline)));
}

void Cluster::SubmitAsync(const JobSpec& spec, SubmitOptions options,
                          SubmitDone done) {
  Executor& where = core_->callbacks();
  const bool is_full =
      core_->submits().in_flight() >= core_->options().submits_in_flight_max;
  Completion completion(
      [pass = core_->submits().TryEnter(),
       done = std::move(done)](absl::StatusOr<JobId> result) mutable {
        std::move(done)(std::move(result));
      });
  const auto refuse = [&where](Completion refused, absl::Status why) {
    where.Post([refused = std::move(refused), why = std::move(why)]() mutable {
      refused(why);
    });
  };
  if (is_full) {
    return refuse(
        std::move(completion),
        absl::ResourceExhaustedError(absl::StrCat(
            "there are ", core_->options().submits_in_flight_max,
            " submissions in flight already: wait for some to be answered")));
  }
  absl::StatusOr<v1::SubmitJobRequest> request =
      ToRequest(spec, options, core_->random());
  if (!request.ok()) return refuse(std::move(completion), request.status());
  core_->head().Call(
      rpc::kSubmitJob, *request, core_->Or(options.deadline), where,
      [completion = std::move(completion)](
          absl::StatusOr<v1::SubmitJobResponse> response) mutable {
        completion(SubmittedJob(response));
      });
}

absl::Status Cluster::UploadPackage(const Package& package,
                                    const UploadOptions& options) {
  return client::UploadPackage(
      core_->head(), package, core_->Or(options.deadline), options.on_progress);
}

absl::Status Cluster::Stop(JobId job, std::optional<absl::Duration> deadline) {
  v1::StopJobRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_job_id(std::string(job.bytes()));
  return core_->head()
      .CallAndWait(rpc::kStopJob, request, core_->Or(deadline))
      .status();
}

absl::StatusOr<Adoption> Cluster::Adopt(
    AttemptId attempt, std::optional<absl::Duration> deadline) {
  v1::AdoptAttemptRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_attempt_id(std::string(attempt.bytes()));
  return core_->head().CallAndWait(rpc::kAdoptAttempt, request,
                                   core_->Or(deadline));
}

absl::StatusOr<JobId> Cluster::End(AttemptId attempt,
                                   std::optional<absl::Duration> deadline) {
  v1::EndAttemptRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_attempt_id(std::string(attempt.bytes()));
  COHORT_ASSIGN_OR_RETURN(const v1::EndAttemptResponse response,
                          core_->head().CallAndWait(rpc::kEndAttempt, request,
                                                    core_->Or(deadline)));
  return JobId::FromBytes(response.job_id());
}

absl::StatusOr<BackupSummary> Cluster::BackupStore(
    const std::string& directory, std::optional<absl::Duration> deadline) {
  v1::BackupStoreRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_directory(directory);
  return core_->head().CallAndWait(rpc::kBackupStore, request,
                                   core_->Or(deadline));
}

absl::Status Cluster::Hold(JobId job, std::optional<absl::Duration> deadline) {
  v1::HoldJobRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_job_id(job.bytes());
  return core_->head()
      .CallAndWait(rpc::kHoldJob, request, core_->Or(deadline))
      .status();
}

absl::Status Cluster::Release(JobId job,
                              std::optional<absl::Duration> deadline) {
  v1::ReleaseJobRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_job_id(job.bytes());
  return core_->head()
      .CallAndWait(rpc::kReleaseJob, request, core_->Or(deadline))
      .status();
}

absl::Status Cluster::Remove(JobId job,
                             std::optional<absl::Duration> deadline) {
  v1::RemoveJobRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_job_id(job.bytes());
  return core_->head()
      .CallAndWait(rpc::kRemoveJob, request, core_->Or(deadline))
      .status();
}

absl::Status Cluster::ResizeJob(JobId job, int num_workers,
                                std::optional<absl::Duration> deadline) {
  COHORT_RETURN_IF_ERROR(CheckNumWorkers(num_workers));
  v1::ResizeJobRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_job_id(job.bytes());
  request.set_num_workers(num_workers);
  return core_->head()
      .CallAndWait(rpc::kResizeJob, request, core_->Or(deadline))
      .status();
}

absl::StatusOr<Node> Cluster::Drain(const std::string& node,
                                    const DrainOptions& options,
                                    std::optional<absl::Duration> deadline) {
  v1::DrainNodeRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_node(node);
  request.set_reason(options.reason);
  if (options.deadline != absl::InfiniteDuration()) {
    *request.mutable_deadline() = rpc::ToWire(options.deadline);
  }
  COHORT_ASSIGN_OR_RETURN(
      v1::DrainNodeResponse response,
      core_->head().CallAndWait(rpc::kDrainNode, request, core_->Or(deadline)));
  return std::move(*response.mutable_node());
}

absl::StatusOr<Node> Cluster::Undrain(const std::string& node,
                                      std::optional<absl::Duration> deadline) {
  v1::UndrainNodeRequest request;
  request.set_request_id(RequestId::New(core_->random()).ToHex());
  request.set_node(node);
  COHORT_ASSIGN_OR_RETURN(v1::UndrainNodeResponse response,
                          core_->head().CallAndWait(rpc::kUndrainNode, request,
                                                    core_->Or(deadline)));
  return std::move(*response.mutable_node());
}

absl::StatusOr<Job> Cluster::Get(JobId job,
                                 std::optional<absl::Duration> deadline) const {
  v1::GetJobRequest request;
  request.set_job_id(std::string(job.bytes()));
  COHORT_ASSIGN_OR_RETURN(
      v1::GetJobResponse response,
      core_->head().CallAndWait(rpc::kGetJob, request, core_->Or(deadline)));
  return std::move(*response.mutable_job());
}

absl::StatusOr<v1::MetricsHistory> Cluster::MetricsHistory(
    JobId job, std::optional<absl::Duration> deadline) const {
  v1::GetJobRequest request;
  request.set_job_id(job.bytes());
  request.set_with_metrics_history(true);
  COHORT_ASSIGN_OR_RETURN(
      v1::GetJobResponse response,
      core_->head().CallAndWait(rpc::kGetJob, request, core_->Or(deadline)));
  return std::move(*response.mutable_metrics_history());
}

absl::StatusOr<Explanation> Cluster::Explain(JobId job,
                                             ExplainOptions options) const {
  v1::ExplainJobRequest request;
  request.set_job_id(job.bytes());
  if (options.at.has_value()) {
    *request.mutable_at() = rpc::ToWire(*options.at);
  }
  request.set_history(options.history);
  return core_->head().CallAndWait(rpc::kExplainJob, request,
                                   core_->Or(options.deadline));
}

absl::StatusOr<JobList> Cluster::List(
    const ListOptions& options, std::optional<absl::Duration> deadline) const {
  v1::ListJobsRequest request = client::ToWire(options);
  JobList list;
  for (;;) {
    const size_t left = options.limit - list.jobs.size();
    request.set_page_size(
        static_cast<int32_t>(std::clamp<size_t>(left, 1, kPageMax)));
    COHORT_ASSIGN_OR_RETURN(v1::ListJobsResponse response,
                            core_->head().CallAndWait(rpc::kListJobs, request,
                                                      core_->Or(deadline)));
    for (Job& job : *response.mutable_jobs()) {
      if (list.jobs.size() == options.limit) break;
      list.jobs.push_back(std::move(job));
    }
    const bool is_last = response.next_page_token().empty();
    if (is_last || list.jobs.size() == options.limit) {
      list.is_cut = !is_last;
      return list;
    }
    request.set_page_token(response.next_page_token());
  }
}

absl::StatusOr<Job> Cluster::Wait(JobId job, absl::Duration deadline) const {
  v1::WaitJobRequest request;
  request.set_job_id(std::string(job.bytes()));
  absl::StatusOr<v1::WaitJobResponse> response =
      core_->head().CallAndWait(rpc::kWaitJob, request, deadline);
  if (response.ok()) return std::move(*response->mutable_job());
  if (absl::IsUnavailable(response.status()) ||
      absl::IsDeadlineExceeded(response.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("job ", job.ToText(), " has not ended within ",
                     DurationToText(deadline),
                     absl::IsUnavailable(response.status())
                         ? absl::StrCat(" (", response.status().message(), ")")
                         : ""));
  }
  return response.status();
}

absl::Status Cluster::Logs(
    JobId job, const LogOptions& options,
    absl::FunctionRef<absl::Status(const LogChunk&)> sink) const {
  COHORT_ASSIGN_OR_RETURN(const Job found, Get(job));
  if (found.has_array()) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            job.ToText(), " is an array of ", found.array().size(),
            " elements: name the one whose log you want, as ", job.ToText(),
            ".0; `cohort jobs get ", job.ToText(), "` lists them")),
        "is_array");
  }
  const int world = found.num_workers();
  std::vector<int> ranks = options.ranks;
  for (int rank = 0; options.ranks.empty() && rank < world; ++rank) {
    ranks.push_back(rank);
  }
  if (ranks.size() > static_cast<size_t>(kRanksReadMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", job.ToText(), " has ", world,
                     " ranks: name those whose logs you want (more than ",
                     kRanksReadMax, " are not read at once)"));
  }
  std::vector<client::LogPlace> places;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world) {
      return absl::NotFoundError(
          absl::StrCat("job ", job.ToText(), " has no rank ", rank,
                       ": its ranks are 0 to ", world - 1));
    }
    for (const LogStream stream :
         {v1::LOG_STREAM_STDOUT, v1::LOG_STREAM_STDERR}) {
      if (stream == v1::LOG_STREAM_STDOUT ? options.standard_output
                                          : options.standard_error) {
        places.push_back(
            {.rank = rank, .stream = stream, .attempt = options.attempt});
      }
    }
  }
  const absl::Duration deadline =
      options.deadline.value_or(absl::InfiniteDuration());
  const absl::Duration timeout = core_->options().deadline;
  if (options.tail.has_value() || options.since.has_value()) {
    COHORT_ASSIGN_OR_RETURN(
        places,
        client::FindLogTail(core_->head(), job, options, timeout, places));
  }
  return client::LogFollower(
             core_->head(), job, options, deadline,
             options.follow ? absl::InfiniteDuration() : timeout, places, sink)
      .Run();
}

absl::StatusOr<JobFiles> Cluster::Files(
    JobId job, std::optional<absl::Duration> deadline) const {
  COHORT_ASSIGN_OR_RETURN(const Job found, Get(job, deadline));
  if (found.has_array()) {
    return absl::FailedPreconditionError(absl::StrCat(
        job.ToText(), " is an array: name one of its elements, as ",
        job.ToText(), ".0"));
  }
  std::map<std::string, std::string> nodes;  // names by id
  for (const v1::Rank& rank : found.ranks()) {
    if (!rank.node_id().empty()) nodes[rank.node_id()] = rank.node_name();
  }
  const std::map<std::string, std::string> ran_on = nodes;
  const bool is_shared = !found.spec().run().storage_path().empty();
  if (!is_shared && (found.attempt() > 1 || found.epoch() > 1)) {
    // It may have been on any of them before.
    COHORT_ASSIGN_OR_RETURN(const std::vector<Node> all, Nodes(deadline));
    for (const Node& node : all) {
      // One that was dead before the job began has nothing of it.
      const bool was_there =
          node.state() != v1::NODE_STATE_DEAD ||
          rpc::FromWire(node.since()) >= rpc::FromWire(found.submitted_at());
      if (was_there) nodes[node.node_id()] = node.name();
    }
  }
  JobFiles files;
  if (is_shared) {
    files.shared_directory =
        absl::StrCat(found.spec().run().storage_path(), "/", job.ToText());
  }
  absl::Status failure;  // of a node that is not known to be away
  std::set<std::string> seen;
  const auto ask = [&](const std::string& id, const std::string& name) {
    v1::ReadRunFileRequest request;
    request.set_job_id(std::string(job.bytes()));
    request.set_node_id(id);
    return client::ReadRunFile(
        core_->head(), request, core_->Or(deadline),
        [&](const v1::ReadRunFileResponse& page) {
          for (const v1::RunFile& file : page.files()) {
            // All see what lies there; what an attempt
            // has not left yet only its node.
            if (is_shared && !seen.insert(file.path()).second) {
              continue;
            }
            const bool is_manifest =
                absl::StartsWith(file.path(), kCheckpointsPrefix);
            (is_manifest ? files.manifests : files.files)
                .push_back({id, name, file});
          }
          return absl::OkStatus();
        });
  };
  for (const auto& node : nodes) {
    const absl::Status read = ask(node.first, node.second);
    if (read.ok()) continue;
    if (GetReason(read) == "node_gone") {
      if (ran_on.contains(node.first)) files.nodes_gone.push_back(node.second);
      continue;
    }
    if (!absl::IsUnavailable(read) && !absl::IsDeadlineExceeded(read)) {
      return read;
    }
    files.nodes_away.push_back(node.second);
    if (GetReason(read) != "node_away") failure = read;
  }
  bool is_seen =
      files.nodes_away.size() + files.nodes_gone.size() < nodes.size();
  // Of the head, then.
  if (!is_seen) COHORT_RETURN_IF_ERROR(failure);
  if (is_shared && !is_seen && !files.nodes_gone.empty()) {
    // What outlives nodes is there for others, too.
    COHORT_ASSIGN_OR_RETURN(const std::vector<Node> all, Nodes(deadline));
    int asked = 0;
    for (const Node& node : all) {
      if (is_seen || asked == kOthersAskedMax) break;
      if (node.state() == v1::NODE_STATE_DEAD ||
          node.state() == v1::NODE_STATE_ABSENT ||
          nodes.contains(node.node_id())) {
        continue;
      }
      ++asked;
      is_seen = ask(node.node_id(), node.name()).ok() && !seen.empty();
    }
  }
  if (is_shared && is_seen) {
    files.nodes_away.clear();
    files.nodes_gone.clear();
  }
  std::stable_sort(files.files.begin(), files.files.end(),
                   [](const JobFile& a, const JobFile& b) {
                     return a.file.path() < b.file.path();
                   });
  return files;
}

absl::Status Cluster::ReadFile(
    JobId job, const JobFile& file,
    absl::FunctionRef<absl::Status(absl::string_view bytes)> sink,
    std::optional<absl::Duration> deadline) const {
  v1::ReadRunFileRequest request;
  request.set_job_id(std::string(job.bytes()));
  request.set_node_id(file.node_id);
  request.set_path(file.file.path());
  return client::ReadRunFile(core_->head(), request, core_->Or(deadline),
                             [&sink](const v1::ReadRunFileResponse& piece) {
                               return sink(piece.data());
                             });
}

absl::Status Cluster::Events(
    const EventOptions& options,
    absl::FunctionRef<absl::Status(const Event& event, const EventPlace& place)>
        sink) const {
  v1::ListEventsRequest request;
  request.set_after(options.after);
  if (options.since.has_value()) {
    *request.mutable_since() = rpc::ToWire(*options.since);
  }
  if (options.job.has_value()) request.set_job_id(options.job->bytes());
  request.set_node(options.node);
  const absl::Duration ends =
      core_->head().clock().Monotonic() +
      options.deadline.value_or(absl::InfiniteDuration());
  const auto ask = [&](const v1::ListEventsRequest& page) {
    const absl::Duration left = ends - core_->head().clock().Monotonic();
    return core_->head().CallAndWait(
        rpc::kListEvents, page,
        page.wait() ? left : std::min(left, core_->Or(std::nullopt)));
  };
  return client::EventFollower(ask, std::move(request), options.follow, sink)
      .Run();
}

absl::StatusOr<std::vector<Node>> Cluster::Nodes(
    std::optional<absl::Duration> deadline) const {
  v1::ListNodesRequest request;
  std::vector<Node> nodes;
  do {
    COHORT_ASSIGN_OR_RETURN(v1::ListNodesResponse page,
                            core_->head().CallAndWait(rpc::kListNodes, request,
                                                      core_->Or(deadline)));
    for (Node& each : *page.mutable_nodes()) nodes.push_back(std::move(each));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return nodes;
}

absl::StatusOr<NodeDetails> Cluster::GetNode(
    const std::string& node, std::optional<absl::Duration> deadline) const {
  v1::GetNodeRequest request;
  request.set_node(node);
  COHORT_ASSIGN_OR_RETURN(
      NodeDetails details,
      core_->head().CallAndWait(rpc::kGetNode, request, core_->Or(deadline)));
  EventOptions events;
  events.node = IdText(details.node().node_id());
  events.deadline = core_->Or(deadline);
  auto& history = *details.mutable_history();
  const auto keep = [&](const Event& event, const EventPlace&) {
    // Events of jobs there would leave no room for the node's own.
    if (event.node_id() != details.node().node_id()) return absl::OkStatus();
    if (history.size() == kNodeHistoryMax) history.erase(history.begin());
    *history.Add() = event;
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(Events(events, keep));
  return details;
}

absl::StatusOr<DriverList> Cluster::Drivers(
    std::optional<absl::Duration> deadline) const {
  return core_->head().CallAndWait(rpc::kListDrivers, v1::ListDriversRequest(),
                                   core_->Or(deadline));
}

absl::StatusOr<std::string> Cluster::CreateToken(
    v1::Role role, const std::string& name,
    const std::vector<std::string>& namespaces, absl::Duration ttl,
    std::optional<absl::Duration> deadline) {
  v1::CreateTokenRequest request;
  request.set_token_id(SystemRandom().Bytes(rpc::Credential::kTokenIdBytes));
  request.set_role(role);
  request.set_name(name);
  *request.mutable_namespaces() = {namespaces.begin(), namespaces.end()};
  if (ttl != absl::InfiniteDuration()) {
    request.set_ttl_us(absl::ToInt64Microseconds(ttl));
  }
  COHORT_ASSIGN_OR_RETURN(v1::CreateTokenResponse response,
                          core_->head().CallAndWait(rpc::kCreateToken, request,
                                                    core_->Or(deadline)));
  return std::move(*response.mutable_secret());
}

absl::StatusOr<std::vector<Token>> Cluster::ListTokens(
    std::optional<absl::Duration> deadline) const {
  COHORT_ASSIGN_OR_RETURN(
      const v1::ListTokensResponse response,
      core_->head().CallAndWait(rpc::kListTokens, v1::ListTokensRequest(),
                                core_->Or(deadline)));
  return std::vector<Token>(response.tokens().begin(), response.tokens().end());
}

absl::Status Cluster::Audit(absl::Time since, const std::string& principal,
                            absl::FunctionRef<void(const AuditEntry&)> each,
                            std::optional<absl::Duration> deadline) const {
  v1::ListAuditRequest request;
  if (since != absl::InfinitePast()) {
    *request.mutable_since() = rpc::ToWire(since);
  }
  request.set_principal(principal);
  for (bool more = true; more;) {
    COHORT_ASSIGN_OR_RETURN(const v1::ListAuditResponse page,
                            core_->head().CallAndWait(rpc::kListAudit, request,
                                                      core_->Or(deadline)));
    for (const AuditEntry& entry : page.entries()) each(entry);
    request.set_after(page.next());
    more = page.more();
  }
  return absl::OkStatus();
}

absl::StatusOr<Token> Cluster::RevokeToken(
    const std::string& id, std::optional<absl::Duration> deadline) {
  v1::RevokeTokenRequest request;
  request.set_token_id(id);
  COHORT_ASSIGN_OR_RETURN(v1::RevokeTokenResponse response,
                          core_->head().CallAndWait(rpc::kRevokeToken, request,
                                                    core_->Or(deadline)));
  return std::move(*response.mutable_token());
}

absl::StatusOr<AuthorityList> Cluster::Authorities(
    std::optional<absl::Duration> deadline) const {
  return core_->head().CallAndWait(
      rpc::kListAuthorities, v1::ListAuthoritiesRequest(), core_->Or(deadline));
}

absl::StatusOr<AuthorityList> Cluster::RotateAuthority(
    std::optional<absl::Duration> deadline) {
  return core_->head().CallAndWait(
      rpc::kRotateAuthority, v1::RotateAuthorityRequest(), core_->Or(deadline));
}

absl::StatusOr<AuthorityList> Cluster::FinishRotation(
    const std::string& fingerprint, bool force,
    std::optional<absl::Duration> deadline) {
  v1::FinishRotationRequest request;
  request.set_fingerprint(fingerprint);
  request.set_force(force);
  return core_->head().CallAndWait(rpc::kFinishRotation, request,
                                   core_->Or(deadline));
}

absl::Status Cluster::ApplyClusterFile(const std::string& text,
                                       std::optional<absl::Duration> deadline) {
  v1::ApplyClusterFileRequest request;
  request.set_text(text);
  return core_->head()
      .CallAndWait(rpc::kApplyClusterFile, request, core_->Or(deadline))
      .status();
}

absl::Status Cluster::RequestCapacity(const CapacityRequest& capacity,
                                      absl::Duration ttl,
                                      std::optional<absl::Duration> deadline) {
  v1::RequestCapacityRequest request;
  *request.mutable_request() = capacity;
  if (ttl != absl::InfiniteDuration()) {
    request.set_ttl_us(absl::ToInt64Microseconds(ttl));
  }
  return core_->head()
      .CallAndWait(rpc::kRequestCapacity, request, core_->Or(deadline))
      .status();
}

absl::Status Cluster::WithdrawCapacity(const std::string& name,
                                       const std::string& owner,
                                       std::optional<absl::Duration> deadline) {
  v1::WithdrawCapacityRequest request;
  request.set_name(name);
  request.set_owner(owner);
  return core_->head()
      .CallAndWait(rpc::kWithdrawCapacity, request, core_->Or(deadline))
      .status();
}

absl::StatusOr<Autoscaling> Cluster::GetAutoscaling(
    std::optional<absl::Duration> deadline) const {
  return core_->head().CallAndWait(
      rpc::kGetAutoscaler, v1::GetAutoscalerRequest(), core_->Or(deadline));
}

absl::StatusOr<RankStack> Cluster::Stack(
    JobId job, int rank, std::optional<absl::Duration> deadline) const {
  v1::GetStackRequest request;
  request.set_job_id(job.bytes());
  request.set_rank(rank);
  return core_->head().CallAndWait(rpc::kGetStack, request,
                                   core_->Or(deadline));
}

absl::StatusOr<RankCalls> Cluster::ServedCalls(
    JobId job, int rank, std::optional<absl::Duration> deadline) const {
  v1::GetServedCallsRequest request;
  request.set_job_id(job.bytes());
  request.set_rank(rank);
  return core_->head().CallAndWait(rpc::kGetServedCalls, request,
                                   core_->Or(deadline));
}

absl::StatusOr<ClusterResources> Cluster::Resources(
    std::optional<absl::Duration> deadline) const {
  return core_->head().CallAndWait(
      rpc::kGetResources, v1::GetResourcesRequest(), core_->Or(deadline));
}

absl::StatusOr<ClusterStatus> Cluster::Status(
    std::optional<absl::Duration> deadline) const {
  return core_->head().CallAndWait(rpc::kGetStatus, v1::GetStatusRequest(),
                                   core_->Or(deadline));
}

const std::string& Cluster::address() const {
  return core_->head().channel().address();
}

}  // namespace cohort
