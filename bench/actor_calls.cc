// A call to an actor in another process of this machine, from the thread that
// waits for it and many at once.  See README.md.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
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
#include "shm/served_calls.h"

namespace cohort::bench {
namespace {

using actor::ActorService;
using actor::CallChannel;
using actor::InlineExecutor;

std::string Secret() { return std::string(32, 's'); }

// ---- The other process. ----

absl::StatusOr<std::string> Nothing(const std::string& /*method*/,
                                    absl::string_view /*arguments*/,
                                    uint32_t /*actor*/) {
  return std::string();
}

// Serves an actor whose calls run on the transport's threads ("inline"), one
// whose calls have a thread of their own ("thread"), and the floor, until it is
// killed.
[[noreturn]] void Serve(const std::string& directory, int ready) {
  const MachineClock clock;
  ThreadPool pool(1);
  InlineExecutor here(pool);
  const rpc::Authenticator authenticator(*rpc::Credential::FromBytes(Secret()));
  // As in an actor's process.
  const auto served = shm::ServedCalls::Create(directory + "/served", 1);
  COHORT_CHECK(served.ok());
  ActorService on_transport({.job_id = "job",
                             .incarnation = 1,
                             .served = served->get(),
                             .clock = &clock},
                            {{.runner = &here}}, Nothing);
  rpc::Router transport_router({}, authenticator, clock);
  on_transport.Register(transport_router, here);
  const auto served_too =
      shm::ServedCalls::Create(directory + "/served_too", 1);
  COHORT_CHECK(served_too.ok());
  ActorService on_thread({.job_id = "job",
                          .incarnation = 1,
                          .served = served_too->get(),
                          .clock = &clock},
                         {{.runner = &pool}}, Nothing);
  rpc::Router thread_router({}, authenticator, clock);
  on_thread.Register(thread_router, here);
  const auto first = rpc::GrpcServer::Start(
      transport_router,
      {.address = absl::StrCat("unix:", directory, "/inline")});
  const auto second = rpc::GrpcServer::Start(
      thread_router, {.address = absl::StrCat("unix:", directory, "/thread")});
  COHORT_CHECK(first.ok() && second.ok());

  const EchoServer floor(absl::StrCat("unix:", directory, "/floor"));
  COHORT_CHECK(write(ready, "r", 1) == 1);
  for (;;) pause();
}

// ---- This one. ----

class Caller {
 public:
  explicit Caller(const std::string& address)
      : channel_({.job_id = "job"}, actor::ConnectOverGrpc(), here_, clock_,
                 random_) {
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
    channel_.Call("Nothing", std::string(8, 'x'),
                  [answered](const auto& result) {
                    COHORT_CHECK(result.ok()) << result.status().ToString();
                    answered->Open();
                  });
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
    for (const char* name : {"inline", "thread"}) {
      Caller caller(absl::StrCat("unix:", directory, "/", name));
      Measure(name, flags, caller, floor, report);
    }
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const char* name :
       {"inline", "thread", "floor", "served", "served_too"}) {
    unlink(absl::StrCat(directory, "/", name).c_str());
  }
  rmdir(directory.c_str());
  return 0;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
