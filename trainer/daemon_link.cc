#include "trainer/daemon_link.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "common/latch.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::trainer {
namespace {

// Between tries while the daemon is away: it is back within a second or so.
constexpr BackoffOptions kDaemonBackoff = {.initial = absl::Milliseconds(50),
                                           .max = absl::Seconds(1)};

constexpr absl::Duration kGpuEndDeadline = absl::Milliseconds(500);

// A slot of these may be filled again beside the others, whose communicator
// does not take in a new rank.
absl::Status CheckPolicy(v1::RestartPolicy restart) {
  if (restart != v1::RESTART_POLICY_ONE && restart != v1::RESTART_POLICY_NONE) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "restart policy \"", restart == v1::RESTART_POLICY_ONE ? "one" : "none",
      "\" is not supported by trainers yet (submit with --restart all, or run "
      "a plain command)"));
}

std::optional<RunNotice> NoticeOf(const v1::Notice& wire,
                                  absl::Duration told_at) {
  if (wire.kind() != v1::NOTICE_KIND_STOP &&
      wire.kind() != v1::NOTICE_KIND_DRAIN) {
    return std::nullopt;
  }
  RunNotice notice{.kind = wire.kind() == v1::NOTICE_KIND_STOP
                               ? RunNotice::Kind::kStop
                               : RunNotice::Kind::kDrain,
                   .reason = wire.reason()};
  if (wire.has_deadline()) {
    notice.deadline = told_at + rpc::FromWire(wire.deadline());
  }
  return notice;
}

}  // namespace

// Keeps the stream's events for the thread that makes the calls, and when they
// came: a deadline counts from then.
class DaemonLink::CallerThread final : public Executor {
 public:
  void Post(Task task) override {
    MutexLock lock(mutex_);
    posts_.push_back({std::move(task), MonotonicNow()});
    posted_.Signal();
  }

  void PostAfter(absl::Duration /*delay*/, Task /*task*/) override {
    COHORT_CHECK(false) << "a stream's `where` gets no timers";
  }

  // Runs what is there.
  void Run() {
    for (;;) {
      Posted next;
      {
        MutexLock lock(mutex_);
        if (posts_.empty()) return;
        next = std::move(posts_.front());
        posts_.pop_front();
      }
      came_at_ = next.at;
      std::move(next.task)();
    }
  }

  // When the event that runs was posted, or earlier.
  absl::Duration came_at() const { return came_at_; }

  // Until there is something or that time has come.
  void AwaitPost(absl::Duration until) {
    MutexLock lock(mutex_);
    while (posts_.empty() && MonotonicNow() < until) {
      posted_.WaitUntil(mutex_, until);
    }
  }

 private:
  struct Posted {
    Task task;
    absl::Duration at;
  };

  Mutex mutex_;
  CondVar posted_;
  std::deque<Posted> posts_ ABSL_GUARDED_BY(mutex_);
  absl::Duration came_at_;
};

absl::StatusOr<DaemonLinkOptions> DaemonLinkFromEnvironment() {
  DaemonLinkOptions options;
  COHORT_ASSIGN_OR_RETURN(static_cast<client::ProcessEnvironment&>(options),
                          client::ReadProcessEnvironment());
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
  COHORT_RETURN_IF_ERROR(link->AwaitPlace());
  return link;
}

DaemonLink::DaemonLink(DaemonLinkOptions options,
                       std::unique_ptr<rpc::Channel> channel)
    : options_(std::move(options)),
      caller_(std::make_unique<CallerThread>()),
      channel_(std::move(channel)),
      reopen_(kDaemonBackoff, random_) {}

DaemonLink::~DaemonLink() = default;

template <typename Req, typename Resp>
absl::StatusOr<Resp> DaemonLink::Call(const rpc::UnaryMethod<Req, Resp>& method,
                                      const Req& request,
                                      absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(CheckHeardMembership());
  const absl::Duration until = clock_.Monotonic() + timeout;
  Backoff backoff(kDaemonBackoff, random_);
  for (;;) {
    const absl::Duration left = until - clock_.Monotonic();
    absl::StatusOr<Resp> response =
        rpc::CallAndWait(*channel_, method, request,
                         {.deadline = std::max(left, absl::Milliseconds(1))})
            .response;
    if (!absl::IsUnavailable(response.status())) return response;
    const absl::Duration wait = backoff.Next();
    if (clock_.Monotonic() + wait >= until) {
      return Annotate(
          response.status(),
          absl::StrCat("the worker daemon at ", options_.worker_socket,
                       " is away since ", absl::FormatDuration(timeout)));
    }
    Latch().WaitFor(wait);
  }
}

template <typename Req>
Req DaemonLink::RequestOfThisRank() const {
  Req request;
  request.set_attempt_id(std::string(options_.process.attempt.bytes()));
  request.set_slot(options_.process.slot);
  request.set_incarnation(options_.process.incarnation);
  request.set_epoch(place_.epoch);
  return request;
}

absl::Status DaemonLink::AwaitPlace() {
  const absl::Duration until = clock_.Monotonic() + options_.daemon_timeout;
  OpenWatch();
  for (; !joined_.has_value(); Listen()) {
    const bool broke = closed_.has_value() && absl::IsUnavailable(*closed_);
    if (closed_.has_value() && !broke) {
      if (!closed_->ok() && !absl::IsNotFound(*closed_)) return *closed_;
      return absl::FailedPreconditionError(
          absl::StrCat("this process is over for the worker daemon at ",
                       options_.worker_socket));
    }
    if (clock_.Monotonic() >= until) {
      return Annotate(
          broke ? *closed_ : absl::UnavailableError("no answer"),
          absl::StrCat("the worker daemon at ", options_.worker_socket,
                       " is away since ",
                       absl::FormatDuration(options_.daemon_timeout)));
    }
    caller_->AwaitPost(broke ? std::min(until, open_at_) : until);
  }
  COHORT_RETURN_IF_ERROR(CheckPolicy(joined_->restart()));
  place_ = {.job_id = JobIdText(joined_->job_id()),
            .attempt = joined_->number(),
            .slot = options_.process.slot,
            .incarnation = options_.process.incarnation,
            .epoch = joined_->epoch(),
            .rank = joined_->rank(),
            .world = joined_->world_size(),
            .local_rank = joined_->local_rank(),
            .local_world = joined_->local_world_size(),
            .node_rank = joined_->node_rank(),
            .node_count = joined_->node_count(),
            .checkpoint_root = joined_->checkpoint_root(),
            .restore = std::nullopt};
  const v1::Checkpoint& restore = joined_->restore();
  if (!restore.path().empty()) {
    place_.restore = CheckpointRecord{.path = restore.path(),
                                      .step = restore.step(),
                                      .epoch = restore.epoch()};
  }
  return absl::OkStatus();
}

void DaemonLink::OpenWatch() {
  rpc::TypedEvents<v1::WatchResponse> events;
  events.on_message = [this](const v1::WatchResponse& told) { OnTold(told); };
  events.on_closed = [this](absl::Status status,
                            std::optional<rpc::Stamp> /*stamp*/) {
    closed_ = std::move(status);
    open_at_ = clock_.Monotonic() + reopen_.Next();
  };
  closed_.reset();
  watch_ = rpc::OpenStream(*channel_, rpc::kWatchRun,
                           {.deadline = absl::InfiniteDuration()}, *caller_,
                           std::move(events));
  v1::WatchRequest request;
  request.set_attempt_id(std::string(options_.process.attempt.bytes()));
  request.set_slot(options_.process.slot);
  request.set_incarnation(options_.process.incarnation);
  // An error here comes through on_closed too.
  if (watch_->Write(request).ok()) watch_->HalfClose();
}

void DaemonLink::Listen() {
  caller_->Run();
  // Any other end is the daemon's last word on this process, which hears why
  // from the calls that it makes.
  if (closed_.has_value() && absl::IsUnavailable(*closed_) &&
      clock_.Monotonic() >= open_at_) {
    OpenWatch();
  }
}

void DaemonLink::OnTold(const v1::WatchResponse& told) {
  reopen_.Reset();
  if (!joined_.has_value()) joined_ = told;
  epoch_ = std::max(epoch_.load(), told.epoch());
  notice_ = NoticeOf(told.notice(), caller_->came_at());
}

std::optional<RunNotice> DaemonLink::notice() {
  Listen();
  return notice_;
}

absl::Status DaemonLink::CheckMembership() {
  Listen();
  return CheckHeardMembership();
}

absl::Status DaemonLink::CheckHeardMembership() const {
  const int64_t epoch = epoch_;
  if (epoch <= place_.epoch) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this process is of epoch ", place_.epoch,
                   " and its gang has a new membership, of epoch ", epoch,
                   " (end it: the new one has a process for it)"));
}

absl::StatusOr<std::vector<std::string>> DaemonLink::ExchangeBlobs(
    absl::string_view tag, std::string mine, absl::Duration deadline) {
  COHORT_RETURN_IF_ERROR(CheckMembership());
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

absl::Status DaemonLink::CommitCheckpoint(absl::string_view path, int64_t step,
                                          std::optional<double> score) {
  auto request = RequestOfThisRank<v1::CommitCheckpointRequest>();
  request.mutable_checkpoint()->set_path(std::string(path));
  request.mutable_checkpoint()->set_step(step);
  if (score.has_value()) request.mutable_checkpoint()->set_score(*score);
  return Call(rpc::kCommitCheckpoint, request, options_.daemon_timeout)
      .status();
}

absl::Status DaemonLink::ReportPreflight(const v1::PreflightReport& report) {
  COHORT_RETURN_IF_ERROR(CheckMembership());
  auto request = RequestOfThisRank<v1::ReportPreflightRequest>();
  *request.mutable_report() = report;
  return Call(rpc::kReportPreflight, request, options_.daemon_timeout).status();
}

absl::Status DaemonLink::ReportGpuEnd(const v1::GpuEnd& end) const {
  auto request = RequestOfThisRank<v1::ReportGpuEndRequest>();
  *request.mutable_end() = end;
  return rpc::CallAndWait(*channel_, rpc::kReportGpuEnd, request,
                          {.deadline = kGpuEndDeadline})
      .response.status();
}

}  // namespace cohort::trainer
