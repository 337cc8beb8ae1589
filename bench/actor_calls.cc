// A call to an actor in another process of this machine, from the thread that
// waits for it and many at once.  See README.md.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "actor/actor_service.h"
#include "actor/call_channel.h"
#include "actor/connect_actor.h"
#include "actor/inline_executor.h"
#include "bench/grpc_echo.h"
#include "bench/report.h"
#include "common/check.h"
#include "common/latch.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/strand.h"
#include "common/thread_pool.h"
#include "rpc/authenticator.h"
#include "rpc/credential.h"
#include "rpc/grpc_server.h"
#include "rpc/router.h"
#include "shm/futex.h"
#include "shm/served_calls.h"
#include "shm/spinner.h"

namespace cohort::bench {
namespace {

using actor::ActorService;
using actor::CallChannel;
using actor::CallLane;
using actor::InlineExecutor;

std::string Secret() { return std::string(32, 's'); }

// ---- The other process. ----

absl::StatusOr<std::string> Nothing(const std::string& /*method*/,
                                    absl::string_view /*arguments*/,
                                    uint32_t /*actor*/) {
  return std::string();
}

// Looks whatever else runs: what a call takes while that is allowed.
class PatientSpinner final : public shm::Spinner {
 public:
  std::optional<shm::Instant> Begin(bool /*other_looks*/) override {
    return shm::After(absl::Microseconds(50));
  }
  bool Pause(shm::Instant until) override {
    shm::SpinPause();
    return shm::Instant::clock::now() < until;
  }
};

// An actor at an address, as in a process of its own.
class Served {
 public:
  Served(const std::string& directory, const std::string& name,
         const CallLane& lane, Executor& events, shm::Spinner* spinner)
      : served_(*shm::ServedCalls::Create(
            absl::StrCat(directory, "/served_", name), 1)),
        service_({.job_id = "job",
                  .incarnation = 1,
                  .served = served_.get(),
                  .clock = &clock_,
                  .spinner = spinner},
                 {lane}, Nothing) {
    service_.Register(router_, events);
    auto server = rpc::GrpcServer::Start(
        router_, {.address = absl::StrCat("unix:", directory, "/", name)});
    COHORT_CHECK(server.ok());
    server_ = *std::move(server);
  }

 private:
  const MachineClock clock_;
  const std::unique_ptr<shm::ServedCalls> served_;
  rpc::Router router_{
      {}, rpc::Authenticator(*rpc::Credential::FromBytes(Secret())), clock_};
  ActorService service_;
  std::unique_ptr<rpc::GrpcServer> server_;
};

// Serves an actor whose calls run on the transport's threads ("inline"), those
// whose calls have a thread of their own, and the floor, until it is killed.
[[noreturn]] void Serve(const std::string& directory, int ready) {
  ThreadPool pool(1);
  InlineExecutor here(pool);
  PatientSpinner patient;
  shm::MachineSpinner machine;
  const CallLane thread = {.runner = &pool, .looks_at_rings = true};
  const Served first(directory, "inline", {.runner = &here}, here, nullptr);
  const Served second(directory, "thread", thread, here, nullptr);
  const Served third(directory, "ring", thread, here, &patient);
  const Served fourth(directory, "ring_or_not", thread, here, &machine);
  const EchoServer floor(absl::StrCat("unix:", directory, "/floor"));
  COHORT_CHECK(write(ready, "r", 1) == 1);
  for (;;) pause();
}

// ---- This one. ----

class Caller {
 public:
  Caller(const std::string& address, shm::Spinner* spinner)
      : channel_({.job_id = "job", .spinner = spinner},
                 actor::ConnectOverGrpc(), here_, clock_, random_) {
    v1::ActorStanding standing;
    standing.set_job_id("job");
    standing.set_state(v1::JOB_STATE_RUNNING);
    standing.set_incarnation(1);
    standing.add_addresses(address);
    standing.set_secret(Secret());
    channel_.SetStanding(standing);
  }

  void Call() {
    // Shared: Open may return after Wait.
    const auto answered = std::make_shared<Latch>();
    const auto is_here = std::make_shared<std::atomic<bool>>(false);
    const uint64_t call =
        channel_.Call("Nothing", std::string(8, 'x'),
                      [answered, is_here](const auto& result) {
                        COHORT_CHECK(result.ok()) << result.status().ToString();
                        *is_here = true;
                        answered->Open();
                      });
    channel_.Look(call, [&] { return is_here->load(); });  // as Future::Get
    answered->Wait();
  }

  // Calls a second.
  double Flood(int calls) {
    const auto answered = std::make_shared<Latch>();
    int left = calls;  // results come one at a time
    const absl::Time start = absl::Now();
    for (int i = 0; i < calls; ++i) {
      channel_.Call("Nothing", std::string(8, 'x'),
                    [&left, answered](const auto& result) {
                      COHORT_CHECK(result.ok()) << result.status().ToString();
                      if (--left == 0) answered->Open();
                    });
    }
    answered->Wait();
    return calls / absl::ToDoubleSeconds(absl::Now() - start);
  }

 private:
  const MachineClock clock_;
  SystemRandom random_;
  ThreadPool pool_{1};
  InlineExecutor here_{pool_};
  CallChannel channel_;
};

// The median of some calls in turn, in us.
template <typename Target>
double MedianCall(Target& target, int calls) {
  Samples samples;
  for (int i = 0; i < calls; ++i) {
    const absl::Time start = absl::Now();
    target.Call();
    samples.values.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
  }
  return samples.median();
}

void Measure(const std::string& name, const Flags& flags, Caller& caller,
             EchoClient& floor, Report& report) {
  Figure sync{.name = absl::StrCat(name, "/sync"), .unit = "us"};
  Figure flood{.name = absl::StrCat(name, "/async"),
               .unit = "calls/s",
               .less_is_better = false};
  Samples floors;
  const int calls = flags.quick ? 500 : 3'000;
  MedianCall(caller, calls);
  MedianCall(floor, calls);
  for (int run = 0; run < (flags.quick ? 5 : 15); ++run) {
    sync.samples.values.push_back(MedianCall(caller, calls));
    floors.values.push_back(MedianCall(floor, calls));
    flood.samples.values.push_back(
        caller.Flood(flags.quick ? 50'000 : 300'000));
  }
  sync.floor = floors.median();
  report.Add(sync);
  report.Add(flood);
}

int Main(int argc, char** argv) {
  const Flags flags = ParseFlags(argc, argv);
  char pattern[] = "/tmp/cohort-bench-XXXXXX";
  COHORT_CHECK(mkdtemp(pattern) != nullptr);
  const std::string directory = pattern;
  int ready[2];
  COHORT_CHECK(pipe(ready) == 0);
  // Before this process has threads.
  const pid_t child = fork();
  COHORT_CHECK(child >= 0);
  if (child == 0) Serve(directory, ready[1]);
  char byte = 0;
  COHORT_CHECK(read(ready[0], &byte, 1) == 1);
  {
    Report report("actor_calls", flags);
    EchoClient floor(absl::StrCat("unix:", directory, "/floor"));
    PatientSpinner patient;
    shm::MachineSpinner machine;
    const auto measure = [&](const std::string& figure, const std::string& name,
                             shm::Spinner* spinner) {
      Caller caller(absl::StrCat("unix:", directory, "/", name), spinner);
      Measure(figure, flags, caller, floor, report);
    };
    measure("inline", "inline", nullptr);
    measure("thread", "thread", nullptr);
    measure("ring", "ring", &patient);
    // As in programs: it looks only while a core is idle.
    measure("ring_or_not", "ring_or_not", &machine);
    // A third process wants a core all the time.
    const pid_t busy = fork();
    COHORT_CHECK(busy >= 0);
    while (busy == 0) shm::SpinPause();
    measure("busy", "ring_or_not", &machine);
    kill(busy, SIGKILL);
    waitpid(busy, nullptr, 0);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
