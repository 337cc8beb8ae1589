#include "trainer/daemon_link.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/backoff.h"
#include "common/job_id.h"
#include "common/latch.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/strong_id.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/methods.h"

namespace cohort::trainer {
namespace {

constexpr char kSocketVariable[] = "COHORT_WORKER_SOCKET";
// Between tries while the daemon is away: it is back within a second or so.
constexpr BackoffOptions kDaemonBackoff = {.initial = absl::Milliseconds(50),
                                           .max = absl::Seconds(1)};

constexpr absl::Duration kGpuEndDeadline = absl::Milliseconds(500);

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

absl::StatusOr<DaemonLinkOptions> DaemonLinkFromEnvironment() {
  DaemonLinkOptions options;
  COHORT_ASSIGN_OR_RETURN(options.worker_socket, Variable(kSocketVariable));
  COHORT_ASSIGN_OR_RETURN(options.credential_file,
                          Variable("COHORT_CREDENTIAL_FILE"));
  COHORT_ASSIGN_OR_RETURN(options.attempt_id, Variable("COHORT_ATTEMPT_ID"));
  COHORT_ASSIGN_OR_RETURN(options.rank, Number<int>("RANK"));
  COHORT_ASSIGN_OR_RETURN(options.epoch, Number<int64_t>("COHORT_EPOCH"));
  return options;
}

absl::StatusOr<std::unique_ptr<DaemonLink>> DaemonLink::Join(
    DaemonLinkOptions options) {
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          rpc::Credential::Load(options.credential_file));
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<rpc::Channel> channel,
      rpc::NewGrpcChannel(absl::StrCat("unix:", options.worker_socket),
                          credential));
  std::unique_ptr<DaemonLink> link(
      new DaemonLink(std::move(options), std::move(channel)));
  COHORT_RETURN_IF_ERROR(link->JoinRun());
  return link;
}

DaemonLink::DaemonLink(DaemonLinkOptions options,
                       std::unique_ptr<rpc::Channel> channel)
    : options_(std::move(options)), channel_(std::move(channel)) {}

template <typename Req, typename Resp>
absl::StatusOr<Resp> DaemonLink::Call(const rpc::UnaryMethod<Req, Resp>& method,
                                      const Req& request,
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

template <typename Req>
Req DaemonLink::RequestOfThisRank() const {
  Req request;
  request.set_attempt_id(attempt_);
  request.set_rank(options_.rank);
  request.set_epoch(options_.epoch);
  return request;
}

absl::Status DaemonLink::JoinRun() {
  COHORT_ASSIGN_OR_RETURN(const AttemptId attempt,
                          AttemptId::FromHex(options_.attempt_id));
  attempt_ = std::string(attempt.bytes());
  COHORT_ASSIGN_OR_RETURN(
      const v1::JoinRunResponse joined,
      Call(rpc::kJoinRun, RequestOfThisRank<v1::JoinRunRequest>(),
           options_.daemon_patience));
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

absl::StatusOr<std::vector<std::string>> DaemonLink::ExchangeBlobs(
    absl::string_view tag, std::string mine, absl::Duration deadline) {
  auto request = RequestOfThisRank<v1::ExchangeRequest>();
  request.set_tag(std::string(tag));
  request.set_blob(std::move(mine));
  COHORT_ASSIGN_OR_RETURN(const v1::ExchangeResponse response,
                          Call(rpc::kExchange, request, deadline));
  return std::vector<std::string>(response.blobs().begin(),
                                  response.blobs().end());
}

Exchange DaemonLink::ExchangeUnder(std::string prefix) {
  return [this, prefix = std::move(prefix)](
             absl::string_view tag, std::string mine, absl::Duration deadline) {
    return ExchangeBlobs(absl::StrCat(prefix, tag), std::move(mine), deadline);
  };
}

absl::Status DaemonLink::CommitCheckpoint(absl::string_view path,
                                          int64_t step) {
  auto request = RequestOfThisRank<v1::CommitCheckpointRequest>();
  request.mutable_checkpoint()->set_path(std::string(path));
  request.mutable_checkpoint()->set_step(step);
  return Call(rpc::kCommitCheckpoint, request, options_.daemon_patience)
      .status();
}

absl::Status DaemonLink::ReportPreflight(const v1::PreflightReport& report) {
  auto request = RequestOfThisRank<v1::ReportPreflightRequest>();
  *request.mutable_report() = report;
  return Call(rpc::kReportPreflight, request, options_.daemon_patience)
      .status();
}

absl::Status DaemonLink::ReportGpuEnd(const v1::GpuEnd& end) const {
  auto request = RequestOfThisRank<v1::ReportGpuEndRequest>();
  *request.mutable_end() = end;
  return rpc::CallAndWait(*channel_, rpc::kReportGpuEnd, request,
                          {.deadline = kGpuEndDeadline})
      .response.status();
}

}  // namespace cohort::trainer
