// From kill -9 of a head with many waiting jobs to a job that ran to its end
// under the next one.  See README.md.

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/closed_loop.h"
#include "bench/report.h"
#include "bench/target.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "common/status_macros.h"

namespace cohort::bench {
namespace {

constexpr int kInFlight = 128;

JobSpec Hello() {
  JobSpec spec;
  spec.command = {BENCH_HELLO};
  return spec;
}

absl::Status RunOneJob(Cluster& cluster) {
  COHORT_ASSIGN_OR_RETURN(const JobId id, cluster.Submit(Hello()));
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster.Wait(id, absl::Minutes(2)));
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the job ended: ", job.reason()));
}

// Milliseconds from the kill until a job that was submitted then has run.
absl::StatusOr<double> KillAndRun(Testbed& testbed) {
  const absl::Time start = absl::Now();
  testbed.KillHead();
  COHORT_RETURN_IF_ERROR(testbed.StartHead());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed.Connect());
  COHORT_RETURN_IF_ERROR(RunOneJob(*cluster));
  return absl::ToDoubleMilliseconds(absl::Now() - start);
}

absl::Status AddWaiting(Testbed& testbed, int jobs) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed.Connect());
  HeadTarget head(*cluster);
  return ClosedLoop(head, jobs).Run(kInFlight).status();
}

absl::Status Run(const Flags& flags) {
  Report report("restart", flags);
  const int runs = flags.quick ? 3 : 5;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_RETURN_IF_ERROR(testbed->StartWorker(1));
  double floor = 0;
  int waiting = 0;
  for (const int jobs : {0, 1'000, 10'000, 100'000}) {
    if (jobs > waiting) {
      COHORT_RETURN_IF_ERROR(AddWaiting(*testbed, jobs - waiting));
      waiting = jobs;
    }
    Figure figure{.name = absl::StrCat("jobs/", jobs), .unit = "ms"};
    for (int run = 0; run < runs; ++run) {
      COHORT_ASSIGN_OR_RETURN(const double ms, KillAndRun(*testbed));
      figure.samples.values.push_back(ms);
    }
    // What the start of two processes and a reconnect cost with no jobs.
    if (jobs == 0) floor = figure.samples.median();
    figure.floor = floor;
    report.Add(figure);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const absl::Status done = Run(ParseFlags(argc, argv));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_restart: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
