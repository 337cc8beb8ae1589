#include "tests/sim/sim_client.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "rpc/methods.h"

namespace cohort::sim {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(5);

bool TryAgain(const absl::Status& status) {
  return IsRetryable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

Client::Client(World world, std::string name)
    : world_(world),
      name_(std::move(name)),
      channel_(world.network.Connect(name_, "head", world.credential)) {}

void Client::Submit(const std::string& request_id, v1::JobSpec spec) {
  v1::SubmitJobRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = std::move(spec);
  ++unanswered_;
  Try(request_id, request, /*again=*/false);
}

void Client::Try(const std::string& request_id,
                 const v1::SubmitJobRequest& request, bool again) {
  rpc::Call(*channel_, rpc::kSubmitJob, request, {.deadline = kDeadline},
            world_.executor,
            [this, request_id, request,
             again](absl::StatusOr<v1::SubmitJobResponse> response) {
              OnAnswer(request_id, request, again, std::move(response));
            });
}

void Client::OnAnswer(const std::string& request_id,
                      const v1::SubmitJobRequest& request, bool again,
                      absl::StatusOr<v1::SubmitJobResponse> response) {
  if (!response.ok()) {
    if (!TryAgain(response.status())) {
      violation_ = absl::StrCat("submit of ", request_id, ": ",
                                response.status().ToString());
      return;
    }
    world_.counters.Count("submit_repeated");
    world_.executor.PostAfter(absl::Milliseconds(50 + world_.random.Below(400)),
                              [this, request_id, request, again] {
                                Try(request_id, request, again);
                              });
    return;
  }
  const JobId job = *JobId::FromBytes(response->job_id());
  const auto [known, first] = acknowledged_.emplace(request_id, job);
  if (known->second != job) {
    violation_ = absl::StrCat("RQ-1: ", request_id, " has two answers");
  }
  if (!first) {
    world_.counters.Count("submit_answered_again");
    return;
  }
  --unanswered_;
  // As if the answer had been lost.
  if (!again && world_.random.Below(3) == 0) {
    world_.executor.PostAfter(
        absl::Milliseconds(world_.random.Below(5000)),
        [this, request_id, request] { Try(request_id, request, true); });
  }
}

void Client::StopOne() {
  if (acknowledged_.empty()) return;
  const auto chosen = std::next(
      acknowledged_.begin(),
      static_cast<int64_t>(world_.random.Below(acknowledged_.size())));
  stopped_.insert(chosen->second);
  v1::StopJobRequest request;
  request.set_request_id(absl::StrCat(name_, "-stop-", stops_++));
  request.set_job_id(std::string(chosen->second.bytes()));
  TryStop(request);
}

void Client::TryStop(const v1::StopJobRequest& request) {
  rpc::Call(
      *channel_, rpc::kStopJob, request, {.deadline = kDeadline},
      world_.executor,
      [this, request](absl::StatusOr<v1::StopJobResponse> response) {
        if (response.ok()) {
          world_.counters.Count("stop_answered");
        } else if (TryAgain(response.status())) {
          world_.executor.PostAfter(absl::Milliseconds(200),
                                    [this, request] { TryStop(request); });
        } else {
          violation_ = absl::StrCat("stop: ", response.status().ToString());
        }
      });
}

void Client::SubmitNonsense() {
  v1::SubmitJobRequest request;
  request.set_request_id(absl::StrCat("nonsense-", world_.random.Uint64()));
  request.mutable_spec()->add_command("run");
  request.mutable_spec()->mutable_scaling()->set_num_workers(-1);
  rpc::Call(*channel_, rpc::kSubmitJob, request, {.deadline = kDeadline},
            world_.executor,
            [this](absl::StatusOr<v1::SubmitJobResponse> response) {
              if (response.ok()) violation_ = "a job of -1 workers was taken";
              if (absl::IsInvalidArgument(response.status())) {
                world_.counters.Count("refused_invalid");
              }
            });
}

void Client::SubmitUnderUsedId() {
  if (acknowledged_.empty()) return;
  v1::SubmitJobRequest request;
  request.set_request_id(acknowledged_.begin()->first);
  request.mutable_spec()->add_command("run");
  request.mutable_spec()->set_name("another body");
  request.mutable_spec()->mutable_scaling()->set_num_workers(1);
  rpc::Call(*channel_, rpc::kSubmitJob, request, {.deadline = kDeadline},
            world_.executor,
            [this](absl::StatusOr<v1::SubmitJobResponse> response) {
              if (response.ok()) {
                violation_ = "RQ-1: another body was taken under a used id";
              }
              if (absl::IsAlreadyExists(response.status())) {
                world_.counters.Count("refused_used_id");
              }
            });
}

}  // namespace cohort::sim
