#include "head/services/driver_service.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

#include "common/hash.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/job_access.h"
#include "head/state/attempt_table.h"
#include "head/state/driver_table.h"
#include "head/state/job_spec.h"
#include "head/state/run_controller.h"
#include "rpc/methods.h"
#include "rpc/stream.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using UpdateWriter = rpc::StreamWriter<v1::DriverUpdate>;

// What a session may have in its queue before it waits for the driver, and
// standings that it adds at a time: together fewer messages than a stream takes
// (RouterOptions), since a standing has more than 150 bytes.
constexpr size_t kQueuedBytesMax = 256 << 10;
constexpr size_t kToldAtOnceMax = 1'000;
// Of one list: more would not fit a message.
constexpr size_t kDriversListedBytesMax = 4 << 20;

// Of one driver, kinds of tasks that it counts; and of the name of each.
constexpr int kShapesMax = 64;
constexpr size_t kShapeBytesMax = 256;
// Of one list.
constexpr uint32_t kDriversListedMax = 1'000;

absl::Status CheckTasks(const v1::DriverTasks& tasks) {
  if (tasks.shapes_size() > kShapesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a driver tells of ", tasks.shapes_size(),
                     " shapes of tasks: at most ", kShapesMax));
  }
  for (const v1::TaskCounts& each : tasks.shapes()) {
    if (each.shape().size() <= kShapeBytesMax &&
        IsPrintableUtf8(each.shape())) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the shape of a task is not one line of at most ",
                     kShapeBytesMax, " bytes"));
  }
  return absl::OkStatus();
}

// Its actors; what runs its tasks, it counts itself.
uint64_t CountActors(const ClusterState& state, const DriverId& driver) {
  uint64_t count = 0;
  for (const JobId& id : state.drivers().ActorsOf(driver)) {
    const JobRecord* const job = state.jobs().Find(id);
    if (job != nullptr && !job->spec->actor().executor()) ++count;
  }
  return count;
}

v1::Driver DriverToWire(const ClusterState& state, const DriverRecord& record) {
  v1::Driver wire;
  wire.set_driver_id(record.driver_id());
  wire.set_name(record.name());
  wire.set_principal(record.origin().principal());
  *wire.mutable_opened_at() =
      rpc::ToWire(absl::FromUnixMicros(record.opened_at_us()));
  wire.set_ending(record.ending());
  const AttemptRecord* const owner =
      state.attempts().Find(OwnerOf(record).attempt);
  if (owner != nullptr) wire.set_job_id(owner->job.bytes());
  wire.set_actors(CountActors(state, IdOf<DriverId>(record.driver_id())));
  return wire;
}

// Of a group whose ranks are started again one by one, or not at all: this one
// has ended for good, and the others go on.
bool IsOverAlone(const JobRecord& job, const AttemptRecord& attempt,
                 const Process& process) {
  return RunsOneByOne(job) && attempt.cause == v1::ATTEMPT_CAUSE_NONE &&
         process.state >= v1::PROCESS_STATE_EXITED && !process.again &&
         !process.leaving;
}

void SetProcess(const ClusterState& state, const JobRecord& job,
                const AttemptRecord& attempt, const Process& process,
                v1::ActorStanding& standing) {
  const bool has_ended = process.state >= v1::PROCESS_STATE_EXITED;
  const bool lives = !process.waits() && !has_ended;
  if (lives) {
    standing.set_incarnation(process.incarnation);
    standing.mutable_addresses()->Assign(process.addresses.begin(),
                                         process.addresses.end());
  }
  // Those of one slot grow: all before the present one have ended.
  standing.set_ended_incarnation(lives ? process.incarnation - 1
                                       : process.incarnation);
  if (process.exit.has_value()) *standing.mutable_exit() = *process.exit;
  const NodeRecord* const node = state.nodes().Find(process.node);
  if (node != nullptr) standing.set_node_name(node->node.name());
  if (HasEnded(job.row.state()) || !IsOverAlone(job, attempt, process)) return;
  const bool is_well = process.exit.has_value() && EndedWell(*process.exit);
  standing.set_state(is_well ? v1::JOB_STATE_SUCCEEDED : v1::JOB_STATE_FAILED);
}

// What holds of all slots.
v1::ActorStanding StandingOf(const ClusterState& state, const JobRecord& job) {
  v1::ActorStanding standing;
  standing.set_job_id(job.id.bytes());
  standing.set_name(job.spec->name());
  standing.set_namespace_(job.row.origin().namespace_());
  standing.set_class_name(job.spec->launch().actor().class_name());
  standing.set_secret(job.spec->launch().actor().secret());
  standing.set_state(job.row.state());
  standing.set_reason(state.ReasonOf(job));
  standing.set_slots(static_cast<uint32_t>(job.spec->scaling().num_workers()));
  *standing.mutable_dimensions() = job.spec->actor().dimensions();
  return standing;
}

// Of one that is not there, or not for who asks.  `shown`: by that secret,
// which is wrong.
v1::ActorStanding StandingOfNone(const ClusterState& state, const JobId& job,
                                 const std::string& shown = "") {
  v1::ActorStanding gone;
  gone.set_job_id(job.bytes());
  gone.set_state(v1::JOB_STATE_STOPPED);
  gone.set_reason(std::string(state.NoJob(job).message()));
  gone.set_secret(shown);
  return gone;
}

std::vector<v1::ActorStanding> StandingsOf(const ClusterState& state,
                                           const JobRecord& job) {
  std::vector<v1::ActorStanding> standings(
      static_cast<size_t>(job.spec->scaling().num_workers()),
      StandingOf(state, job));
  const AttemptRecord* const attempt = state.attempts().LastOf(job.id);
  for (size_t slot = 0; slot < standings.size(); ++slot) {
    v1::ActorStanding& standing = standings[slot];
    standing.set_slot(static_cast<uint32_t>(slot));
    // A job has the last words of one of its processes.
    if (HasEnded(job.row.state()) &&
        static_cast<int>(slot) == std::max(job.row.failed_rank(), 0)) {
      standing.set_stderr_tail(job.row.stderr_tail());
    }
    if (attempt != nullptr && slot < attempt->processes.size()) {
      SetProcess(state, job, *attempt, attempt->processes[slot], standing);
    }
  }
  return standings;
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

  void OnClosed(absl::Status /*status*/) override {
    if (*service_ == nullptr) return;
    DriverService& service = **service_;
    service.sessions_.erase(this);
    this_.reset();
    while (!watched_.empty()) Unwatch(JobId(watched_.begin()->first));
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

  const std::optional<DriverId>& driver() const { return driver_; }
  const v1::DriverTasks& tasks() const { return tasks_; }

  void Changed(const JobId& job) {
    changed_.insert(job);
    TellRest();
  }

  void TellAuthority(const std::string& certificate) {
    v1::DriverUpdate update;
    update.set_authority(certificate);
    update.mutable_room_wanted()->set_wanted(
        room_wanted_.value_or(false));  // what it knows
    Write(update);
  }

  // To one that has executors, when it is news.
  void TellRoomWanted() {
    if (!has_executors_ || *service_ == nullptr) return;
    const absl::StatusOr<const ClusterState*> state =
        (*service_)->host_.Readable();
    if (!state.ok()) return;
    const bool wanted = IsRoomWanted(**state);
    if (room_wanted_ == wanted) return;
    room_wanted_ = wanted;
    v1::DriverUpdate update;
    update.mutable_room_wanted()->set_wanted(wanted);
    Write(update);
  }

 private:
  absl::Status Handle(const v1::DriverMessage& message) {
    if (*service_ == nullptr) return Gone();
    switch (message.body_case()) {
      case v1::DriverMessage::kOpen:
        return Open(message.open());
      case v1::DriverMessage::kWatch:
        return Watch(message.watch());
      case v1::DriverMessage::kEnd:
        return End();
      case v1::DriverMessage::kTasks:
        return Keep(message.tasks());
      default:
        return absl::InvalidArgumentError(
            "a driver sends `open`, then `watch`, `tasks` and `end`: this is "
            "none of them");
    }
  }

  absl::Status Open(const v1::OpenDriver& open) {
    if (is_open()) {
      return absl::InvalidArgumentError("a driver's stream is opened once");
    }
    if (open.only_watches()) return OpenToWatch();
    DriverService& service = **service_;
    COHORT_ASSIGN_OR_RETURN(ClusterState* const state,
                            service.host_.Writable(Admission::kClient));
    Transition transition;
    if (open.driver_id().empty()) {
      COHORT_ASSIGN_OR_RETURN(
          driver_, state->OpenDriver(context_->principal().name, Owner(), open,
                                     transition));
    } else {
      COHORT_ASSIGN_OR_RETURN(const DriverId driver,
                              DriverId::FromBytes(open.driver_id()));
      COHORT_RETURN_IF_ERROR(
          CheckMayDrive(*state, context_->principal(), driver));
      for (Session* const other : service.sessions_) {
        if (other->driver_ == driver) other->Replace();
      }
      COHORT_RETURN_IF_ERROR(state->ResumeDriver(driver));
      driver_ = driver;
    }
    service.sessions_.insert(this);
    v1::DriverUpdate update;
    update.mutable_opened()->set_driver_id(IdBytes(*driver_));
    update.set_authority(service.next_authority_);
    transition.Then([update, weak = std::weak_ptr<Session*>(this_)](
                        const absl::Status& why) {
      const std::shared_ptr<Session*> self = weak.lock();
      if (self == nullptr) return;
      if (!why.ok()) return (*self)->writer_->Close(why);
      (*self)->Write(update);
    });
    service.host_.Submit(std::move(transition));
    return absl::OkStatus();
  }

  absl::Status OpenToWatch() {
    // One that does not serve yet knows no actors.
    COHORT_RETURN_IF_ERROR((*service_)->host_.Readable().status());
    only_watches_ = true;
    (*service_)->sessions_.insert(this);
    v1::DriverUpdate update;
    update.mutable_opened();
    update.set_authority((*service_)->next_authority_);
    Write(update);
    return absl::OkStatus();
  }

  bool is_open() const { return driver_.has_value() || only_watches_; }

  // The rank that this is; none: a program outside of jobs.
  std::optional<ProcessId> Owner() const {
    const rpc::Principal& principal = context_->principal();
    if (principal.role != rpc::Role::kRank) return std::nullopt;
    return principal.process;
  }

  // Its program has ended well.
  absl::Status End() {
    if (!driver_.has_value()) {
      return absl::InvalidArgumentError("a driver's first message is `open`");
    }
    COHORT_ASSIGN_OR_RETURN(ClusterState* const state,
                            (*service_)->host_.Writable(Admission::kNode));
    Transition transition;
    state->EndDriver(*driver_, "has ended", transition);
    driver_.reset();
    transition.Then(
        [weak = std::weak_ptr<Session*>(this_)](const absl::Status& why) {
          const std::shared_ptr<Session*> self = weak.lock();
          if (self != nullptr) (*self)->writer_->Close(why);
        });
    (*service_)->host_.Submit(std::move(transition));
    return absl::OkStatus();
  }

  // Who shows the actor's secret, and a driver what its credential is good for.
  bool MayWatch(const ClusterState& state, const JobRecord& job,
                const std::string& secret) const {
    if (!only_watches_ &&
        CheckMayCall(state, context_->principal(), job.id).ok()) {
      return true;
    }
    return !secret.empty() &&
           ConstantTimeEquals(secret, job.spec->launch().actor().secret());
  }

  absl::Status Watch(const v1::WatchActor& watch) {
    DriverService& service = **service_;
    if (!is_open()) {
      return absl::InvalidArgumentError("a driver's first message is `open`");
    }
    COHORT_ASSIGN_OR_RETURN(const ClusterState* const state,
                            service.host_.Readable());
    JobId job;
    if (watch.job_id().empty() && !only_watches_) {
      const std::string name_space =
          watch.namespace_().empty() ? kDefaultNamespace : watch.namespace_();
      job = state->drivers().ActorNamed(name_space, watch.name());
      const JobRecord* const record = state->jobs().Find(job);
      if (record == nullptr || record->row.state() == v1::JOB_STATE_STOPPING ||
          !CheckMayCall(*state, context_->principal(), job).ok()) {
        TellUnknown(watch.name(), name_space);
        return absl::OkStatus();
      }
    } else {
      COHORT_ASSIGN_OR_RETURN(job, JobId::FromBytes(watch.job_id()));
      const JobRecord* const record = state->jobs().Find(job);
      if (record != nullptr && !MayWatch(*state, *record, watch.secret())) {
        v1::DriverUpdate update;
        *update.mutable_actor() = StandingOfNone(*state, job, watch.secret());
        Write(update);
        return absl::OkStatus();
      }
    }
    if (!watched_.contains(job) && watched_.size() >= service.watched_max_) {
      return SetReason(
          absl::ResourceExhaustedError(absl::StrCat(
              "this driver has ", watched_.size(),
              " actors already, which is all that a driver may (kill those "
              "that are not needed, or start another program)")),
          "too_many_actors");
    }
    watched_[job].clear();
    service.watching_[job].insert(this);
    const JobRecord* const record = state->jobs().Find(job);
    if (record != nullptr && record->spec->actor().executor()) {
      has_executors_ = true;
    }
    Changed(job);
    TellRoomWanted();
    return absl::OkStatus();
  }

  // Asks of others, and of its own but for executors.
  bool IsRoomWanted(const ClusterState& state) const {
    return state.line().WantsRoom(state.nodes().index(), [&](const JobId& job) {
      const JobRecord* const record = state.jobs().Find(job);
      return record != nullptr && !(record->spec->actor().executor() &&
                                    DriverOf(*record->spec) == driver_);
    });
  }

  // What it says of its tasks, as long as it is connected.
  absl::Status Keep(const v1::DriverTasks& tasks) {
    if (!driver_.has_value()) {
      return absl::InvalidArgumentError("a driver's first message is `open`");
    }
    COHORT_RETURN_IF_ERROR(CheckTasks(tasks));
    tasks_ = tasks;
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
    if (*service_ == nullptr || changed_.empty() || is_telling_) return;
    DriverService& service = **service_;
    const absl::StatusOr<const ClusterState*> state = service.host_.Readable();
    if (!state.ok()) return writer_->Close(state.status());
    std::vector<v1::DriverUpdate> updates;
    size_t bytes = writer_->QueuedBytes();
    while (!changed_.empty() && bytes < kQueuedBytesMax &&
           updates.size() < kToldAtOnceMax) {
      const JobId job = *changed_.begin();
      const size_t most = kToldAtOnceMax - updates.size();
      std::vector<v1::ActorStanding> news = NewStandings(**state, job, most);
      for (v1::ActorStanding& standing : news) {
        bytes += standing.ByteSizeLong();
        *updates.emplace_back().mutable_actor() = std::move(standing);
      }
      // Of a large group the rest follows.
      if (news.size() == most) break;
      changed_.erase(job);
      if (IsLast(**state, job)) Unwatch(job);
    }
    if (updates.empty()) return;
    is_telling_ = true;
    // They may show more than the change of which this session was told (DS-1).
    service.host_.AfterDurable(
        [weak = std::weak_ptr<Session*>(this_),
         updates = std::move(updates)](const absl::Status& status) {
          const std::shared_ptr<Session*> self = weak.lock();
          if (self == nullptr) return;
          if (!status.ok()) return (*self)->writer_->Close(status);
          for (const v1::DriverUpdate& each : updates) (*self)->Write(each);
          (*self)->is_telling_ = false;
          (*self)->TellRest();
        });
  }

  // Of the job's slots those that are not as they were told, the first `most`.
  std::vector<v1::ActorStanding> NewStandings(const ClusterState& state,
                                              const JobId& job, size_t most) {
    std::vector<v1::ActorStanding> standings;
    const JobRecord* const record = state.jobs().Find(job);
    if (record != nullptr && record->spec->has_actor()) {
      standings = StandingsOf(state, *record);
    } else {
      standings.push_back(StandingOfNone(state, job));
    }
    std::vector<size_t>& told = watched_[job];
    told.resize(standings.size());
    std::vector<v1::ActorStanding> news;
    for (v1::ActorStanding& standing : standings) {
      if (news.size() == most) break;
      const size_t now = absl::HashOf(standing.SerializeAsString()) | 1;
      if (std::exchange(told[standing.slot()], now) == now) continue;
      news.push_back(std::move(standing));
    }
    return news;
  }

  // Nothing will follow: of one that failed its last words may.
  static bool IsLast(const ClusterState& state, const JobId& job) {
    const JobRecord* const record = state.jobs().Find(job);
    if (record == nullptr) return true;
    return HasEnded(record->row.state()) &&
           (record->row.state() != v1::JOB_STATE_FAILED ||
            !record->row.stderr_tail().empty());
  }

  void Unwatch(const JobId& job) {
    watched_.erase(job);
    const auto found = (*service_)->watching_.find(job);
    if (found == (*service_)->watching_.end()) return;
    found->second.erase(this);
    if (found->second.empty()) (*service_)->watching_.erase(found);
  }

  void Write(const v1::DriverUpdate& update) {
    const absl::Status written = writer_->Write(update);
    if (!written.ok()) writer_->Close(written);
  }

  const std::shared_ptr<DriverService*> service_;
  const std::shared_ptr<rpc::CallContext> context_;  // shared with the Router
  const std::unique_ptr<UpdateWriter> writer_;
  std::optional<DriverId> driver_;
  bool only_watches_ = false;  // then there is no driver
  bool replaced_ = false;
  // Effects find this by it, until the stream is over.
  std::shared_ptr<Session*> this_ = std::make_shared<Session*>(this);
  // And of each slot a hash of what was told; 0: nothing.
  std::map<JobId, std::vector<size_t>> watched_;
  std::set<JobId> changed_;  // of these, what was not told yet
  bool is_telling_ = false;  // what waits to be durable
  bool has_executors_ = false;
  // As it was told; none: not yet, and it may know the word of a former stream.
  std::optional<bool> room_wanted_;
  v1::DriverTasks tasks_;
};

DriverService::DriverService(size_t watched_max, StateHost& host,
                             Executor& strand)
    : watched_max_(watched_max),
      host_(host),
      strand_(strand),
      self_(std::make_shared<DriverService*>(this)) {}

DriverService::~DriverService() { *self_ = nullptr; }

void DriverService::RegisterOn(rpc::Router& router) {
  router.HandleStream(
      rpc::kDrive, strand_,
      [self = self_](const std::shared_ptr<rpc::CallContext>& context,
                     std::unique_ptr<UpdateWriter> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::DriverMessage>>> {
        if (*self == nullptr) return Gone();
        return std::make_unique<Session>(self, context, std::move(writer));
      });
  router.Handle(rpc::kListDrivers, strand_,
                [self = self_](const std::shared_ptr<rpc::CallContext>& context,
                               const v1::ListDriversRequest& request,
                               rpc::Reply<v1::ListDriversResponse> reply) {
                  if (*self == nullptr) return std::move(reply)(Gone());
                  absl::StatusOr<v1::ListDriversResponse> listed =
                      (*self)->List(context->principal(), request);
                  if (!listed.ok()) return std::move(reply)(listed.status());
                  (*self)->host_.AfterDurable(
                      [reply = std::move(reply), listed = *std::move(listed)](
                          const absl::Status& status) mutable {
                        if (!status.ok()) return std::move(reply)(status);
                        std::move(reply)(std::move(listed));
                      });
                });
}

absl::StatusOr<v1::ListDriversResponse> DriverService::List(
    const rpc::Principal& principal,
    const v1::ListDriversRequest& request) const {
  if (request.limit() > kDriversListedMax) {
    return absl::InvalidArgumentError(absl::StrCat("limit ", request.limit(),
                                                   ": give one of at most ",
                                                   kDriversListedMax));
  }
  COHORT_ASSIGN_OR_RETURN(const ClusterState* const state, host_.Readable());
  std::vector<const DriverRecord*> newest;
  for (const auto& [id, record] : state->drivers().records()) {
    if (CheckMayDrive(*state, principal, id).ok()) newest.push_back(&record);
  }
  std::stable_sort(newest.begin(), newest.end(),
                   [](const DriverRecord* a, const DriverRecord* b) {
                     return a->opened_at_us() > b->opened_at_us();
                   });
  std::map<DriverId, const Session*> connected;
  for (const Session* const session : sessions_) {
    if (session->driver().has_value()) connected[*session->driver()] = session;
  }
  const uint32_t limit =
      request.limit() == 0 ? kDriversListedMax : request.limit();
  v1::ListDriversResponse response;
  response.set_total(newest.size());
  newest.resize(std::min<size_t>(newest.size(), limit));
  size_t bytes = 0;
  for (const DriverRecord* const record : newest) {
    if (bytes > kDriversListedBytesMax) break;
    v1::Driver& driver = *response.add_drivers();
    driver = DriverToWire(*state, *record);
    const auto session = connected.find(IdOf<DriverId>(record->driver_id()));
    if (session != connected.end()) {
      driver.set_connected(true);
      *driver.mutable_tasks() = session->second->tasks().shapes();
    }
    bytes += driver.ByteSizeLong();
  }
  return response;
}

void DriverService::JobChanged(const JobId& job) {
  const auto found = watching_.find(job);
  if (found != watching_.end()) {
    // A session may stop watching meanwhile.
    for (Session* const session : std::set<Session*>(found->second)) {
      session->Changed(job);
    }
  }
  // It may have begun to wait, or wait no more.
  for (Session* const session : sessions_) session->TellRoomWanted();
}

void DriverService::SetNextAuthority(std::string certificate) {
  next_authority_ = std::move(certificate);
  if (next_authority_.empty()) return;
  for (Session* const session : sessions_) {
    session->TellAuthority(next_authority_);
  }
}

void DriverService::CloseAll(const absl::Status& why) {
  for (Session* const session : sessions_) session->Close(why);
}

}  // namespace cohort::head
