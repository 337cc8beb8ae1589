// From a submit to the first line of a program, through a real head, worker and
// keeper.  See README.md.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "trainer/train/trainer.h"

namespace cohort::bench {
namespace {

constexpr int kCpus = 64;  // said to be there: what runs does nothing
constexpr int kAtOnce = 20;
constexpr absl::Duration kGlance = absl::Milliseconds(2);
constexpr absl::Duration kTimeout = absl::Minutes(2);
// SDK submit to first line, and 20 at once to the last line, of Ray 2.60 on
// another machine of two cores.
constexpr char kPeer[] = "Ray 2.60 (recorded)";
constexpr double kPeerFirstLineMs = 1'240;
constexpr double kPeerTwentyMs = 19'300;
// Of Ray Train, warm, the call until the user's function runs.
constexpr char kFitPeer[] = "Ray Train 2.60 (recorded)";
constexpr double kPeerFitMs = 11'200;

double MillisecondsSince(absl::Time start) {
  return absl::ToDoubleMilliseconds(absl::Now() - start);
}

JobSpec Hello() {
  JobSpec spec;
  spec.command = {BENCH_HELLO};
  return spec;
}

// Submits and follows the log; returns when the line is seen.
absl::Status SubmitAndSee(Cluster& cluster) {
  COHORT_ASSIGN_OR_RETURN(const JobId job, cluster.Submit(Hello()));
  bool seen = false;
  const absl::Status end = cluster.Logs(
      job, {.follow = true, .deadline = kTimeout},
      [&seen](const LogChunk& chunk) {
        seen = seen || absl::StrContains(chunk.data, "hello\n");
        return seen ? absl::CancelledError("seen") : absl::OkStatus();
      });
  if (seen) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(end);
  return absl::InternalError("the job ended without its line");
}

// The floor: the same program, its line read from a pipe.
double ForkAndSee() {
  const absl::Time start = absl::Now();
  FILE* const pipe = popen("exec " BENCH_HELLO, "r");
  char line[16] = {};
  const bool seen =
      pipe != nullptr && fgets(line, sizeof(line), pipe) != nullptr;
  const double ms = MillisecondsSince(start);
  if (pipe != nullptr) pclose(pipe);
  return seen ? ms : 0;
}

absl::Status BenchFirstLine(const Flags& flags, Cluster& cluster,
                            Report& report) {
  Figure figure{.name = "first_line",
                .unit = "ms",
                .peer = kPeer,
                .peer_value = kPeerFirstLineMs};
  Samples floor;
  for (int run = -1; run < (flags.quick ? 10 : 50); ++run) {
    const absl::Time start = absl::Now();
    COHORT_RETURN_IF_ERROR(SubmitAndSee(cluster));
    const double ms = MillisecondsSince(start);
    const double floor_ms = ForkAndSee();
    if (run < 0) continue;
    figure.samples.values.push_back(ms);
    floor.values.push_back(floor_ms);
  }
  figure.floor = floor.median();
  report.Add(figure);
  return absl::OkStatus();
}

absl::Status BenchAtOnce(const Flags& flags, Cluster& cluster, Report& report) {
  Figure figure{.name = absl::StrCat("last_line_of_", kAtOnce),
                .unit = "ms",
                .peer = kPeer,
                .peer_value = kPeerTwentyMs};
  Samples floor;
  for (int run = 0; run < (flags.quick ? 3 : 7); ++run) {
    const absl::Time start = absl::Now();
    std::vector<absl::Status> results(kAtOnce);
    std::vector<std::thread> threads;
    for (absl::Status& result : results) {
      threads.emplace_back([&] { result = SubmitAndSee(cluster); });
    }
    for (std::thread& thread : threads) thread.join();
    figure.samples.values.push_back(MillisecondsSince(start));
    for (const absl::Status& result : results) {
      COHORT_RETURN_IF_ERROR(result);
    }
    double floor_ms = 0;
    for (int i = 0; i < kAtOnce; ++i) floor_ms += ForkAndSee();
    floor.values.push_back(floor_ms);
  }
  figure.floor = floor.median();
  report.Add(figure);
  return absl::OkStatus();
}

// Until the head shows the metrics of a step of examples/mnist on two ranks.
absl::Status BenchFirstStep(const Flags& flags, const Testbed& testbed,
                            Cluster& cluster, Report& report) {
  const std::string mnist = ProgramDirectory() + "/mnist";
  if (access(mnist.c_str(), X_OK) != 0) return absl::OkStatus();  // no LibTorch
  Figure figure{.name = "first_step_of_mnist", .unit = "ms"};
  Samples floor;
  JobSpec spec;
  spec.command = {mnist,     "--data",  BENCH_MNIST_DATA,
                  "--steps", "1000000", "--test-samples",
                  "64"};
  spec.scaling_config.num_workers = 2;
  for (int run = 0; run < (flags.quick ? 2 : 5); ++run) {
    const absl::Time start = absl::Now();
    COHORT_ASSIGN_OR_RETURN(const JobId id, cluster.Submit(spec));
    for (;;) {
      COHORT_ASSIGN_OR_RETURN(const Job job, cluster.Get(id));
      if (!job.metrics_json().empty()) break;
      if (HasEnded(job.state())) return absl::InternalError(job.reason());
      absl::SleepFor(kGlance);
    }
    figure.samples.values.push_back(MillisecondsSince(start));
    COHORT_RETURN_IF_ERROR(cluster.Stop(id));
    COHORT_RETURN_IF_ERROR(cluster.Wait(id, kTimeout).status());

    const absl::Time alone = absl::Now();
    COHORT_ASSIGN_OR_RETURN(
        const std::unique_ptr<Child> child,
        Child::Start({mnist, "--data", BENCH_MNIST_DATA, "--steps", "1",
                      "--test-samples", "64", "--storage-path",
                      testbed.directory() + "/alone"},
                     testbed.directory() + "/alone.log"));
    COHORT_RETURN_IF_ERROR(child->Wait());
    floor.values.push_back(MillisecondsSince(alone));
  }
  figure.floor = floor.median();
  report.Add(figure);
  return absl::OkStatus();
}

absl::Status Nothing(train::Run& run) { return run.status(); }

// The floor of a run: this program twice, which ends at once.
double StartTwice() {
  const absl::Time start = absl::Now();
  const std::string command =
      absl::StrCat("exec ", ProgramDirectory(), "/bench_start --nothing");
  FILE* const one = popen(command.c_str(), "r");
  FILE* const two = popen(command.c_str(), "r");
  for (FILE* pipe : {one, two}) {
    if (pipe != nullptr) pclose(pipe);
  }
  return MillisecondsSince(start);
}

// Until a driver has the result of a loop that does nothing on two ranks.
absl::Status BenchFit(const Flags& flags, Report& report) {
  Figure figure{.name = "fit_of_nothing",
                .unit = "ms",
                .peer = kFitPeer,
                .peer_value = kPeerFitMs};
  Samples floor;
  for (int run = -1; run < (flags.quick ? 5 : 20); ++run) {
    const absl::Time start = absl::Now();
    train::Trainer<&Nothing> trainer({}, {.num_workers = 2});
    COHORT_RETURN_IF_ERROR(train::ErrorOf(trainer.Fit()));
    const double ms = MillisecondsSince(start);
    const double floor_ms = StartTwice();
    if (run < 0) continue;  // the program is sent
    figure.samples.values.push_back(ms);
    floor.values.push_back(floor_ms);
  }
  figure.floor = floor.median();
  report.Add(figure);
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  Report report("start", flags);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_RETURN_IF_ERROR(testbed->StartWorker(kCpus));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  COHORT_RETURN_IF_ERROR(BenchFirstLine(flags, *cluster, report));
  COHORT_RETURN_IF_ERROR(BenchAtOnce(flags, *cluster, report));
  // Where Fit finds the cluster.
  setenv("COHORT_ADDRESS", testbed->address().c_str(), 1);
  setenv("COHORT_CREDENTIAL_FILE",
         (testbed->directory() + "/head/credential").c_str(), 1);
  COHORT_RETURN_IF_ERROR(BenchFit(flags, report));
  return BenchFirstStep(flags, *testbed, *cluster, report);
}

int Main(int argc, char** argv) {
  train::ServeRanks();
  if (argc > 1 && std::string(argv[1]) == "--nothing") return 0;
  const absl::Status done = Run(ParseFlags(argc, argv));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_start: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
