#include "trainer/worker_session.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/backoff.h"
#include "common/job_id.h"
#include "common/latch.h"
#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/strong_id.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/methods.h"
#include "trainer/comm/gpu_rendezvous.h"
#include "trainer/comm/gpu_seat.h"
#include "trainer/comm/shm_comm.h"
#ifdef COHORT_HAVE_GLOO
#include "trainer/comm/gloo_comm.h"
#endif

namespace cohort::trainer {
namespace {

constexpr char kSocketVariable[] = "COHORT_WORKER_SOCKET";
// Between tries while the daemon is away: it is back within a second or so.
constexpr BackoffOptions kDaemonBackoff = {.initial = absl::Milliseconds(50),
                                           .max = absl::Seconds(1)};

absl::StatusOr<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is not set: ", kSocketVariable,
        " says that this is a rank, and its worker daemon sets both"));
  }
  return std::string(value);
}

template <typename Int>
absl::StatusOr<Int> Number(const char* name) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, Variable(name));
  Int value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "=", text, " is not a number"));
  }
  return value;
}

}  // namespace

bool IsRank() {
  const char* socket = std::getenv(kSocketVariable);
  return socket != nullptr && *socket != '\0';
}

absl::StatusOr<WorkerSessionOptions> WorkerSessionFromEnvironment() {
  WorkerSessionOptions options;
  COHORT_ASSIGN_OR_RETURN(options.worker_socket, Variable(kSocketVariable));
  COHORT_ASSIGN_OR_RETURN(options.credential_file,
                          Variable("COHORT_CREDENTIAL_FILE"));
  COHORT_ASSIGN_OR_RETURN(options.attempt_id, Variable("COHORT_ATTEMPT_ID"));
  COHORT_ASSIGN_OR_RETURN(options.rank, Number<int>("RANK"));
  COHORT_ASSIGN_OR_RETURN(options.epoch, Number<int64_t>("COHORT_EPOCH"));
  return options;
}

absl::StatusOr<std::unique_ptr<WorkerSession>> WorkerSession::Join(
    WorkerSessionOptions options) {
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          rpc::Credential::Load(options.credential_file));
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<rpc::Channel> channel,
      rpc::NewGrpcChannel(absl::StrCat("unix:", options.worker_socket),
                          credential));
  std::unique_ptr<WorkerSession> session(
      new WorkerSession(std::move(options), std::move(channel)));
  COHORT_RETURN_IF_ERROR(session->JoinRun());
  COHORT_RETURN_IF_ERROR(session->BuildComms());
  return session;
}

WorkerSession::WorkerSession(WorkerSessionOptions options,
                             std::unique_ptr<rpc::Channel> channel)
    : options_(std::move(options)), channel_(std::move(channel)) {}

WorkerSession::~WorkerSession() = default;

template <typename Req, typename Resp>
absl::StatusOr<Resp> WorkerSession::CallDaemon(
    const rpc::UnaryMethod<Req, Resp>& method, const Req& request,
    absl::Duration patience) {
  const MachineClock clock;
  const absl::Duration until = clock.Monotonic() + patience;
  Backoff backoff(kDaemonBackoff, random_);
  for (;;) {
    const absl::Duration left = until - clock.Monotonic();
    absl::StatusOr<Resp> response =
        rpc::CallAndWait(*channel_, method, request,
                         {.deadline = std::max(left, absl::Milliseconds(1))})
            .response;
    if (!absl::IsUnavailable(response.status())) return response;
    const absl::Duration wait = backoff.Next();
    if (clock.Monotonic() + wait >= until) {
      return Annotate(
          response.status(),
          absl::StrCat("the worker daemon at ", options_.worker_socket,
                       " is away since ", absl::FormatDuration(patience)));
    }
    Latch().WaitFor(wait);
  }
}

absl::Status WorkerSession::JoinRun() {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromHex(options_.attempt_id));
  attempt_ = std::string(attempt.bytes());
  v1::JoinRunRequest request;
  request.set_attempt_id(attempt_);
  request.set_rank(options_.rank);
  request.set_epoch(options_.epoch);
  COHORT_ASSIGN_OR_RETURN(
      const v1::JoinRunResponse joined,
      CallDaemon(rpc::kJoinRun, request, options_.daemon_patience));
  host_ = joined.host();
  runtime_directory_ = joined.runtime_directory();
  place_ = {.job_id = JobIdText(joined.job_id()),
            .attempt = joined.number(),
            .epoch = joined.epoch(),
            .rank = joined.rank(),
            .world = joined.world_size(),
            .local_rank = joined.local_rank(),
            .local_world = joined.local_world_size(),
            .node_rank = joined.node_rank(),
            .node_count = joined.node_count(),
            .checkpoint_root = joined.checkpoint_root(),
            .restore = std::nullopt};
  if (!joined.restore().path().empty()) {
    place_.restore = CheckpointRecord{.path = joined.restore().path(),
                                      .step = joined.restore().step(),
                                      .epoch = joined.restore().epoch()};
  }
  return absl::OkStatus();
}

absl::Status WorkerSession::BuildComms() {
  COHORT_RETURN_IF_ERROR(BuildHostComm());
  return options_.can_use_gpu ? BuildGpuComm() : absl::OkStatus();
}

absl::Status WorkerSession::BuildHostComm() {
  // The place is claimed in any case: metrics go through it.
  COHORT_ASSIGN_OR_RETURN(
      arena_place_,
      shm::ArenaPlace::Claim(runtime_directory_, place_.local_rank));
  const uint64_t epoch = static_cast<uint64_t>(place_.epoch);
  if (place_.node_count == 1) {
    COHORT_ASSIGN_OR_RETURN(host_comm_, ShmComm::Create(*arena_place_, epoch));
    // So that the first operation's deadline does not have to cover the start
    // of the slowest rank.
    return host_comm_->Barrier(options_.gang_patience);
  }
#ifdef COHORT_HAVE_GLOO
  Exchange exchange = ExchangeThroughDaemon();
  COHORT_ASSIGN_OR_RETURN(
      host_comm_, ConnectGloo({.rank = place_.rank,
                               .world = place_.world,
                               .epoch = epoch,
                               .hostname = host_,
                               .connect_deadline = options_.gang_patience},
                              exchange));
  return absl::OkStatus();
#else
  return absl::FailedPreconditionError(absl::StrCat(
      "this gang is spread over ", place_.node_count,
      " nodes and this program is without Gloo (linked statically, or built "
      "where libgloo-dev was not): place the gang on one node (--strategy "
      "STRICT_PACK)"));
#endif
}

absl::Status WorkerSession::BuildGpuComm() {
  GpuCommOptions options = GpuOfThisMachine();
  options.connect_deadline = options_.gang_patience;
  Exchange exchange = ExchangeThroughDaemon();
  auto comm = ConnectGpuComm(std::move(options), *host_comm_, exchange);
  if (comm.ok()) {
    COHORT_LOG(kInfo, "gpu_comm", {"rank", place_.rank},
               {"over", (*comm)->description()});
    gpu_comm_ = *std::move(comm);
    return absl::OkStatus();
  }
  if (GetReason(comm.status()) != kGpusUnusable) return comm.status();
  COHORT_LOG(kWarning, "no_gpu_comm", {"rank", place_.rank},
             {"why", comm.status().message()});
  return absl::OkStatus();
}

Exchange WorkerSession::ExchangeThroughDaemon() {
  return
      [this](absl::string_view tag, std::string mine, absl::Duration deadline) {
        return ExchangeBlobs(tag, std::move(mine), deadline);
      };
}

absl::StatusOr<std::vector<std::string>> WorkerSession::ExchangeBlobs(
    absl::string_view tag, std::string mine, absl::Duration deadline) {
  v1::ExchangeRequest request;
  request.set_attempt_id(attempt_);
  request.set_rank(place_.rank);
  request.set_epoch(place_.epoch);
  request.set_tag(std::string(tag));
  request.set_blob(std::move(mine));
  COHORT_ASSIGN_OR_RETURN(const v1::ExchangeResponse response,
                          CallDaemon(rpc::kExchange, request, deadline));
  return std::vector<std::string>(response.blobs().begin(),
                                  response.blobs().end());
}

absl::Status WorkerSession::Report(absl::string_view metrics) {
  if (metrics.size() > kMetricsBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a report of ", metrics.size(), " bytes is larger than the ",
        kMetricsBytesMax, " that its cell holds"));
  }
  return arena_place_->metrics().Publish(metrics);
}

absl::Status WorkerSession::CommitCheckpoint(absl::string_view path,
                                             int64_t step) {
  v1::CommitCheckpointRequest request;
  request.set_attempt_id(attempt_);
  request.set_rank(place_.rank);
  request.set_epoch(place_.epoch);
  request.mutable_checkpoint()->set_path(std::string(path));
  request.mutable_checkpoint()->set_step(step);
  return CallDaemon(rpc::kCommitCheckpoint, request, options_.daemon_patience)
      .status();
}

absl::Status WorkerSession::Finish() {
  // Nobody leaves while a peer still needs its memory or its connection.
  return comm().Barrier(options_.gang_patience);
}

}  // namespace cohort::trainer
