// A training step of two ranks on one node, as a job of a real cluster, beside
// two processes of the same loop that do not talk and Python's
// DistributedDataParallel over Gloo; and the same while the head is away.  See
// README.md.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "common/real_clock.h"
#include "common/status_macros.h"

namespace cohort::bench {
namespace {

constexpr int kRanks = 2;
constexpr size_t kWarmUp = 10;  // steps that are not counted
constexpr absl::Duration kTimeout = absl::Minutes(5);
constexpr absl::Duration kGlance = absl::Milliseconds(20);
constexpr absl::Duration kAway = absl::Seconds(10);
constexpr char kPython[] = "/usr/bin/python3";  // Debian's, which has torch

struct Step {
  absl::Duration start;  // MachineClock::Monotonic
  double us = 0;
};

// Both sides alike: one thread a rank, and freed memory is kept, which our
// ranks say by mallopt and Python cannot but here.
const std::vector<std::pair<std::string, std::string>>& Settings() {
  static const auto* const kSettings =
      new std::vector<std::pair<std::string, std::string>>{
          {"OMP_NUM_THREADS", "1"},
          {"OPENBLAS_NUM_THREADS", "1"},
          {"MALLOC_MMAP_THRESHOLD_", "2000000000"},
          {"MALLOC_TRIM_THRESHOLD_", "2000000000"},
          {"MALLOC_TOP_PAD_", "67108864"},
          {"GLOO_SOCKET_IFNAME", "lo"},
      };
  return *kSettings;
}

std::vector<Step> ReadSteps(const std::string& path) {
  std::ifstream file(path);
  std::vector<Step> steps;
  int64_t start = 0;
  double us = 0;
  while (file >> start >> us) {
    steps.push_back({absl::Microseconds(start), us});
  }
  return steps;
}

// Of the slower rank.
struct StepTimes {
  double p50 = 0;
  double p10 = 0;  // steps that met few neighbours
};

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at =
      static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  return values[at];
}

absl::StatusOr<StepTimes> ReadTimes(const std::string& out) {
  StepTimes slower;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<double> values;
    const std::vector<Step> steps = ReadSteps(absl::StrCat(out, "-", rank));
    for (size_t i = kWarmUp; i < steps.size(); ++i) {
      values.push_back(steps[i].us);
    }
    if (values.empty()) {
      return absl::InternalError(absl::StrCat("no steps in ", out));
    }
    slower.p50 = std::max(slower.p50, Quantile(values, 0.5));
    slower.p10 = std::max(slower.p10, Quantile(values, 0.1));
  }
  return slower;
}

// The ways to train, each run after the others in turn.
class Contest {
 public:
  Contest(const Flags& flags, const Testbed& testbed, Cluster& cluster)
      : flags_(flags), testbed_(testbed), cluster_(cluster) {}

  absl::Status Run(const std::string& model, int steps, Report& report) {
    Series job;
    Series alone;
    Series ddp;
    const bool has_peer = HasPeer();
    for (int run = 0; run < (flags_.quick ? 3 : 7); ++run) {
      COHORT_ASSIGN_OR_RETURN(const StepTimes times, TimeJob(model, steps));
      job.Add(times);
      COHORT_ASSIGN_OR_RETURN(const StepTimes bare, TimeAlone(model, steps));
      alone.Add(bare);
      if (!has_peer) continue;
      COHORT_ASSIGN_OR_RETURN(const StepTimes peer, TimeDdp(model, steps));
      ddp.Add(peer);
    }
    for (Samples Series::*const quantile : {&Series::p50, &Series::p10}) {
      Figure figure{
          .name = absl::StrCat(
              model, quantile == &Series::p50 ? "/step/p50" : "/step/p10"),
          .samples = job.*quantile,
          .unit = "us",
          .floor = (alone.*quantile).median()};
      if (has_peer) {
        figure.peer = "python3-torch DDP over Gloo";
        figure.peer_value = (ddp.*quantile).median();
      }
      report.Add(figure);
    }
    return absl::OkStatus();
  }

  // The 99th percentile of a step while the head is there and while it is not.
  absl::Status RunHeadAway(Testbed& testbed, Report& report) {
    const absl::Duration half = flags_.quick ? absl::Seconds(5) : kAway;
    const std::string out = NextOut();
    COHORT_ASSIGN_OR_RETURN(
        const JobId id, cluster_.Submit(Spec({"mlp", "0", out, "--report"})));
    COHORT_RETURN_IF_ERROR(AwaitMetrics(id));
    const MachineClock clock;
    const absl::Duration begin = clock.Monotonic();
    absl::SleepFor(half);
    testbed.KillHead();
    const absl::Duration gone = clock.Monotonic();
    absl::SleepFor(kAway);
    const absl::Duration back = clock.Monotonic();
    COHORT_RETURN_IF_ERROR(testbed.StartHead());
    const absl::Duration serves = clock.Monotonic();
    absl::SleepFor(half);
    const absl::Duration end = clock.Monotonic();
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster_.Get(id));
    if (job.state() != v1::JOB_STATE_RUNNING || job.attempt() != 1) {
      return absl::InternalError(
          absl::StrCat("the job did not run on: ", job.reason()));
    }
    COHORT_RETURN_IF_ERROR(cluster_.Stop(id));
    COHORT_RETURN_IF_ERROR(cluster_.Wait(id, kTimeout).status());

    std::vector<double> there;
    std::vector<double> away;
    for (const Step& step : ReadSteps(absl::StrCat(out, "-0"))) {
      const bool is_there = (step.start >= begin && step.start < gone) ||
                            (step.start >= serves && step.start < end);
      if (is_there) there.push_back(step.us);
      if (step.start >= gone && step.start < back) away.push_back(step.us);
    }
    for (const auto& [name, share] :
         {std::pair{"p50", 0.50}, std::pair{"p99", 0.99}}) {
      report.Add({.name = absl::StrCat("head_away/", name),
                  .samples = {{Quantile(away, share)}},
                  .unit = "us",
                  .floor = Quantile(there, share)});
    }
    return absl::OkStatus();
  }

 private:
  struct Series {
    Samples p50;
    Samples p10;

    void Add(const StepTimes& times) {
      p50.values.push_back(times.p50);
      p10.values.push_back(times.p10);
    }
  };

  static bool HasPeer() {
    const std::string command =
        absl::StrCat(kPython, " -c 'import torch.distributed' 2>/dev/null");
    return std::system(command.c_str()) == 0;
  }

  std::string NextOut() {
    return absl::StrCat(testbed_.directory(), "/steps-", ++outs_);
  }

  static JobSpec Spec(const std::vector<std::string>& arguments) {
    JobSpec spec;
    spec.command = {BENCH_TRAIN_LOOP};
    spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
    for (const auto& [name, value] : Settings()) {
      spec.environment[name] = value;
    }
    spec.scaling_config.num_workers = kRanks;
    return spec;
  }

  absl::Status AwaitMetrics(JobId id) {
    for (;;) {
      COHORT_ASSIGN_OR_RETURN(const Job job, cluster_.Get(id));
      if (!job.metrics_json().empty()) return absl::OkStatus();
      if (HasEnded(job.state())) return absl::InternalError(job.reason());
      absl::SleepFor(kGlance);
    }
  }

  absl::StatusOr<StepTimes> TimeJob(const std::string& model, int steps) {
    const std::string out = NextOut();
    COHORT_ASSIGN_OR_RETURN(
        const JobId id,
        cluster_.Submit(Spec({model, absl::StrCat(steps), out})));
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster_.Wait(id, kTimeout));
    if (job.state() != v1::JOB_STATE_SUCCEEDED) {
      return absl::InternalError(job.reason());
    }
    return ReadTimes(out);
  }

  absl::StatusOr<StepTimes> TimeAlone(const std::string& model, int steps) {
    const std::string out = NextOut();
    COHORT_RETURN_IF_ERROR(RunTwo(
        {BENCH_TRAIN_LOOP, model, absl::StrCat(steps), out, "--bare"}, out));
    return ReadTimes(out);
  }

  absl::StatusOr<StepTimes> TimeDdp(const std::string& model, int steps) {
    const std::string out = NextOut();
    COHORT_RETURN_IF_ERROR(RunTwo({kPython, BENCH_DDP_GLOO, model,
                                   absl::StrCat(steps), out, out + ".store"},
                                  out));
    return ReadTimes(out);
  }

  // Two processes at once.
  static absl::Status RunTwo(const std::vector<std::string>& argv,
                             const std::string& out) {
    std::vector<std::unique_ptr<Child>> children;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<std::string> environment = {
          absl::StrCat("RANK=", rank), absl::StrCat("WORLD_SIZE=", kRanks)};
      for (const auto& [name, value] : Settings()) {
        environment.push_back(absl::StrCat(name, "=", value));
      }
      COHORT_ASSIGN_OR_RETURN(
          std::unique_ptr<Child> child,
          Child::Start(argv, absl::StrCat(out, ".log-", rank), environment));
      children.push_back(std::move(child));
    }
    for (const auto& child : children) COHORT_RETURN_IF_ERROR(child->Wait());
    return absl::OkStatus();
  }

  const Flags flags_;
  const Testbed& testbed_;
  Cluster& cluster_;
  int outs_ = 0;
};

absl::Status Run(const Flags& flags) {
  Report report("train_step", flags);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_RETURN_IF_ERROR(testbed->StartWorker(kRanks));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  Contest contest(flags, *testbed, *cluster);
  COHORT_RETURN_IF_ERROR(contest.Run("mlp", flags.quick ? 300 : 1'000, report));
  COHORT_RETURN_IF_ERROR(contest.Run("cnn", flags.quick ? 30 : 60, report));
  return contest.RunHeadAway(*testbed, report);
}

int Main(int argc, char** argv) {
  const absl::Status done = Run(ParseFlags(argc, argv));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_train_step: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
