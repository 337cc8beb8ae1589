// What TLS costs, beside heads without it: calls, submits, streams of nodes;
// and how long it takes to join.  See README.md.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/closed_loop.h"
#include "bench/node_swarm.h"
#include "bench/report.h"
#include "bench/target.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "common/file_limit.h"
#include "common/host_port.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/strand.h"
#include "common/strong_id.h"
#include "common/thread_pool.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/join_token.h"
#include "rpc/methods.h"
#include "worker/join.h"
#include "worker/options.h"

namespace cohort::bench {
namespace {

// A head with what asks it.
class Half {
 public:
  static absl::StatusOr<std::unique_ptr<Half>> Start(
      const std::vector<std::string>& flags) {
    auto half = std::make_unique<Half>();
    COHORT_ASSIGN_OR_RETURN(half->testbed, Testbed::Create());
    COHORT_RETURN_IF_ERROR(half->testbed->StartHead(flags));
    COHORT_ASSIGN_OR_RETURN(half->cluster, half->testbed->Connect());
    COHORT_ASSIGN_OR_RETURN(
        half->credential,
        rpc::Credential::Load(half->testbed->directory() + "/head/credential"));
    COHORT_ASSIGN_OR_RETURN(
        half->channel,
        rpc::NewGrpcChannel(half->testbed->address(), *half->credential));
    return half;
  }

  std::unique_ptr<Testbed> testbed;
  std::unique_ptr<Cluster> cluster;
  std::optional<rpc::Credential> credential;
  std::unique_ptr<rpc::Channel> channel;
};

// The call that answers least.
class StatusTarget final : public Target {
 public:
  explicit StatusTarget(rpc::Channel& channel) : channel_(channel) {}
  ~StatusTarget() override { strand_.Stop(); }

  void Call(int /*number*/, Done done) override {
    rpc::Call(
        channel_, rpc::kGetStatus, v1::GetStatusRequest(),
        {.deadline = absl::Minutes(1)}, strand_,
        [done = std::move(done)](absl::StatusOr<v1::GetStatusResponse> answer) {
          done(answer.status());
        });
  }

 private:
  rpc::Channel& channel_;
  ThreadPool pool_{1};
  Strand strand_{pool_};
};

// Both in turn, so that what else the machine does meets both.
absl::Status Measure(const Flags& flags, const std::string& name, int in_flight,
                     Target& secure, Target& plain, Report& report) {
  const int runs = flags.quick ? 3 : 9;
  const int total = in_flight == 1 ? 1'000 : 10'000;
  Samples rates[2];
  Samples medians[2];
  for (int run = -1; run < runs; ++run) {  // the first one warms up
    for (const int which : {0, 1}) {
      ClosedLoop loop(which == 0 ? secure : plain, total);
      COHORT_ASSIGN_OR_RETURN(const double rate, loop.Run(in_flight));
      if (run < 0) continue;
      rates[which].values.push_back(rate);
      medians[which].values.push_back(loop.latencies().median());
    }
  }
  if (in_flight == 1) {
    report.Add({.name = absl::StrCat(name, "/alone"),
                .samples = medians[0],
                .unit = "us",
                .floor = medians[1].median()});
    return absl::OkStatus();
  }
  report.Add({.name = absl::StrCat(name, "/", in_flight),
              .samples = rates[0],
              .unit = absl::StrCat(name, "s/s"),
              .less_is_better = false,
              .floor = rates[1].median()});
  return absl::OkStatus();
}

// Streams that each have a connection, as nodes do, or share some.
absl::Status MeasureNodes(const Flags& flags, int nodes, int a_connection,
                          Half& secure, Half& plain, Report& report) {
  const int runs = flags.quick ? 3 : 9;
  std::vector<std::unique_ptr<Side>> sides;
  for (Half* half : {&secure, &plain}) {
    COHORT_ASSIGN_OR_RETURN(const ClusterStatus status,
                            half->cluster->Status());
    sides.push_back(std::make_unique<Side>(
        status.head_pid(),
        SwarmOptions{.address = status.address(),
                     .path = rpc::kConnect.path,
                     .authorization = half->credential->AuthorizationHeader(),
                     .authority = half->credential->authority(),
                     .streams = nodes,
                     .streams_per_connection = a_connection,
                     .first = RegisterOf,
                     .beat = BeatOf}));
    COHORT_RETURN_IF_ERROR(sides.back()->Join());
  }
  for (int run = -1; run < runs; ++run) {
    for (const auto& side : sides) {
      COHORT_RETURN_IF_ERROR(side->Run(absl::Seconds(2), run >= 0));
    }
  }
  const std::string name =
      absl::StrCat(nodes, "_on_", nodes / a_connection, "_connections");
  report.Add({.name = absl::StrCat("nodes_cpu/", name),
              .samples = sides[0]->cpu_percent(),
              .unit = "% of a core",
              .floor = sides[1]->cpu_percent().median()});
  report.Add({.name = absl::StrCat("nodes_memory/", name),
              .samples = {{sides[0]->mebibytes()}},
              .unit = "MiB",
              .floor = sides[1]->mebibytes()});
  report.Add({.name = absl::StrCat("nodes_joined/", name),
              .samples = {{sides[0]->joined_ms()}},
              .unit = "ms",
              .floor = sides[1]->joined_ms()});
  return absl::OkStatus();
}

// As a worker does with --join: asks for the authority, connects, gets its
// credential and keeps it.
class Joins {
 public:
  static absl::StatusOr<std::unique_ptr<Joins>> Of(Half& half) {
    COHORT_ASSIGN_OR_RETURN(
        const std::string secret,
        half.cluster->CreateToken(v1::ROLE_JOIN, "", {}, absl::Hours(1)));
    COHORT_ASSIGN_OR_RETURN(const rpc::Credential token,
                            rpc::Credential::FromBytes(secret));
    auto joins = std::make_unique<Joins>();
    joins->token_ =
        rpc::JoinToken::Of(token.For(half.credential->authority())).ToText();
    COHORT_ASSIGN_OR_RETURN(joins->head_,
                            ParseHostPort(half.testbed->address()));
    joins->directory_ = half.testbed->directory() + "/joins";
    return joins;
  }

  // How long one takes, in ms.
  absl::StatusOr<double> One() {
    SystemRandom random;
    const NodeId node = NodeId::New(random);
    worker::WorkerOptions options;
    options.head = head_;
    options.join = token_;
    options.name = "joins";
    options.state_dir = absl::StrCat(directory_, "/", node.ToHex());
    std::filesystem::create_directories(options.state_dir);
    const absl::Time start = absl::Now();
    COHORT_RETURN_IF_ERROR(worker::LoadOrJoin(options, node, random).status());
    return absl::ToDoubleMilliseconds(absl::Now() - start);
  }

  // That many at once; how long each takes.
  absl::StatusOr<Samples> Together(int count) {
    Mutex mutex;
    Samples took;
    absl::Status failed;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        const absl::StatusOr<double> ms = One();
        MutexLock lock(mutex);
        if (ms.ok()) took.values.push_back(*ms);
        failed.Update(ms.status());
      });
    }
    for (std::thread& thread : threads) thread.join();
    COHORT_RETURN_IF_ERROR(failed);
    return took;
  }

 private:
  std::string token_;
  HostPort head_;
  std::string directory_;
};

absl::Status MeasureJoins(const Flags& flags, Half& half, Report& report) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Joins> joins, Joins::Of(half));
  Samples alone;
  for (int i = 0; i < (flags.quick ? 20 : 100); ++i) {
    COHORT_ASSIGN_OR_RETURN(const double ms, joins->One());
    alone.values.push_back(ms);
  }
  report.Add({.name = "join/alone", .samples = alone, .unit = "ms"});
  constexpr int kTogether = 1'000;
  const absl::Time start = absl::Now();
  COHORT_ASSIGN_OR_RETURN(const Samples together, joins->Together(kTogether));
  const double all = absl::ToDoubleMilliseconds(absl::Now() - start);
  report.Add({.name = absl::StrCat("join/each_of_", kTogether),
              .samples = together,
              .unit = "ms"});
  report.Add({.name = absl::StrCat("join/all_", kTogether),
              .samples = {{all}},
              .unit = "ms"});
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  Report report("secure", flags);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Half> secure, Half::Start({}));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Half> plain,
                          Half::Start({"--insecure"}));
  for (const int in_flight : {1, 1'024}) {
    StatusTarget of_secure(*secure->channel);
    StatusTarget of_plain(*plain->channel);
    COHORT_RETURN_IF_ERROR(
        Measure(flags, "call", in_flight, of_secure, of_plain, report));
  }
  for (const int in_flight : {1, 1'024}) {
    HeadTarget of_secure(*secure->cluster);
    HeadTarget of_plain(*plain->cluster);
    COHORT_RETURN_IF_ERROR(
        Measure(flags, "submit", in_flight, of_secure, of_plain, report));
  }
  // Last: a thousand threads, and only one of the heads has them.
  return MeasureJoins(flags, *secure, report);
}

// On heads without jobs, which would be placed.
absl::Status RunNodes(const Flags& flags) {
  Report report("secure", flags);
  for (const auto& [nodes, a_connection] :
       {std::pair(2'000, 1), std::pair(10'000, 100)}) {
    COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Half> secure,
                            Half::Start({}));
    COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Half> plain,
                            Half::Start({"--insecure"}));
    COHORT_RETURN_IF_ERROR(
        MeasureNodes(flags, nodes, a_connection, *secure, *plain, report));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const Flags flags = ParseFlags(argc, argv);
  RaiseFileLimit();  // for thousands of connections
  absl::Status done = Run(flags);
  done.Update(RunNodes(flags));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_secure: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
