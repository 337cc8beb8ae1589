// What a cluster of many nodes costs the head: CPU and memory of streams that
// renew their leases once a second, beside a bare gRPC server that reads as
// many messages of the same length.  See README.md.

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "bench/node_swarm.h"
#include "bench/report.h"
#include "bench/swarm.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "rpc/credential.h"
#include "rpc/methods.h"

namespace cohort::bench {
namespace {

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
