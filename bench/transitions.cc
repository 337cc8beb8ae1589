// SubmitJob through the public client against a real head, each answer after
// its fsync, beside a bare gRPC server that syncs the same bytes, and etcd.
// Then the head is killed and the jobs are counted.  See README.md.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/closed_loop.h"
#include "bench/report.h"
#include "bench/target.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "common/file.h"
#include "common/status_macros.h"

namespace cohort::bench {
namespace {

constexpr int kInFlight[] = {1, 8, 32, 128, 1024};

// What the head's log grows by for one job.
absl::StatusOr<int64_t> BytesOfJob(const Testbed& testbed, Target& head) {
  constexpr int kJobs = 100;
  const int64_t before = testbed.HeadLogBytes();
  for (int i = 0; i < kJobs; ++i) {
    COHORT_RETURN_IF_ERROR(head.CallAndWait(i));
  }
  return (testbed.HeadLogBytes() - before) / kJobs;
}

// The runs of one target at one number in flight.
struct Runs {
  Samples rate;
  Samples p50;
  Samples p99;

  absl::Status Add(Target& target, int in_flight, int total) {
    ClosedLoop loop(target, total);
    COHORT_ASSIGN_OR_RETURN(const double calls, loop.Run(in_flight));
    const Samples latencies = loop.latencies();
    rate.values.push_back(calls);
    p50.values.push_back(latencies.median());
    p99.values.push_back(latencies.Percentile(99));
    return absl::OkStatus();
  }
};

// `peer` may be null.
absl::Status Measure(const Flags& flags, int in_flight, Target& head,
                     Target& floor, Target* peer, Report& report) {
  const int runs = flags.quick ? 3 : 7;
  const int total = in_flight == 1 ? 500 : flags.quick ? 4'000 : 10'000;
  Runs ours;
  Runs best;
  Runs theirs;
  for (int run = -1; run < runs; ++run) {  // the first one warms up
    if (run == 0) ours = best = theirs = {};
    // In turn, so that all meet the same disk and the same neighbours.
    COHORT_RETURN_IF_ERROR(ours.Add(head, in_flight, total));
    COHORT_RETURN_IF_ERROR(best.Add(floor, in_flight, total));
    if (peer == nullptr) continue;
    COHORT_RETURN_IF_ERROR(theirs.Add(*peer, in_flight, total));
  }
  const auto add = [&](const char* name, const char* unit, bool less_is_better,
                       Samples Runs::*of) {
    Figure figure{.name = absl::StrCat(name, "/", in_flight),
                  .samples = ours.*of,
                  .unit = unit,
                  .less_is_better = less_is_better,
                  .floor = (best.*of).median()};
    if (peer != nullptr) {
      figure.peer = "etcd";
      figure.peer_value = (theirs.*of).median();
    }
    report.Add(figure);
  };
  add("in_flight", "jobs/s", false, &Runs::rate);
  add("p50", "us", true, &Runs::p50);
  add("p99", "us", true, &Runs::p99);
  return absl::OkStatus();
}

// Kills the head and starts it again; every acknowledged job must be there.
absl::Status CountAgain(Testbed& testbed, const Cluster& cluster,
                        int64_t acknowledged, Report& report) {
  testbed.KillHead();
  const absl::Time start = absl::Now();
  COHORT_RETURN_IF_ERROR(testbed.StartHead());
  COHORT_ASSIGN_OR_RETURN(const ClusterStatus status, cluster.Status());
  const double ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  const auto pending = status.jobs_by_state().find("PENDING");
  const int64_t found =
      pending == status.jobs_by_state().end() ? 0 : pending->second;
  report.Add({.name = absl::StrCat("restart/", acknowledged, "_jobs"),
              .samples = {{ms}},
              .unit = "ms"});
  report.Add({.name = "lost",
              .samples = {{static_cast<double>(acknowledged - found)}},
              .unit = "jobs"});
  if (found == acknowledged) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(acknowledged,
                                          " jobs were acknowledged, ", found,
                                          " are there after kill -9"));
}

absl::StatusOr<std::unique_ptr<Child>> StartFloor(const Testbed& testbed,
                                                  int64_t bytes,
                                                  std::string& address) {
  const std::string ready = testbed.directory() + "/floor.ready";
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<Child> server,
      Child::Start({BENCH_FLOOR_SERVER, testbed.directory() + "/floor",
                    absl::StrCat(bytes), ready},
                   testbed.directory() + "/floor.log"));
  COHORT_RETURN_IF_ERROR(AwaitFile(ready, *server));
  COHORT_ASSIGN_OR_RETURN(address, ReadFile(ready));
  absl::StripAsciiWhitespace(&address);
  return server;
}

// One member on its defaults, on the same file system; null without etcd.
absl::StatusOr<std::unique_ptr<Child>> StartEtcd(const Testbed& testbed,
                                                 std::string& address) {
  constexpr char kProgram[] = "/usr/bin/etcd";
  if (!std::filesystem::exists(kProgram)) {
    std::fprintf(stderr,
                 "bench_transitions: no etcd beside it: apt-get install "
                 "etcd-server\n");
    return nullptr;
  }
  COHORT_ASSIGN_OR_RETURN(const int client_port, FreePort());
  COHORT_ASSIGN_OR_RETURN(const int peer_port, FreePort());
  address = absl::StrCat("127.0.0.1:", client_port);
  const std::string client_url = absl::StrCat("http://", address);
  const std::string peer_url = absl::StrCat("http://127.0.0.1:", peer_port);
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<Child> etcd,
      Child::Start(
          {kProgram, "--name", "bench", "--data-dir",
           testbed.directory() + "/etcd", "--listen-client-urls", client_url,
           "--advertise-client-urls", client_url, "--listen-peer-urls",
           peer_url, "--initial-advertise-peer-urls", peer_url,
           "--initial-cluster", absl::StrCat("bench=", peer_url)},
          testbed.directory() + "/etcd.log"));
  const std::unique_ptr<Target> probe = EtcdTarget(address, 1);
  const absl::Time late = absl::Now() + absl::Seconds(30);
  while (!probe->CallAndWait(0).ok()) {
    if (etcd->Ended()) return etcd->Wait();
    if (absl::Now() > late) {
      return absl::DeadlineExceededError("etcd does not answer");
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
  return etcd;
}

absl::Status Run(const Flags& flags) {
  Report report("transitions", flags);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  HeadTarget head(*cluster);
  COHORT_ASSIGN_OR_RETURN(const int64_t bytes, BytesOfJob(*testbed, head));
  report.Add({.name = "bytes_a_job",
              .samples = {{static_cast<double>(bytes)}},
              .unit = "B"});

  std::string floor_address;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Child> floor_server,
                          StartFloor(*testbed, bytes, floor_address));
  const std::unique_ptr<Target> floor = FloorTarget(floor_address);
  std::string etcd_address;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Child> etcd,
                          StartEtcd(*testbed, etcd_address));
  std::unique_ptr<Target> peer;
  if (etcd != nullptr) peer = EtcdTarget(etcd_address, bytes);
  for (const int in_flight : kInFlight) {
    COHORT_RETURN_IF_ERROR(
        Measure(flags, in_flight, head, *floor, peer.get(), report));
  }
  return CountAgain(*testbed, *cluster, head.acknowledged(), report);
}

int Main(int argc, char** argv) {
  const absl::Status done = Run(ParseFlags(argc, argv));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_transitions: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
