// What a cluster of many nodes costs the head: CPU and memory of streams that
// renew their leases once a second, beside a bare gRPC server that reads the
// same messages.  See README.md.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "bench/swarm.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "cohort/v1/node.pb.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "rpc/credential.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::bench {
namespace {

// A machine with 8 GPUs.
std::string RegisterOf(int number) {
  v1::WorkerMessage message;
  v1::Register& node = *message.mutable_register_();
  node.mutable_protocol()->set_min_version(1);
  node.mutable_protocol()->set_max_version(1);
  std::string id(16, '\0');
  for (int i = 0; i < 4; ++i) {
    id[static_cast<size_t>(i)] = static_cast<char>(number >> (8 * i));
  }
  id[15] = 1;
  node.set_node_id(id);
  node.set_name(absl::StrCat("node-", number));
  node.set_host("127.0.0.1");
  node.set_pid(1 + number);
  node.set_daemon_nonce(static_cast<uint64_t>(number) + 1);
  *node.mutable_resources() =
      rpc::ToWire(*ParseResources("CPU=64,GPU=8,memory=512GiB"));
  for (int gpu = 0; gpu < 8; ++gpu) {
    v1::Device& device = *node.add_devices();
    device.set_id(absl::StrCat("GPU-", number, "-", gpu));
    device.set_kind("gpu");
    device.set_model("bench");
    device.set_memory_bytes(int64_t{80} << 30);
    device.set_simulated(true);
  }
  (*node.mutable_labels())["rack"] = absl::StrCat("r", number / 32);
  node.mutable_observed()->set_full(true);
  return message.SerializeAsString();
}

std::string BeatOf(int /*number*/, const std::string& answer) {
  v1::HeadMessage registered;
  v1::WorkerMessage message;
  if (registered.ParseFromString(answer)) {
    *message.mutable_stamp() = registered.stamp();
    message.set_incarnation(registered.registered().incarnation());
  }
  message.mutable_heartbeat();
  return message.SerializeAsString();
}

// CPU time and memory of a process so far.
struct Usage {
  absl::Duration cpu;
  double mebibytes = 0;
};

absl::StatusOr<Usage> UsageOf(int64_t pid) {
  COHORT_ASSIGN_OR_RETURN(const std::string stat,
                          ReadFile(absl::StrCat("/proc/", pid, "/stat")));
  // After the name, which may hold anything: state is field 3 of proc(5).
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(stat.rfind(')') + 2), ' ');
  int64_t user = 0;
  int64_t system = 0;
  int64_t pages = 0;
  if (fields.size() < 22 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system) ||
      !absl::SimpleAtoi(fields[21], &pages)) {
    return absl::InternalError(absl::StrCat("no usage of process ", pid));
  }
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return Usage{.cpu = absl::Seconds(static_cast<double>(user + system) / ticks),
               .mebibytes = static_cast<double>(pages * sysconf(_SC_PAGESIZE)) /
                            (1 << 20)};
}

struct Cost {
  Samples cpu_percent;  // of one core
  double mebibytes = 0;
  double joined_ms = 0;
};

absl::StatusOr<Cost> Measure(const Flags& flags, int64_t pid,
                             SwarmOptions options) {
  const int runs = flags.quick ? 3 : 7;
  const absl::Duration window = absl::Seconds(flags.quick ? 2 : 4);
  COHORT_ASSIGN_OR_RETURN(const Usage idle, UsageOf(pid));
  const absl::Time start = absl::Now();
  Swarm swarm(std::move(options));
  COHORT_RETURN_IF_ERROR(swarm.AwaitAnswers(absl::Minutes(2)));
  Cost cost;
  cost.joined_ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  for (int run = -1; run < runs; ++run) {  // the first one warms up
    COHORT_ASSIGN_OR_RETURN(const Usage before, UsageOf(pid));
    const absl::Time begun = absl::Now();
    absl::SleepFor(window);
    COHORT_ASSIGN_OR_RETURN(const Usage after, UsageOf(pid));
    if (run < 0) continue;
    cost.cpu_percent.values.push_back(
        100 * absl::FDivDuration(after.cpu - before.cpu, absl::Now() - begun));
    cost.mebibytes = after.mebibytes - idle.mebibytes;
  }
  if (swarm.lost() > 0) {
    return absl::UnavailableError(
        absl::StrCat(swarm.lost(), " streams were ended by the server"));
  }
  return cost;
}

absl::Status MeasureNodes(const Flags& flags, int nodes, Report& report) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  const std::string ready = testbed->directory() + "/floor.ready";
  Cost floor;
  {
    COHORT_ASSIGN_OR_RETURN(
        const std::unique_ptr<Child> server,
        Child::Start(
            {BENCH_FLOOR_SERVER, testbed->directory() + "/floor", "1", ready},
            testbed->directory() + "/floor.log"));
    COHORT_RETURN_IF_ERROR(AwaitFile(ready, *server));
    COHORT_ASSIGN_OR_RETURN(std::string address, ReadFile(ready));
    absl::StripAsciiWhitespace(&address);
    COHORT_ASSIGN_OR_RETURN(floor, Measure(flags, server->pid(),
                                           {.address = address,
                                            .path = "/Floor/Stream",
                                            .authorization = {},
                                            .streams = nodes,
                                            .first = RegisterOf,
                                            .beat = BeatOf}));
  }
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  COHORT_ASSIGN_OR_RETURN(const ClusterStatus status, cluster->Status());
  COHORT_ASSIGN_OR_RETURN(
      const rpc::Credential credential,
      rpc::Credential::Load(testbed->directory() + "/head/credential"));
  COHORT_ASSIGN_OR_RETURN(
      const Cost head,
      Measure(flags, status.head_pid,
              {.address = status.address,
               .path = rpc::kConnect.path,
               .authorization = credential.AuthorizationHeader(),
               .streams = nodes,
               .first = RegisterOf,
               .beat = BeatOf}));
  report.Add({.name = absl::StrCat("cpu/", nodes),
              .samples = head.cpu_percent,
              .unit = "% of a core",
              .floor = floor.cpu_percent.median()});
  report.Add({.name = absl::StrCat("memory/", nodes),
              .samples = {{head.mebibytes}},
              .unit = "MiB",
              .floor = floor.mebibytes});
  report.Add({.name = absl::StrCat("joined/", nodes),
              .samples = {{head.joined_ms}},
              .unit = "ms",
              .floor = floor.joined_ms});
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  Report report("nodes", flags);
  for (const int nodes : {1'000, 5'000, 10'000}) {
    COHORT_RETURN_IF_ERROR(MeasureNodes(flags, nodes, report));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const absl::Status done = Run(ParseFlags(argc, argv));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_nodes: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
