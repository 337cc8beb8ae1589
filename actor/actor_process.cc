#include "actor/actor_process.h"

#include <unistd.h>

#include <algorithm>
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

#include "actor/actor_service.h"
#include "actor/actor_spec.h"
#include "actor/call_limits.h"
#include "actor/connect_actor.h"
#include "actor/demangle.h"
#include "actor/group_relay.h"
#include "actor/inline_executor.h"
#include "actor/method.h"
#include "actor/task_executor.h"
#include "actor/this_rank.h"
#include "actor/worker_link.h"
#include "client/caller_executor.h"
#include "client/process_environment.h"
#include "common/cached_thread_pool.h"
#include "common/exit_code.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/thread_pool.h"
#include "rpc/authenticator.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/grpc_server.h"
#include "rpc/router.h"

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

// An actor's process, on the one thread that runs `main`.
class ActorProcess {
 public:
  ActorProcess(client::ProcessEnvironment environment,
               std::unique_ptr<rpc::Channel> daemon)
      : environment_(std::move(environment)),
        daemon_(std::move(daemon)),
        link_(environment_.process, *daemon_, pool_,
              {.on_joined =
                   [this](const v1::WatchResponse& told) {
                     main_.Post([this, told] { Begin(told); });
                   },
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
    absl::StatusOr<Instance> made =
        Instance::Construct(start.constructor(), start.arguments());
    if (!made.ok()) {
      return Annotate(
          made.status(),
          absl::StrCat("cannot make actor ", Demangle(start.class_name())));
    }
    instance_.emplace(*std::move(made));
    COHORT_ASSIGN_OR_RETURN(const rpc::Credential secret,
                            rpc::Credential::FromBytes(start.secret()));
    router_.emplace(rpc::RouterOptions{}, rpc::Authenticator(secret), clock_);
    service_.emplace(
        ActorServiceOptions{.job_id = told.job_id(),
                            .incarnation = environment_.process.incarnation},
        LanesOf(start),
        [this](const std::string& method, absl::string_view arguments) {
          return instance_->Invoke(method, arguments);
        });
    relay_.emplace(
        GroupRelay::Options{.job_id = told.job_id(), .secret = start.secret()},
        ConnectOverGrpc(), events_, clock_, random_);
    service_->SetRelay([this](const std::string& arguments, auto done) {
      relay_->Relay(arguments, std::move(done));
    });
    service_->Register(*router_, events_);
    return Listen(told);
  }

  std::vector<CallLane> LanesOf(const v1::ActorStart& start) {
    if (start.constructor() == AutoConstructor<TaskExecutor>::Name()) {
      // Answers complete futures, which takes no time and no thread.
      return {{.runner = &NewThreads(1 + kGivenWayMax), .gives_way = true},
              {.runner = &NewThreads(1), .group = TaskExecutor::kAsks},
              {.runner = &events_, .group = TaskExecutor::kAnswers}};
    }
    // Calls of an actor that runs one at a time run on the thread of `main`.
    const int most = std::max<int>(1, start.max_concurrency());
    std::vector<CallLane> lanes = {
        {.runner =
             most == 1 ? static_cast<Executor*>(&main_) : &NewThreads(most),
         .max_concurrency = most}};
    for (const v1::ConcurrencyGroup& group : start.concurrency_groups()) {
      const int of_group = std::max<int>(1, group.max_concurrency());
      lanes.push_back({.runner = &NewThreads(of_group),
                       .group = group.name(),
                       .max_concurrency = of_group});
    }
    return lanes;
  }

  Executor& NewThreads(int most) {
    return *threads_.emplace_back(
        std::make_unique<CachedThreadPool>(most, pool_));
  }

  absl::Status Listen(const v1::WatchResponse& told) {
    std::vector<std::string> addresses;
    COHORT_RETURN_IF_ERROR(AddServer(
        {.address = absl::StrCat("unix:", told.runtime_directory(), "/actor.",
                                 environment_.process.slot, ".",
                                 environment_.process.incarnation)},
        addresses));
    if (!IsLoopback(told.host())) {
      // There is no TLS yet: a head takes such hosts with --insecure-bind only.
      COHORT_RETURN_IF_ERROR(AddServer(
          {.address = absl::StrCat(told.host(), ":0"), .insecure_bind = true},
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
  const MachineClock clock_;
  // The daemon is heard while a method runs: calls run on the main thread,
  // their streams are read on gRPC's.
  ThreadPool pool_{1};
  InlineExecutor events_{pool_};
  client::CallerExecutor main_;
  const std::unique_ptr<rpc::Channel> daemon_;
  WorkerLink link_;
  std::vector<std::unique_ptr<CachedThreadPool>> threads_;
  std::optional<Instance> instance_;
  std::optional<rpc::Router> router_;
  SystemRandom random_;
  std::optional<GroupRelay> relay_;
  std::optional<ActorService> service_;
  std::vector<std::unique_ptr<rpc::GrpcServer>> servers_;
};

absl::StatusOr<std::unique_ptr<ActorProcess>> Join(
    const std::vector<std::string>& arguments) {
  COHORT_ASSIGN_OR_RETURN(client::ProcessEnvironment environment,
                          client::ReadProcessEnvironment());
  COHORT_ASSIGN_OR_RETURN(GroupRank rank,
                          RankOf(environment.process.slot, arguments));
  SetThisRank(std::move(rank));
  COHORT_ASSIGN_OR_RETURN(const rpc::Credential credential,
                          rpc::Credential::Load(environment.credential_file));
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<rpc::Channel> daemon,
      rpc::NewGrpcChannel(absl::StrCat("unix:", environment.worker_socket),
                          credential));
  return std::make_unique<ActorProcess>(std::move(environment),
                                        std::move(daemon));
}

}  // namespace

void ServeActor(const std::vector<std::string>& arguments) {
  absl::StatusOr<std::unique_ptr<ActorProcess>> process = Join(arguments);
  if (!process.ok()) End(process.status());
  (*process)->Run();
}

}  // namespace cohort::actor
