#include "actor/actor_process.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "actor/actor_finder.h"
#include "actor/actor_service.h"
#include "actor/actor_spec.h"
#include "actor/call_limits.h"
#include "actor/connect_actor.h"
#include "actor/group_relay.h"
#include "actor/hosted_actor.h"
#include "actor/inline_executor.h"
#include "actor/method.h"
#include "actor/peer_actors.h"
#include "actor/shared_threads.h"
#include "actor/task_executor.h"
#include "actor/this_rank.h"
#include "actor/wait_observer.h"
#include "actor/worker_link.h"
#include "client/caller_executor.h"
#include "client/connection.h"
#include "client/process_environment.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/thread_pool.h"
#include "rpc/authenticator.h"
#include "rpc/certificate.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/grpc_server.h"
#include "rpc/router.h"
#include "shm/served_calls.h"
#include "shm/spinner.h"

namespace cohort::actor {
namespace {

[[noreturn]] void End(const absl::Status& why) {
  if (!why.ok()) {
    std::fprintf(stderr, "cohort: %s\n", std::string(why.message()).c_str());
  }
  std::fflush(nullptr);
  // Threads of gRPC run on, and there is nothing to be destroyed.
  _exit(why.ok() ? kExitOk : kExitFailure);
}

void OnSigterm(int /*signal*/) {}

// An actor's process, on the one thread that runs `main`.
class ActorProcess {
 public:
  ActorProcess(client::ProcessEnvironment environment,
               std::vector<std::string> arguments,
               std::unique_ptr<rpc::Channel> daemon)
      : environment_(std::move(environment)),
        arguments_(std::move(arguments)),
        daemon_(std::move(daemon)),
        link_(environment_.process, *daemon_, pool_,
              {.on_joined =
                   [this](const v1::WatchResponse& told) {
                     main_.Post([this, told] { Begin(told); });
                   },
               .on_notice = [this](v1::NoticeKind kind) { OnNotice(kind); },
               .on_over = [](const absl::Status& why) { End(why); }}) {}

  [[noreturn]] void Run() {
    for (;;) main_.RunUntil([] { return false; });
  }

 private:
  void Begin(const v1::WatchResponse& told) {
    const absl::Status begun = Serve(told);
    if (!begun.ok()) End(begun);
  }

  absl::Status Serve(const v1::WatchResponse& told) {
    const v1::ActorStart& start = told.actor();
    // The constructor may be given handles.
    AddActorFinder(std::make_shared<PeerActors>(
        PeerActors::Options{.spinner = &spinner_}, ConnectToHead,
        ConnectOverGrpc(), pool_, events_, clock_, random_));
    if (!IsTaskExecutor(start) && !start.detached()) {
      // Before the constructor, which may run tasks.
      const ConstructorCall asks = EncodeConstructor<TaskExecutor>();
      COHORT_ASSIGN_OR_RETURN(const std::string nothing, asks.arguments);
      COHORT_ASSIGN_OR_RETURN(Instance beside,
                              Instance::Construct(asks.name, nothing));
      asks_.emplace(std::move(beside));
    }
    COHORT_RETURN_IF_ERROR(MakeActors(told));
    COHORT_ASSIGN_OR_RETURN(const rpc::Credential secret,
                            rpc::Credential::FromBytes(start.secret()));
    router_.emplace(rpc::RouterOptions{}, rpc::Authenticator(secret), clock_);
    ActorServiceOptions options = {
        .job_id = told.job_id(),
        .incarnation = environment_.process.incarnation,
        .spinner = &spinner_};
    // A program's tasks are not shown.
    if (!IsTaskExecutor(start)) NoteServedCalls(told, options);
    service_.emplace(
        options, LanesOf(start),
        [this](const std::string& method, absl::string_view arguments,
               uint32_t actor) { return Invoke(method, arguments, actor); });
    relay_.emplace(
        GroupRelay::Options{.job_id = told.job_id(), .secret = start.secret()},
        ConnectOverGrpc(), events_, clock_, random_);
    service_->SetRelay([this](const std::string& arguments, auto done) {
      relay_->Relay(arguments, std::move(done));
    });
    service_->Register(*router_, events_);
    return Listen(told);
  }

  absl::Status MakeActors(const v1::WatchResponse& told) {
    const v1::ActorStart& start = told.actor();
    COHORT_ASSIGN_OR_RETURN(
        std::vector<GroupRank> ranks,
        RanksOf(environment_.process.slot, arguments_, start.processes()));
    SetThisRank(ranks.front());
    left_ = ranks.size();
    for (GroupRank& rank : ranks) {
      COHORT_ASSIGN_OR_RETURN(
          actors_.emplace_back(),
          HostedActor::Make(
              start,
              {.rank = std::move(rank),
               // Beside what the job's processes leave, and gone with it.
               .state_directory = absl::StrCat(
                   ParentDirectory(told.checkpoint_root()), "/state"),
               .incarnation = environment_.process.incarnation,
               .shares_process = start.processes() > 0,
               .on_end = [this] {
                 if (--left_ == 0) End(absl::OkStatus());
               }}));
    }
    has_state_ = actors_.front()->HasState();
    return absl::OkStatus();
  }

  // On `pool_`.  A node that is drained tells its processes first, and then
  // ends them: with SIGTERM, which is not to come before the state is saved,
  // and with SIGKILL after the grace in any case.
  void OnNotice(v1::NoticeKind kind) {
    if (kind == v1::NOTICE_KIND_UNSPECIFIED) {
      is_drained_ = false;
      std::signal(SIGTERM, SIG_DFL);
    } else if (kind == v1::NOTICE_KIND_DRAIN) {
      is_drained_ = true;
      // Not SIG_IGN, which programs that the actor runs would have too.
      std::signal(SIGTERM, OnSigterm);
      Want(HostedActor::Wanted::kSave);
    } else if (is_drained_ && has_state_) {
      Want(HostedActor::Wanted::kSaveAndEnd);
    } else if (is_drained_) {
      End(absl::OkStatus());
    }
  }

  // By the thread of `main`, or between two calls of one that is busy.
  void Want(HostedActor::Wanted what) {
    const bool are_made = has_state_;
    if (are_made) WantOfEach(what);
    main_.Post([this, what, are_made] {
      if (!are_made) WantOfEach(what);
      // First those that do nothing.
      for (const auto& actor : actors_) actor->TryTurn();
      for (const auto& actor : actors_) actor->TakeTurn();
    });
  }
  void WantOfEach(HostedActor::Wanted what) {
    for (const auto& actor : actors_) actor->Want(what);
  }

  absl::StatusOr<std::string> Invoke(const std::string& method,
                                     absl::string_view arguments,
                                     uint32_t actor) {
    if (IsAskMethod(method)) return asks_->Invoke(method, arguments);
    if (shared_ == nullptr) return actors_.front()->Invoke(method, arguments);
    const WaitObserver::Here here(*shared_);
    return actors_[actor]->Invoke(method, arguments);
  }

  // With the process's own credential.
  static absl::StatusOr<std::unique_ptr<rpc::Channel>> ConnectToHead() {
    COHORT_ASSIGN_OR_RETURN(const std::string address, client::FindAddress(""));
    COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                            client::FindCredential(""));
    return rpc::NewGrpcChannel(address, credential);
  }

  static bool IsTaskExecutor(const v1::ActorStart& start) {
    return start.constructor() == AutoConstructor<TaskExecutor>::Name();
  }

  // For `cohort timeline`, without which an actor does well.
  void NoteServedCalls(const v1::WatchResponse& told,
                       ActorServiceOptions& options) {
    auto served = shm::ServedCalls::Create(
        absl::StrCat(told.runtime_directory(), "/",
                     shm::ServedCalls::FileName(environment_.process.slot)),
        environment_.process.incarnation);
    if (!served.ok()) {
      std::fprintf(stderr, "cohort: calls are not noted down: %s\n",
                   std::string(served.status().message()).c_str());
      return;
    }
    served_ = *std::move(served);
    options.served = served_.get();
    options.clock = &clock_;
  }

  // Of an actor: of the TaskExecutor beside it.
  bool IsAskMethod(const std::string& method) const {
    return asks_.has_value() && TaskExecutor::IsAsk(method);
  }

  void AddAskLanes(std::vector<CallLane>& lanes) {
    // A call of Asked by a former stream ends when the next one comes.
    lanes.push_back({.runner = &NewThreads(2),
                     .group = TaskExecutor::kAsks,
                     .max_concurrency = 2});
    // Answers complete futures, which takes no time and no thread.
    lanes.push_back({.runner = &events_, .group = TaskExecutor::kAnswers});
  }

  std::vector<CallLane> LanesOf(const v1::ActorStart& start) {
    if (IsTaskExecutor(start)) {
      std::vector<CallLane> lanes = {{.runner = &NewThreads(1 + kGivenWayMax),
                                      .gives_way = true,
                                      .looks_at_rings = true}};
      AddAskLanes(lanes);
      return lanes;
    }
    const int most = std::max<int>(1, start.max_concurrency());
    if (start.processes() > 0) {
      shared_ = std::make_unique<SharedThreads>(most);
      std::vector<CallLane> lanes = {
          {.runner = shared_.get(),
           .actors = static_cast<uint32_t>(actors_.size())}};
      if (asks_.has_value()) AddAskLanes(lanes);
      return lanes;
    }
    // Calls of an actor that runs one at a time run on the thread of `main`.
    std::vector<CallLane> lanes = {
        {.runner =
             most == 1 ? static_cast<Executor*>(&main_) : &NewThreads(most),
         .max_concurrency = most,
         .looks_at_rings = true}};
    for (const v1::ConcurrencyGroup& group : start.concurrency_groups()) {
      const int of_group = std::max<int>(1, group.max_concurrency());
      lanes.push_back({.runner = &NewThreads(of_group),
                       .group = group.name(),
                       .max_concurrency = of_group});
    }
    if (asks_.has_value()) AddAskLanes(lanes);
    return lanes;
  }

  Executor& NewThreads(int most) {
    return *threads_.emplace_back(std::make_unique<ThreadPool>(most));
  }

  absl::Status Listen(const v1::WatchResponse& told) {
    std::vector<std::string> addresses;
    COHORT_RETURN_IF_ERROR(AddServer(
        {.address = absl::StrCat("unix:", told.runtime_directory(), "/actor.",
                                 environment_.process.slot, ".",
                                 environment_.process.incarnation)},
        addresses));
    if (!IsLoopback(told.host())) {
      COHORT_RETURN_IF_ERROR(
          AddServer({.address = absl::StrCat(told.host(), ":0"),
                     .identity = rpc::ServerOfSecret(told.actor().secret())},
                    addresses));
    }
    pool_.Post([this, addresses = std::move(addresses)]() mutable {
      link_.Announce(std::move(addresses));
    });
    return absl::OkStatus();
  }

  static bool IsLoopback(absl::string_view host) {
    return host.empty() || host == "localhost" || host == "[::1]" ||
           absl::StartsWith(host, "127.");
  }

  absl::Status AddServer(rpc::GrpcServerOptions options,
                         std::vector<std::string>& addresses) {
    COHORT_ASSIGN_OR_RETURN(
        servers_.emplace_back(),
        rpc::GrpcServer::Start(*router_, std::move(options)));
    addresses.push_back(servers_.back()->address());
    return absl::OkStatus();
  }

  const client::ProcessEnvironment environment_;
  const std::vector<std::string> arguments_;
  const MachineClock clock_;
  // The daemon is heard while a method runs: calls run on the main thread,
  // their streams are read on gRPC's.
  ThreadPool pool_{1};
  InlineExecutor events_{pool_};
  client::CallerExecutor main_;
  const std::unique_ptr<rpc::Channel> daemon_;
  std::vector<std::unique_ptr<ThreadPool>> threads_;
  std::optional<Instance> asks_;  // none: no driver runs tasks for it
  std::vector<std::unique_ptr<HostedActor>> actors_;
  std::unique_ptr<SharedThreads> shared_;  // null: there is one actor
  std::atomic<bool> has_state_{false};     // from when it can be saved
  std::atomic<size_t> left_{0};            // that have not saved to end
  bool is_drained_ = false;                // on `pool_`
  std::optional<rpc::Router> router_;
  SystemRandom random_;
  shm::MachineSpinner spinner_;
  std::optional<GroupRelay> relay_;
  std::unique_ptr<shm::ServedCalls> served_;
  std::optional<ActorService> service_;
  std::vector<std::unique_ptr<rpc::GrpcServer>> servers_;
  // The last: from its beginning on it tells of events, which use the others.
  WorkerLink link_;
};

absl::StatusOr<std::unique_ptr<ActorProcess>> Join(
    const std::vector<std::string>& arguments) {
  COHORT_ASSIGN_OR_RETURN(client::ProcessEnvironment environment,
                          client::ReadProcessEnvironment());
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          rpc::Credential::Load(environment.credential_file));
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<rpc::Channel> daemon,
      rpc::NewGrpcChannel(absl::StrCat("unix:", environment.worker_socket),
                          credential));
  return std::make_unique<ActorProcess>(std::move(environment), arguments,
                                        std::move(daemon));
}

}  // namespace

void ServeActor(const std::vector<std::string>& arguments) {
  absl::StatusOr<std::unique_ptr<ActorProcess>> process = Join(arguments);
  if (!process.ok()) End(process.status());
  (*process)->Run();
}

}  // namespace cohort::actor
