#include "tests/sim/sim_client.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "head/store/records_codec.h"
#include "rpc/methods.h"

namespace cohort::sim {

bool Client::TryAgain(const absl::Status& status) {
  return IsRetryable(status) || absl::IsDeadlineExceeded(status);
}

Client::Client(World world, std::string name, bool forgets_its_id)
    : world_(world),
      name_(std::move(name)),
      channel_(world.network.Connect(name_, "head", world.credential)),
      forgets_its_id_(forgets_its_id) {}

void Client::Violate(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

void Client::Die() {
  ++life_;
  abandoned_.insert(unanswered_.begin(), unanswered_.end());
  world_.counters.Count("request_abandoned",
                        static_cast<int64_t>(unanswered_.size()));
  unanswered_.clear();
  repeating_.clear();
}

void Client::Restored(const std::function<bool(const JobId&)>& holds) {
  Die();
  ended_.clear();
  for (auto it = acknowledged_.begin(); it != acknowledged_.end();) {
    if (holds(it->second)) {
      ++it;
      continue;
    }
    world_.counters.Count("acknowledged_after_backup");
    abandoned_.insert(it->first);
    it = acknowledged_.erase(it);
  }
}

void Client::Submit(const std::string& request_id, v1::JobSpec spec) {
  v1::SubmitJobRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = std::move(spec);
  // Some actors never end.
  if (!request.spec().has_actor() && !acknowledged_.empty() &&
      world_.random.Below(6) == 0) {
    const auto chosen = std::next(
        acknowledged_.begin(),
        static_cast<int64_t>(world_.random.Below(acknowledged_.size())));
    v1::Dependency& after = *request.mutable_spec()->add_after();
    after.set_job_id(chosen->second.bytes());
    after.set_kind(world_.random.Below(2) == 0 ? v1::DEPENDENCY_KIND_OK
                                               : v1::DEPENDENCY_KIND_ANY);
    world_.counters.Count("submitted_after");
  }
  if (request.spec().start_in_us() > 0) {
    world_.counters.Count("submitted_to_begin_later");
  }
  unanswered_.insert(request_id);
  Try(request_id, request, /*again=*/false);
}

void Client::Try(const std::string& request_id,
                 const v1::SubmitJobRequest& request, bool again) {
  int copies = 1;
  if (world_.random.Below(20) == 0) {
    copies = 2;
    world_.counters.Count("request_duplicated");
  }
  for (; copies > 0; --copies) {
    rpc::Call(*channel_, rpc::kSubmitJob, request, {.deadline = kDeadline},
              world_.executor,
              [this, request_id, request, again,
               life = life_](absl::StatusOr<v1::SubmitJobResponse> response) {
                if (life != life_) return;
                OnAnswer(request_id, request, again, std::move(response));
              });
  }
}

void Client::OnAnswer(const std::string& request_id,
                      const v1::SubmitJobRequest& request, bool again,
                      absl::StatusOr<v1::SubmitJobResponse> response) {
  if (!response.ok()) {
    if (request.spec().has_actor() && IsActorRefused(response.status())) {
      return OnActorRefused(request_id, response.status());
    }
    if (!TryAgain(response.status())) {
      return Violate(absl::StrCat("RQ-1: submit of ", request_id, ": ",
                                  response.status().ToString()));
    }
    // The other copy has its answer, or is to be sent again already.
    if (!again && acknowledged_.contains(request_id)) return;
    if (!repeating_.insert(request_id).second) return;
    world_.counters.Count("submit_repeated");
    v1::SubmitJobRequest repeat = request;
    if (forgets_its_id_) repeat.set_request_id(request.request_id() + "+");
    world_.executor.PostAfter(absl::Milliseconds(50 + world_.random.Below(900)),
                              [this, request_id, repeat, again, life = life_] {
                                if (life != life_) return;
                                repeating_.erase(request_id);
                                Try(request_id, repeat, again);
                              });
    return;
  }
  const JobId job = *JobId::FromBytes(response->job_id());
  CheckDurable(job);
  const auto [known, first] = acknowledged_.emplace(request_id, job);
  if (known->second != job) {
    return Violate(absl::StrCat("RQ-1: ", request_id, " has two answers"));
  }
  if (!first) {
    world_.counters.Count("submit_answered_again");
    return;
  }
  unanswered_.erase(request_id);
  // As if the answer had been lost.
  if (!again && world_.random.Below(3) == 0) {
    v1::SubmitJobRequest repeat = request;
    if (forgets_its_id_) repeat.set_request_id(request.request_id() + "+");
    world_.executor.PostAfter(absl::Milliseconds(world_.random.Below(5000)),
                              [this, request_id, repeat, life = life_] {
                                if (life == life_)
                                  Try(request_id, repeat, /*again=*/true);
                              });
  }
}

bool Client::IsActorRefused(const absl::Status& status) {
  const std::string reason = GetReason(status);
  return reason == "session_over" || reason == "name_taken";
}

void Client::OnActorRefused(const std::string& request_id,
                            const absl::Status& why) {
  world_.counters.Count(absl::StrCat("actor_refused_", GetReason(why)));
  if (acknowledged_.contains(request_id)) return;
  // A copy that comes later may find the name free.
  unanswered_.erase(request_id);
  abandoned_.insert(request_id);
}

void Client::CheckDurable(const JobId& job) {
  if (!world_.checks_durability) return;
  const std::string key = head::RowKey(job);  // of an array too
  if (!world_.disk.FindSynced(head::Table::kJobs, key).has_value() &&
      !world_.disk.FindSynced(head::Table::kArrays, key).has_value()) {
    Violate(absl::StrCat("CM-1: job ", job.ToText(),
                         " was acknowledged before it was durable"));
  }
}

void Client::LookAtOne() {
  if (acknowledged_.empty()) return;
  const auto chosen = std::next(
      acknowledged_.begin(),
      static_cast<int64_t>(world_.random.Below(acknowledged_.size())));
  v1::GetJobRequest request;
  request.set_job_id(std::string(chosen->second.bytes()));
  std::optional<v1::JobState> was;
  if (const auto ended = ended_.find(chosen->second); ended != ended_.end()) {
    was = ended->second;
  }
  rpc::Call(*channel_, rpc::kGetJob, request, {.deadline = kDeadline},
            world_.executor,
            [this, job = chosen->second, was,
             life = life_](absl::StatusOr<v1::GetJobResponse> response) {
              if (life == life_) OnLook(job, was, response);
            });
}

void Client::OnLook(const JobId& job, std::optional<v1::JobState> was,
                    const absl::StatusOr<v1::GetJobResponse>& seen) {
  if (absl::IsNotFound(seen.status()) && world_.checks_durability) {
    return Violate(absl::StrCat("AK-1: job ", job.ToText(),
                                ", which was acknowledged, is not there"));
  }
  if (!seen.ok()) return;
  world_.counters.Count("looked");
  const v1::JobState state = seen->job().state();
  // An answer may be late, and older than one that came before it.
  if (was.has_value() && *was != state) {
    return Violate(
        absl::StrCat("JB-1: job ", job.ToText(), " had ended, said the head"));
  }
  if (state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
      state == v1::JOB_STATE_STOPPED) {
    ended_[job] = state;
  }
}

void Client::StopOne() {
  if (acknowledged_.empty()) return;
  const auto chosen = std::next(
      acknowledged_.begin(),
      static_cast<int64_t>(world_.random.Below(acknowledged_.size())));
  v1::StopJobRequest request;
  request.set_request_id(absl::StrCat(name_, "-stop-", requests_++));
  request.set_job_id(std::string(chosen->second.bytes()));
  Insist(rpc::kStopJob, request,
         [this, life = life_](const absl::Status& status) {
           if (status.ok()) {
             world_.counters.Count("stop_answered");
           } else if (life == life_) {
             Violate(absl::StrCat("AK-1: stop: ", status.ToString()));
           }
         });
}

void Client::HoldOne() {
  if (acknowledged_.empty()) return;
  const auto chosen = std::next(
      acknowledged_.begin(),
      static_cast<int64_t>(world_.random.Below(acknowledged_.size())));
  v1::HoldJobRequest request;
  request.set_request_id(absl::StrCat(name_, "-hold-", requests_++));
  request.set_job_id(chosen->second.bytes());
  const bool array =
      world_.disk.FindSynced(head::Table::kArrays, head::RowKey(chosen->second))
          .has_value();
  Insist(rpc::kHoldJob, request,
         [this, array, life = life_](const absl::Status& status) {
           if (status.ok() && array) world_.counters.Count("array_held");
           if (absl::IsNotFound(status) && life == life_) {
             return Violate(absl::StrCat("AK-1: hold: ", status.ToString()));
           }
           world_.counters.Count(status.ok() ? "held" : "hold_refused");
         });
}

void Client::ResizeOne() {
  if (acknowledged_.empty()) return;
  const auto chosen = std::next(
      acknowledged_.begin(),
      static_cast<int64_t>(world_.random.Below(acknowledged_.size())));
  v1::ResizeJobRequest request;
  request.set_request_id(absl::StrCat(name_, "-resize-", requests_++));
  request.set_job_id(chosen->second.bytes());
  // As many as fit the cluster when it is empty.
  request.set_num_workers(1 + static_cast<int>(world_.random.Below(2)));
  Insist(rpc::kResizeJob, request,
         [this, life = life_](const absl::Status& status) {
           if (absl::IsNotFound(status) && life == life_) {
             return Violate(absl::StrCat("AK-1: resize: ", status.ToString()));
           }
           world_.counters.Count(status.ok() ? "resized" : "resize_refused");
         });
}

void Client::Release(const JobId& job) {
  v1::ReleaseJobRequest request;
  request.set_request_id(absl::StrCat(name_, "-release-", requests_++));
  request.set_job_id(job.bytes());
  Insist(rpc::kReleaseJob, request, [this](const absl::Status& status) {
    if (status.ok()) world_.counters.Count("released");
  });
}

void Client::SubmitNonsense() {
  v1::SubmitJobRequest request;
  request.set_request_id(absl::StrCat("nonsense-", world_.random.Uint64()));
  request.mutable_spec()->mutable_launch()->add_command("run");
  request.mutable_spec()->mutable_scaling()->set_num_workers(-1);
  rpc::Call(*channel_, rpc::kSubmitJob, request, {.deadline = kDeadline},
            world_.executor,
            [this](absl::StatusOr<v1::SubmitJobResponse> response) {
              if (response.ok()) Violate("SP-1: a job of -1 workers was taken");
              if (absl::IsInvalidArgument(response.status())) {
                world_.counters.Count("refused_invalid");
              }
            });
}

void Client::SubmitUnderUsedId() {
  if (acknowledged_.empty()) return;
  v1::SubmitJobRequest request;
  request.set_request_id(acknowledged_.begin()->first);
  request.mutable_spec()->mutable_launch()->add_command("run");
  request.mutable_spec()->set_name("another body");
  request.mutable_spec()->mutable_scaling()->set_num_workers(1);
  rpc::Call(*channel_, rpc::kSubmitJob, request, {.deadline = kDeadline},
            world_.executor,
            [this](absl::StatusOr<v1::SubmitJobResponse> response) {
              if (response.ok()) {
                Violate("RQ-1: another body was taken under a used id");
              }
              if (absl::IsAlreadyExists(response.status())) {
                world_.counters.Count("refused_used_id");
              }
            });
}

}  // namespace cohort::sim
