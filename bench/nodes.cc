// What a cluster of many nodes costs the head: CPU and memory of streams that
// renew their leases once a second, beside a bare gRPC server that reads as
// many messages of the same length.  See README.md.

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

std::string Beat(const v1::Stamp& stamp, uint64_t incarnation) {
  v1::WorkerMessage message;
  *message.mutable_stamp() = stamp;
  message.set_incarnation(incarnation);
  message.mutable_heartbeat();
  return message.SerializeAsString();
}

std::string BeatOf(int /*number*/, const std::string& answer) {
  v1::HeadMessage registered;
  if (!registered.ParseFromString(answer)) return "";
  return Beat(registered.stamp(), registered.registered().incarnation());
}

// As long as what the head is told.
std::string FloorBeatOf(int number, const std::string& /*answer*/) {
  v1::Stamp stamp;
  stamp.set_cluster_id(std::string(16, 'c'));
  stamp.set_generation(std::string(16, 'g'));
  stamp.set_term(1);
  stamp.set_nonce(1);
  return Beat(stamp, static_cast<uint64_t>(number) + 1);
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

// A server and the streams to it.
class Side {
 public:
  Side(int64_t pid, SwarmOptions options)
      : pid_(pid), options_(std::move(options)) {}

  // Blocks until all streams are open and answered, and pauses them.
  absl::Status Join() {
    COHORT_ASSIGN_OR_RETURN(idle_, UsageOf(pid_));
    const absl::Time start = absl::Now();
    swarm_ = std::make_unique<Swarm>(options_);
    COHORT_RETURN_IF_ERROR(swarm_->AwaitAnswers(absl::Minutes(2)));
    joined_ms_ = absl::ToDoubleMilliseconds(absl::Now() - start);
    swarm_->Pause();
    return absl::OkStatus();
  }

  // The streams speak for `window`, and are paused again.
  absl::Status Run(absl::Duration window, bool counts) {
    swarm_->Resume();
    absl::SleepFor(kSettle);
    COHORT_ASSIGN_OR_RETURN(const Usage before, UsageOf(pid_));
    const int64_t beats = swarm_->beats();
    absl::SleepFor(window);
    COHORT_ASSIGN_OR_RETURN(const Usage after, UsageOf(pid_));
    // On a busy machine the streams may have said less than they should: what
    // counts is what it costs to hear each of them once.
    const double rounds = static_cast<double>(swarm_->beats() - beats) /
                          static_cast<double>(options_.streams);
    swarm_->Pause();
    if (swarm_->lost() > 0) {
      return absl::UnavailableError(
          absl::StrCat(swarm_->lost(), " streams were ended by the server"));
    }
    mebibytes_ = after.mebibytes - idle_.mebibytes;
    if (!counts) return absl::OkStatus();
    cpu_percent_.values.push_back(
        100 * absl::FDivDuration(after.cpu - before.cpu, options_.period) /
        rounds);
    return absl::OkStatus();
  }

  const Samples& cpu_percent() const { return cpu_percent_; }
  double mebibytes() const { return mebibytes_; }
  double joined_ms() const { return joined_ms_; }

 private:
  static constexpr absl::Duration kSettle = absl::Milliseconds(300);

  const int64_t pid_;
  const SwarmOptions options_;
  Usage idle_;
  std::unique_ptr<Swarm> swarm_;
  Samples cpu_percent_;  // of one core
  double mebibytes_ = 0;
  double joined_ms_ = 0;
};

// Runs the two in turn, so that what else the machine does meets both.
absl::Status Compare(const Flags& flags, Side& floor, Side& head) {
  // With the other's turn below half of the nodes' timeout: none is suspect.
  constexpr absl::Duration kWindow = absl::Seconds(2);
  const int runs = flags.quick ? 3 : 9;
  COHORT_RETURN_IF_ERROR(floor.Join());
  COHORT_RETURN_IF_ERROR(head.Join());
  for (int run = -1; run < runs; ++run) {  // the first one warms up
    for (Side* side : {&head, &floor}) {
      COHORT_RETURN_IF_ERROR(side->Run(kWindow, /*counts=*/run >= 0));
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureNodes(const Flags& flags, int nodes, Report& report) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  const std::string ready = testbed->directory() + "/floor.ready";
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Child> server,
      Child::Start(
          {BENCH_FLOOR_SERVER, testbed->directory() + "/floor", "1", ready},
          testbed->directory() + "/floor.log"));
  COHORT_RETURN_IF_ERROR(AwaitFile(ready, *server));
  COHORT_ASSIGN_OR_RETURN(std::string address, ReadFile(ready));
  absl::StripAsciiWhitespace(&address);
  Side floor(server->pid(), {.address = address,
                             .path = "/Floor/Stream",
                             .authorization = {},
                             .streams = nodes,
                             .first = RegisterOf,
                             .beat = FloorBeatOf});
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  COHORT_ASSIGN_OR_RETURN(const ClusterStatus status, cluster->Status());
  COHORT_ASSIGN_OR_RETURN(
      const rpc::Credential credential,
      rpc::Credential::Load(testbed->directory() + "/head/credential"));
  Side head(status.head_pid(),
            {.address = status.address(),
             .path = rpc::kConnect.path,
             .authorization = credential.AuthorizationHeader(),
             .authority = credential.authority(),
             .streams = nodes,
             .first = RegisterOf,
             .beat = BeatOf});
  COHORT_RETURN_IF_ERROR(Compare(flags, floor, head));
  report.Add({.name = absl::StrCat("cpu/", nodes),
              .samples = head.cpu_percent(),
              .unit = "% of a core",
              .floor = floor.cpu_percent().median()});
  report.Add({.name = absl::StrCat("memory/", nodes),
              .samples = {{head.mebibytes()}},
              .unit = "MiB",
              .floor = floor.mebibytes()});
  report.Add({.name = absl::StrCat("joined/", nodes),
              .samples = {{head.joined_ms()}},
              .unit = "ms",
              .floor = floor.joined_ms()});
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
