#include "head/services/driver_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/attempt_table.h"
#include "head/state/driver_table.h"
#include "head/state/job_spec.h"
#include "rpc/methods.h"
#include "rpc/stream.h"

namespace cohort::head {
namespace {

using UpdateWriter = rpc::StreamWriter<v1::DriverUpdate>;

// What a session may have in its queue before it waits for the driver.
constexpr size_t kQueuedBytesMax = 1 << 20;

void SetProcess(const ClusterState& state, const Process& process,
                v1::ActorStanding& standing) {
  const bool has_ended = process.state >= v1::PROCESS_STATE_EXITED;
  const bool lives = !process.waits() && !has_ended;
  if (lives) {
    standing.set_incarnation(process.incarnation);
    standing.mutable_addresses()->Assign(process.addresses.begin(),
                                         process.addresses.end());
  }
  // Incarnations of a job with one slot follow each other.
  standing.set_ended_incarnation(lives ? process.incarnation - 1
                                       : process.incarnation);
  if (process.exit.has_value()) *standing.mutable_exit() = *process.exit;
  const NodeRecord* const node = state.nodes().Find(process.node);
  if (node != nullptr) standing.set_node_name(node->node.name());
}

v1::ActorStanding StandingOf(const ClusterState& state, const JobRecord& job) {
  v1::ActorStanding standing;
  standing.set_job_id(job.id.bytes());
  standing.set_name(job.spec->name());
  standing.set_namespace_(job.row.origin().namespace_());
  standing.set_class_name(job.spec->launch().actor().class_name());
  standing.set_secret(job.spec->launch().actor().secret());
  standing.set_state(job.row.state());
  standing.set_reason(state.ReasonOf(job));
  if (HasEnded(job.row.state())) {
    standing.set_stderr_tail(job.row.stderr_tail());
  }
  const AttemptRecord* const attempt = state.attempts().LastOf(job.id);
  if (attempt != nullptr && !attempt->processes.empty()) {
    SetProcess(state, attempt->processes.front(), standing);
  }
  return standing;
}

}  // namespace

// One driver's stream.
class DriverService::Session final
    : public rpc::StreamReader<v1::DriverMessage> {
 public:
  Session(std::shared_ptr<DriverService*> service,
          std::shared_ptr<rpc::CallContext> context,
          std::unique_ptr<UpdateWriter> writer)
      : service_(std::move(service)),
        context_(std::move(context)),
        writer_(std::move(writer)) {
    writer_->SetOnDrained([this] { TellRest(); });
  }

  void OnMessage(const v1::DriverMessage& message) override {
    const absl::Status status = Handle(message);
    if (!status.ok()) writer_->Close(status);
  }

  // Its program has ended well.
  void OnHalfClosed() override {
    if (*service_ == nullptr) return writer_->Close(Gone());
    if (!driver_.has_value()) return writer_->Close(absl::OkStatus());
    const absl::StatusOr<ClusterState*> state =
        (*service_)->host_.Writable(Admission::kNode);
    if (!state.ok()) return writer_->Close(state.status());
    Transition transition;
    (*state)->EndDriver(*std::exchange(driver_, std::nullopt), "has ended",
                        transition);
    transition.Then([service = service_, self = this](const absl::Status& why) {
      if (*service != nullptr && (*service)->sessions_.contains(self)) {
        self->writer_->Close(why);
      }
    });
    (*service_)->host_.Submit(std::move(transition));
  }

  void OnClosed(absl::Status /*status*/) override {
    if (*service_ == nullptr) return;
    DriverService& service = **service_;
    service.sessions_.erase(this);
    for (const JobId& job : watched_) {
      const auto found = service.watching_.find(job);
      found->second.erase(this);
      if (found->second.empty()) service.watching_.erase(found);
    }
    if (!driver_.has_value() || replaced_) return;
    const absl::StatusOr<ClusterState*> state =
        service.host_.Writable(Admission::kNode);
    // A state that is loaded waits for all drivers.
    if (state.ok()) (*state)->AwaitDriver(*driver_);
  }

  // Another stream of the same driver was opened.
  void Replace() {
    replaced_ = true;
    Close(absl::AbortedError("the driver opened another stream"));
  }
  void Close(const absl::Status& why) { writer_->Close(why); }

  void Changed(const JobId& job) {
    changed_.insert(job);
    TellRest();
  }

  const std::optional<DriverId>& driver() const { return driver_; }

 private:
  absl::Status Handle(const v1::DriverMessage& message) {
    if (*service_ == nullptr) return Gone();
    switch (message.body_case()) {
      case v1::DriverMessage::kOpen:
        return Open(message.open());
      case v1::DriverMessage::kWatch:
        return Watch(message.watch());
      default:
        return absl::InvalidArgumentError(
            "a driver sends `open`, then `watch`: this is neither");
    }
  }

  absl::Status Open(const v1::OpenDriver& open) {
    if (driver_.has_value()) {
      return absl::InvalidArgumentError("a driver's stream is opened once");
    }
    DriverService& service = **service_;
    COHORT_ASSIGN_OR_RETURN(ClusterState* const state,
                            service.host_.Writable(Admission::kClient));
    Transition transition;
    if (open.driver_id().empty()) {
      COHORT_ASSIGN_OR_RETURN(
          driver_,
          state->OpenDriver(context_->principal().name, open, transition));
    } else {
      COHORT_ASSIGN_OR_RETURN(const DriverId driver,
                              DriverId::FromBytes(open.driver_id()));
      for (Session* const other : service.sessions_) {
        if (other->driver_ == driver) other->Replace();
      }
      COHORT_RETURN_IF_ERROR(state->ResumeDriver(driver));
      driver_ = driver;
    }
    service.sessions_.insert(this);
    transition.Then([service = service_, self = this](const absl::Status& why) {
      if (*service == nullptr || !(*service)->sessions_.contains(self)) return;
      if (!why.ok()) return self->writer_->Close(why);
      v1::DriverUpdate update;
      update.mutable_opened()->set_driver_id(IdBytes(*self->driver_));
      self->Write(update);
    });
    service.host_.Submit(std::move(transition));
    return absl::OkStatus();
  }

  absl::Status Watch(const v1::WatchActor& watch) {
    DriverService& service = **service_;
    if (!driver_.has_value()) {
      return absl::InvalidArgumentError("a driver's first message is `open`");
    }
    if (watched_.size() >= service.options_.watched_max) {
      return SetReason(
          absl::ResourceExhaustedError(absl::StrCat(
              "this driver watches ", watched_.size(),
              " actors already, which is all that a driver may (let handles "
              "go, or start another program)")),
          "too_many_actors");
    }
    COHORT_ASSIGN_OR_RETURN(const ClusterState* const state,
                            service.host_.Readable());
    JobId job;
    if (watch.job_id().empty()) {
      const std::string name_space =
          watch.namespace_().empty() ? kDefaultNamespace : watch.namespace_();
      job = state->drivers().ActorNamed(name_space, watch.name());
      if (job.IsNil()) {
        TellUnknown(watch.name(), name_space);
        return absl::OkStatus();
      }
    } else {
      COHORT_ASSIGN_OR_RETURN(job, JobId::FromBytes(watch.job_id()));
    }
    watched_.insert(job);
    service.watching_[job].insert(this);
    changed_.insert(job);
    // What it shows is to be durable (DS-1).
    service.host_.AfterDurable(
        [service = service_, self = this](const absl::Status&) {
          if (*service != nullptr && (*service)->sessions_.contains(self)) {
            self->TellRest();
          }
        });
    return absl::OkStatus();
  }

  void TellUnknown(const std::string& name, const std::string& name_space) {
    v1::DriverUpdate update;
    update.mutable_actor()->set_name(name);
    update.mutable_actor()->set_namespace_(name_space);
    Write(update);
  }

  // Of those that changed, as many as the driver takes.
  void TellRest() {
    if (*service_ == nullptr || changed_.empty()) return;
    const absl::StatusOr<const ClusterState*> state =
        (*service_)->host_.Readable();
    if (!state.ok()) return writer_->Close(state.status());
    while (!changed_.empty() && writer_->QueuedBytes() < kQueuedBytesMax) {
      const JobId job = changed_.extract(changed_.begin()).value();
      v1::DriverUpdate update;
      const JobRecord* const record = (*state)->jobs().Find(job);
      if (record != nullptr && record->spec->has_actor()) {
        *update.mutable_actor() = StandingOf(**state, *record);
      } else {
        update.mutable_actor()->set_job_id(job.bytes());
        update.mutable_actor()->set_state(v1::JOB_STATE_STOPPED);
        const absl::Status why = (*state)->NoJob(job);
        update.mutable_actor()->set_reason(why.message().data(),
                                           why.message().size());
      }
      Write(update);
    }
  }

  void Write(const v1::DriverUpdate& update) {
    const absl::Status written = writer_->Write(update);
    if (!written.ok()) writer_->Close(written);
  }

  const std::shared_ptr<DriverService*> service_;
  const std::shared_ptr<rpc::CallContext> context_;  // shared with the Router
  const std::unique_ptr<UpdateWriter> writer_;
  std::optional<DriverId> driver_;
  bool replaced_ = false;
  std::set<JobId> watched_;
  std::set<JobId> changed_;  // of these, what was not told yet
};

DriverService::DriverService(Options options, StateHost& host, Executor& strand)
    : options_(options),
      host_(host),
      strand_(strand),
      self_(std::make_shared<DriverService*>(this)) {}

DriverService::~DriverService() { *self_ = nullptr; }

void DriverService::RegisterOn(rpc::Router& router) {
  router.HandleStream(
      rpc::kDrive, rpc::Access::kCluster, strand_,
      [self = self_](const std::shared_ptr<rpc::CallContext>& context,
                     std::unique_ptr<UpdateWriter> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::DriverMessage>>> {
        if (*self == nullptr) return Gone();
        return std::make_unique<Session>(self, context, std::move(writer));
      });
}

void DriverService::JobChanged(const JobId& job) {
  const auto found = watching_.find(job);
  if (found == watching_.end()) return;
  for (Session* const session : found->second) session->Changed(job);
}

void DriverService::CloseAll(const absl::Status& why) {
  for (Session* const session : sessions_) session->Close(why);
}

}  // namespace cohort::head
