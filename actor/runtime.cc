#include "actor/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "actor/actor_at.h"
#include "actor/actor_finder.h"
#include "actor/actor_process.h"
#include "actor/actor_spec.h"
#include "actor/call_channel.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/connect_actor.h"
#include "actor/demangle.h"
#include "actor/driver_session.h"
#include "actor/group_calls.h"
#include "actor/inline_executor.h"
#include "actor/owned_actors.h"
#include "actor/owned_target.h"
#include "actor/task_pool.h"
#include "client/connection.h"
#include "client/head_client.h"
#include "client/job.h"
#include "client/package_files.h"
#include "client/package_upload.h"
#include "client/private_cluster.h"
#include "client/process_environment.h"
#include "client/program_package.h"
#include "common/exit_code.h"
#include "common/gate.h"
#include "common/job_limits.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/spread.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/thread_pool.h"
#include "rpc/grpc_channel.h"
#include "rpc/methods.h"

namespace cohort {
namespace {

// The head hears of the end of a program by itself if it must.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);
constexpr absl::Duration kTasksToldEvery = absl::Seconds(1);
constexpr absl::Duration kAskedAgainAfter = absl::Milliseconds(500);

void (*rank_server)() = nullptr;

absl::Status RuntimeGone() {
  return SetReason(
      absl::FailedPreconditionError(
          "the session is over: the Runtime that made this handle is gone"),
      kReasonSessionOver);
}

}  // namespace

class Runtime::Core final : public actor::ExecutorSource {
 public:
  Core(RuntimeOptions options, std::string name,
       std::unique_ptr<client::PrivateCluster> own,
       std::unique_ptr<rpc::Channel> channel)
      : options_(std::move(options)),
        own_cluster_(std::move(own)),
        channel_(std::move(channel)),
        head_(*channel_, machinery_->clock, machinery_->random),
        session_({.name = std::move(name),
                  .timeout = options_.driver_timeout,
                  .head_timeout = options_.head_timeout},
                 *channel_, machinery_->events, machinery_->random,
                 {.on_standing = [this](const auto& told) { OnStanding(told); },
                  .on_room_wanted =
                      [this](bool wanted) { tasks_->SetRoomWanted(wanted); },
                  .on_over = [this](const auto& why) { OnOver(why); }}) {}

  ~Core() override {
    if (actor::ProcessTaskRunner() == tasks_) {
      actor::SetProcessTaskRunner(nullptr);
    }
    actor::RemoveActorFinder(finder_);
    finder_->Close();
    session_.End(kEndTimeout);
    const absl::Status over = RuntimeGone();
    tasks_->Stop(over);
    DropAll(over);
    // Then nothing calls the session, and its stream goes before its channel.
    machinery_->events.Stop();
  }

  absl::Status AwaitSession() {
    COHORT_ASSIGN_OR_RETURN(driver_, session_.AwaitOpen(options_.deadline));
    if (actor::ProcessTaskRunner() == nullptr) {
      actor::SetProcessTaskRunner(tasks_);
    }
    actor::AddActorFinder(finder_);
    TellTasks();
    return absl::OkStatus();
  }

  std::shared_ptr<actor::TaskRunner> tasks() const { return tasks_; }

  // ExecutorSource.
  void Make(const TaskOptions& options, OnMade on_made) override {
    actors_.ForgetSome();
    absl::StatusOr<v1::SubmitJobRequest> request = ExecutorRequest(options);
    if (!request.ok()) return std::move(on_made)(request.status());
    CallUntilAnswered(
        rpc::kSubmitJob, *request,
        [this, on_made = std::move(on_made)](
            const absl::StatusOr<v1::SubmitJobResponse>& made) mutable {
          std::move(on_made)(ExecutorOf(made));
        });
  }
  void End(const JobId& id) override {
    v1::StopJobRequest request;
    request.set_request_id(RequestId::New(machinery_->random).ToHex());
    request.set_job_id(id.bytes());
    // One that is over already is as good as stopped.
    CallUntilAnswered(
        rpc::kStopJob, request,
        [](const absl::StatusOr<v1::StopJobResponse>& /*stopped*/) {});
  }

  absl::StatusOr<Actor> Create(const ActorOptions& options,
                               actor::ConstructorCall constructor,
                               const char* class_name) {
    actors_.ForgetSome();
    const std::string secret = NewSecret();
    COHORT_ASSIGN_OR_RETURN(const JobId id,
                            Submit(options, std::move(constructor), class_name,
                                   actor::Grid(), secret));
    Actor made = {.id = id,
                  .target = actors_.TargetOf({id, 0, secret}, options)};
    session_.Watch(id, secret);
    if (options.lifetime != Lifetime::kDetached) tasks_->Serve(made.target);
    return made;
  }

  absl::StatusOr<ActorGroup> CreateGroup(const ActorOptions& options,
                                         actor::ConstructorCall constructor,
                                         const char* class_name,
                                         const actor::Grid& grid) {
    actors_.ForgetSome();
    const std::string secret = NewSecret();
    COHORT_ASSIGN_OR_RETURN(
        const JobId id,
        Submit(options, std::move(constructor), class_name, grid, secret));
    return GroupOf(id, secret, options,
                   {grid.size(), actor::ProcessesOf(options, grid)},
                   options.lifetime != Lifetime::kDetached);
  }

  // The live group of that name, as Find.
  absl::StatusOr<FoundGroup> FindGroup(const std::string& name,
                                       const std::string& name_space,
                                       const char* class_name) {
    COHORT_ASSIGN_OR_RETURN(const v1::ActorStanding standing,
                            AwaitLive(name, name_space, class_name));
    if (standing.dimensions().empty()) {
      return WrongKind(name, "an actor, not a group (GetActor finds it)");
    }
    std::vector<Dimension> dimensions;
    for (const v1::ActorDimension& each : standing.dimensions()) {
      dimensions.push_back({each.name(), static_cast<int>(each.size())});
    }
    COHORT_ASSIGN_OR_RETURN(const actor::Grid grid,
                            actor::Grid::Make(std::move(dimensions)));
    COHORT_ASSIGN_OR_RETURN(const JobId id,
                            JobId::FromBytes(standing.job_id()));
    const std::shared_ptr<actor::GroupCalls> known = actors_.KnownGroup(id);
    const int processes =
        std::clamp(static_cast<int>(standing.slots()), 1, grid.size());
    const ActorGroup group =
        known == nullptr
            ? GroupOf(id, standing.secret(), ActorOptions(),
                      {grid.size(), processes}, /*runs_tasks=*/false)
            : ActorGroup{.id = id, .target = known};
    return FoundGroup{.group = group, .grid = grid};
  }

  // A handle of it that has come to this program.
  std::shared_ptr<actor::CallTarget> TargetFor(const actor::ActorRef& ref) {
    const auto known = actors_.Known(ref);
    if (known != nullptr) return actor::ActorAt(known, ref.actor);
    auto target = actors_.TargetOf(ref, ActorOptions());
    // Then: the answer finds it.
    if (target->line() != nullptr) session_.Watch(ref.job, ref.secret);
    return actor::ActorAt(target, ref.actor);
  }

  // `runs_tasks`: this is the driver of its ranks, which may ask for tasks.
  ActorGroup GroupOf(const JobId& id, const std::string& secret,
                     const ActorOptions& options, const Spread& spread,
                     bool runs_tasks) {
    const actor::OwnedActors::Group made =
        actors_.AddGroup(id, secret, options, spread);
    session_.Watch(id, secret);
    if (runs_tasks) {
      for (const auto& process : made.processes) tasks_->Serve(process);
    }
    return ActorGroup{.id = id, .target = made.calls};
  }

  absl::StatusOr<JobId> Submit(const ActorOptions& options,
                               actor::ConstructorCall constructor,
                               const char* class_name, const actor::Grid& grid,
                               const std::string& secret) {
    COHORT_RETURN_IF_ERROR(SessionStatus());
    COHORT_ASSIGN_OR_RETURN(const std::string arguments,
                            std::move(constructor.arguments));
    if (arguments.size() > actor::kArgumentsBytesMax) {
      return actor::TooLarge("the constructor's arguments are",
                             arguments.size(), actor::kArgumentsBytesMax);
    }
    actor::ActorOrigin origin = {.driver = driver_,
                                 .name_space = options_.name_space,
                                 .class_name = class_name,
                                 .constructor = constructor.name,
                                 .arguments = arguments,
                                 .secret = secret,
                                 .grid = grid};
    const absl::StatusOr<JobId> made = SubmitOnce(options, origin);
    // The head may say so before this session hears it.
    if (GetReason(made.status()) == kReasonSessionOver) {
      return SetReason(absl::FailedPreconditionError(made.status().message()),
                       kReasonSessionOver);
    }
    if (GetReason(made.status()) != "no_package") return made;
    // No actor needed it for a while, and the head has let it go.
    ForgetPackage();
    return SubmitOnce(options, origin);
  }

  absl::StatusOr<JobId> SubmitOnce(const ActorOptions& options,
                                   actor::ActorOrigin& origin) {
    COHORT_ASSIGN_OR_RETURN(origin.package, UploadOnce());
    origin.program = program_;
    v1::SubmitJobRequest request;
    request.set_request_id(RequestId::New(machinery_->random).ToHex());
    COHORT_ASSIGN_OR_RETURN(*request.mutable_spec(),
                            actor::ActorJob(options, origin));
    COHORT_ASSIGN_OR_RETURN(
        const v1::SubmitJobResponse response,
        head_.CallAndWait(rpc::kSubmitJob, request, options_.deadline));
    return JobId::FromBytes(response.job_id());
  }

  absl::StatusOr<Actor> Find(const std::string& name,
                             const std::string& name_space,
                             const char* class_name) {
    COHORT_ASSIGN_OR_RETURN(const v1::ActorStanding standing,
                            AwaitLive(name, name_space, class_name));
    if (!standing.dimensions().empty()) {
      return WrongKind(name, "a group, not an actor (GetGroup finds it)");
    }
    COHORT_ASSIGN_OR_RETURN(const JobId id,
                            JobId::FromBytes(standing.job_id()));
    const std::shared_ptr<actor::OwnedTarget> target =
        actors_.TargetOf({id, 0, standing.secret()}, ActorOptions());
    if (const auto line = target->line()) line->channel.SetStanding(standing);
    return Actor{.id = id, .target = target};
  }

  static absl::Status WrongKind(const std::string& name, const char* what) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat("\"", name, "\" is ", what)),
        "wrong_kind");
  }

  // What may be the matter with a name that the head does not know.
  const char* WhyUnknown() const {
    if (!client::IsRank() || !options_.credential_file.empty()) {
      return " (it has ended, or was never created)";
    }
    return " that this process may call (its own credential reaches actors of "
           "its driver and of its job: for others pass a handle on, or set "
           "RuntimeOptions::credential_file)";
  }

  // Of the live one that has the name, and is of that class.
  absl::StatusOr<v1::ActorStanding> AwaitLive(const std::string& name,
                                              const std::string& name_space,
                                              const char* class_name) {
    COHORT_RETURN_IF_ERROR(SessionStatus());
    const std::pair<std::string, std::string> full = {
        name_space.empty() ? options_.name_space : name_space, name};
    COHORT_RETURN_IF_ERROR(CheckNamespace(full.first));
    COHORT_ASSIGN_OR_RETURN(const v1::ActorStanding standing, AwaitNamed(full));
    if (standing.job_id().empty()) {
      return SetReason(absl::NotFoundError(absl::StrCat(
                           "no live actor has the name \"", name,
                           "\" in namespace ", full.first, WhyUnknown())),
                       "no_actor");
    }
    if (standing.class_name() != class_name) {
      return SetReason(
          absl::FailedPreconditionError(absl::StrCat(
              "\"", name, "\" is a ", actor::Demangle(standing.class_name()),
              ", not a ", actor::Demangle(class_name),
              " (ask for the class that it was created with)")),
          "wrong_class");
    }
    return standing;
  }

  absl::Status Kill(const JobId& id, bool is_group) {
    if (!is_group && actors_.KnownGroup(id) != nullptr) {
      return actor::EndsAsAWhole();
    }
    v1::StopJobRequest request;
    request.set_request_id(RequestId::New(machinery_->random).ToHex());
    request.set_job_id(id.bytes());
    COHORT_RETURN_IF_ERROR(
        head_.CallAndWait(rpc::kStopJob, request, options_.deadline).status());
    for (const auto& line : actors_.LinesTo(id)) line->channel.MarkKilled();
    return absl::OkStatus();
  }

 private:
  // The way to actors as long as this lives.
  class Finder final : public actor::ActorFinder {
   public:
    explicit Finder(Core& core) : core_(core) {}

    std::shared_ptr<actor::CallTarget> TargetOf(
        const actor::ActorRef& ref) override {
      const Gate::Pass pass = gate_.TryEnter();
      return pass ? core_.TargetFor(ref) : actor::NoTarget(RuntimeGone());
    }
    void Close() {
      gate_.Close();
      gate_.WaitUntilIdle();
    }

   private:
    Gate gate_;
    Core& core_;
  };

  using Name = std::pair<std::string, std::string>;  // with its namespace
  // Calls the head with the same request, which has an id, as often as it does
  // not say what became of it: a head that was away may have taken it.
  template <typename Req, typename Resp>
  void CallUntilAnswered(
      const rpc::UnaryMethod<Req, Resp>& method, const Req& request,
      std::type_identity_t<
          absl::AnyInvocable<void(absl::StatusOr<Resp> response) &&>>
          done) {
    head_.Call(method, request, options_.deadline, machinery_->events,
               [this, &method, request,
                done = std::move(done)](absl::StatusOr<Resp> response) mutable {
                 const absl::Status& status = response.status();
                 const bool is_open = absl::IsUnavailable(status) ||
                                      absl::IsDeadlineExceeded(status) ||
                                      absl::IsResourceExhausted(status);
                 // CANCELLED: this is gone.
                 if (!is_open || !SessionStatus().ok()) {
                   return std::move(done)(std::move(response));
                 }
                 machinery_->events.PostAfter(
                     kAskedAgainAfter, [this, &method, request,
                                        done = std::move(done)]() mutable {
                       CallUntilAnswered(method, request, std::move(done));
                     });
               });
  }

  absl::StatusOr<actor::ActorOrigin> Origin() {
    COHORT_ASSIGN_OR_RETURN(const Digest package, UploadOnce());
    return actor::ActorOrigin{.program = program_,
                              .package = package,
                              .driver = driver_,
                              .name_space = options_.name_space,
                              .secret = NewSecret()};
  }

  absl::StatusOr<v1::SubmitJobRequest> ExecutorRequest(
      const TaskOptions& options) {
    COHORT_ASSIGN_OR_RETURN(const actor::ActorOrigin origin, Origin());
    v1::SubmitJobRequest request;
    request.set_request_id(RequestId::New(machinery_->random).ToHex());
    COHORT_ASSIGN_OR_RETURN(*request.mutable_spec(),
                            actor::ExecutorJob(options, origin));
    return request;
  }
  absl::StatusOr<Made> ExecutorOf(
      const absl::StatusOr<v1::SubmitJobResponse>& response) {
    if (GetReason(response.status()) == "no_package") {
      ForgetPackage();
      return absl::UnavailableError(response.status().message());
    }
    COHORT_RETURN_IF_ERROR(response.status());
    COHORT_ASSIGN_OR_RETURN(const JobId id,
                            JobId::FromBytes(response->job_id()));
    ActorOptions unbounded;
    // The pool has bounds of its own.
    unbounded.max_pending_calls = -1;
    // Nobody gets a handle of it.
    Made made = {
        .id = id,
        .target = actors_.TargetOf({id, 0, ""}, unbounded,
                                   std::numeric_limits<size_t>::max())};
    session_.Watch(id);
    return made;
  }

  // For `cohort tasks`, from the first one on.
  void TellTasks() {
    machinery_->events.PostAfter(kTasksToldEvery, [this] {
      std::vector<v1::TaskCounts> counts = tasks_->Counts();
      if (!counts.empty()) session_.TellTasks(std::move(counts));
      TellTasks();
    });
  }

  // On the events' thread.
  void OnStanding(const v1::ActorStanding& standing) {
    const absl::StatusOr<JobId> id = JobId::FromBytes(standing.job_id());
    if (id.ok()) actors_.Tell(*id, standing);
    MutexLock lock(mutex_);
    const auto asked = named_.find({standing.namespace_(), standing.name()});
    // A former one may have had the name.
    if (asked == named_.end() || (id.ok() && HasEnded(standing.state())))
      return;
    asked->second = standing;
    changed_.SignalAll();
  }

  void OnOver(const absl::Status& why) {
    const absl::Status over =
        SetReason(absl::FailedPreconditionError(absl::StrCat(
                      "the session with the head is over: ", why.message())),
                  kReasonSessionOver);
    tasks_->End(over);
    DropAll(over);
  }

  // And those that are asked for from now on.
  void DropAll(const absl::Status& why) {
    {
      MutexLock lock(mutex_);
      if (over_.ok()) over_ = why;
      changed_.SignalAll();
    }
    actors_.DropAll(why);
  }

  absl::Status SessionStatus() {
    MutexLock lock(mutex_);
    return over_;
  }

  absl::StatusOr<v1::ActorStanding> AwaitNamed(const Name& name) {
    {
      MutexLock lock(mutex_);
      named_[name].reset();
    }
    session_.WatchNamed(name.first, name.second);
    MutexLock lock(mutex_);
    const absl::Duration until =
        machinery_->clock.Monotonic() + options_.deadline;
    while (!named_[name].has_value() && over_.ok()) {
      if (!changed_.WaitUntil(mutex_, until) && !named_[name].has_value()) {
        return absl::DeadlineExceededError(absl::StrCat(
            "the head did not say who has the name \"", name.second,
            "\" within ", absl::FormatDuration(options_.deadline),
            " (`cohort status` says whether it serves)"));
      }
    }
    COHORT_RETURN_IF_ERROR(over_);
    return *named_[name];
  }

  std::string NewSecret() {
    std::array<unsigned char, actor::kActorSecretBytes> bytes;
    machinery_->random.Fill(bytes);
    return {bytes.begin(), bytes.end()};
  }

  // The program and what it named, once.
  absl::StatusOr<Digest> UploadOnce() {
    MutexLock lock(upload_mutex_);
    if (package_.has_value()) return *package_;
    COHORT_ASSIGN_OR_RETURN(const client::ProgramPackage packed,
                            client::PackThisProgram(options_.files));
    COHORT_RETURN_IF_ERROR(client::UploadPackage(head_, packed.package,
                                                 options_.deadline, nullptr));
    program_ = packed.program;
    package_ = packed.package.hash();
    return *package_;
  }
  void ForgetPackage() {
    MutexLock lock(upload_mutex_);
    package_.reset();
  }

  const RuntimeOptions options_;
  // Null where there was a cluster.
  const std::unique_ptr<client::PrivateCluster> own_cluster_;
  // Shared: with lines that calls hold yet.
  const std::shared_ptr<actor::Machinery> machinery_ =
      std::make_shared<actor::Machinery>();
  actor::OwnedActors actors_{machinery_};
  std::unique_ptr<rpc::Channel> channel_;
  client::HeadClient head_;
  DriverId driver_;

  Mutex upload_mutex_;
  std::string program_;
  std::optional<Digest> package_;

  Mutex mutex_;
  CondVar changed_;
  // The one that was asked for, perhaps by several threads.
  std::map<Name, std::optional<v1::ActorStanding>> named_
      ABSL_GUARDED_BY(mutex_);
  absl::Status over_ ABSL_GUARDED_BY(mutex_);

  // Shared: with futures of tasks.
  const std::shared_ptr<actor::TaskPool> tasks_ =
      actor::TaskPool::New({.max_waiting = options_.max_waiting_tasks}, *this,
                           machinery_->events, machinery_->clock);
  actor::DriverSession session_;
  // Shared: with those who ask for the way to an actor.
  const std::shared_ptr<Finder> finder_ = std::make_shared<Finder>(*this);
};

absl::StatusOr<Runtime> Runtime::Connect(std::string name,
                                         RuntimeOptions options) {
  COHORT_RETURN_IF_ERROR(actor::RegistryStatus());
  if (options.name_space.empty()) options.name_space = "default";
  if (options.max_waiting_tasks == 0) {
    return absl::InvalidArgumentError(
        "max_waiting_tasks is 0: no task could run (it can be 1 or more)");
  }
  COHORT_RETURN_IF_ERROR(CheckNamespace(options.name_space));
  for (const std::string& file : options.files) {
    if (access(file.c_str(), F_OK) != 0) return CannotPack(file, errno);
  }
  std::unique_ptr<client::PrivateCluster> own;
  if (!client::HasCluster(options.address)) {
    COHORT_ASSIGN_OR_RETURN(own, client::PrivateCluster::Start(
                                     client::PrivateCluster::ResultsHere()));
    options.address = own->address();
    options.credential_file = own->CredentialFile();
  }
  COHORT_ASSIGN_OR_RETURN(const std::string address,
                          client::FindAddress(options.address));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          client::FindCredential(options.credential_file));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Channel> channel,
                          rpc::NewGrpcChannel(address, credential));
  auto core = std::make_unique<Core>(std::move(options), std::move(name),
                                     std::move(own), std::move(channel));
  COHORT_RETURN_IF_ERROR(core->AwaitSession());
  return Runtime(std::move(core));
}

Runtime::Runtime(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;
Runtime::~Runtime() = default;

Runtime::Actor Runtime::Start(const ActorOptions& options,
                              actor::ConstructorCall constructor,
                              const char* class_name) {
  absl::StatusOr<Actor> made =
      core_->Create(options, std::move(constructor), class_name);
  if (made.ok()) return *std::move(made);
  return {.id = JobId(),
          .target = std::make_shared<actor::OwnedTarget>(made.status())};
}

absl::StatusOr<Runtime::ActorGroup> Runtime::StartGroup(
    const ActorOptions& options, const actor::Grid& grid,
    actor::ConstructorCall constructor, const char* class_name) {
  return core_->CreateGroup(options, std::move(constructor), class_name, grid);
}

absl::StatusOr<Runtime::Actor> Runtime::Find(const std::string& name,
                                             const std::string& name_space,
                                             const char* class_name) {
  return core_->Find(name, name_space, class_name);
}

absl::StatusOr<Runtime::FoundGroup> Runtime::FindGroup(
    const std::string& name, const std::string& name_space,
    const char* class_name) {
  return core_->FindGroup(name, name_space, class_name);
}

std::shared_ptr<actor::TaskRunner> Runtime::Tasks() const {
  return core_->tasks();
}

absl::Status Runtime::Kill(const JobId& id, bool is_group) {
  if (!id.IsNil()) return core_->Kill(id, is_group);
  return absl::FailedPreconditionError(
      "this actor was never created: its calls say why");
}

std::vector<std::string> GetGpuIds() {
  const char* const ids = std::getenv("COHORT_GPU_IDS");
  return absl::StrSplit(ids == nullptr ? "" : ids, ',', absl::SkipEmpty());
}

bool SetRankServer(void (*serve)()) {
  rank_server = serve;
  return true;
}

Runtime Init(int argc, char** argv, RuntimeOptions options) {
  if (rank_server != nullptr) rank_server();
  if (client::IsActor()) {
    unsetenv("COHORT_ACTOR");  // programs that the actor runs are drivers
    actor::ServeActor({argv + std::min(argc, 1), argv + argc});
  }
  const std::string name =
      argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "driver";
  absl::StatusOr<Runtime> runtime = Runtime::Connect(name, std::move(options));
  if (runtime.ok()) return *std::move(runtime);
  std::fprintf(stderr, "cohort: %s\n",
               std::string(runtime.status().message()).c_str());
  std::exit(kExitFailure);
}

}  // namespace cohort
