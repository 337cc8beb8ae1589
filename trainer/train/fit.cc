#include "trainer/train/fit.h"

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "actor/runtime.h"
#include "client/cluster.h"
#include "client/connection.h"
#include "client/private_cluster.h"
#include "client/process_environment.h"
#include "client/program_package.h"
#include "client/wire.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/train/fit_report.h"
#include "trainer/train/rank_loop.h"

namespace cohort::train {
namespace {

// By which a driver finds the run that another one, of the same program and
// with the same arguments, has begun.
constexpr char kFitLabel[] = "fit";
constexpr size_t kFitLabelDigits = 16;

// What Init does in a rank.
[[maybe_unused]] const bool ranks_are_served = SetRankServer(&ServeRanks);

// Of this program, without its name.
absl::StatusOr<std::vector<std::string>> ThisCommandLine() {
  COHORT_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile("/proc/self/cmdline"));
  std::vector<std::string> arguments = absl::StrSplit(text, '\0');
  // It ends with a NUL.
  if (!arguments.empty()) arguments.pop_back();
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

absl::StatusOr<JobSpec> SpecOf(const FitRequest& request, Cluster& cluster) {
  COHORT_ASSIGN_OR_RETURN(const client::ProgramPackage packed,
                          client::PackThisProgram());
  JobSpec spec;
  spec.command = {absl::StrCat("./", packed.program)};
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> arguments,
                          ThisCommandLine());
  spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
  spec.scaling_config = request.scaling_config;
  spec.run_config = request.run_config;
  COHORT_ASSIGN_OR_RETURN(spec.environment[kFitVariable],
                          EncodeForRanks(request));
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec));
  COHORT_RETURN_IF_ERROR(cluster.UploadPackage(packed.package));
  spec.package = packed.package.hash();
  Sha256 hash;
  hash.Update(client::ToWire(spec).SerializeAsString());
  spec.labels[kFitLabel] = hash.Finish().ToHex().substr(0, kFitLabelDigits);
  return spec;
}

struct Started {
  JobId job;
  bool is_joined = false;
};

// The run of that name and spec that has not ended, or a new one.
absl::StatusOr<Started> JoinOrSubmit(Cluster& cluster, const JobSpec& spec) {
  if (spec.run_config.name.empty()) {
    COHORT_ASSIGN_OR_RETURN(const JobId job, cluster.Submit(spec));
    return Started{.job = job};
  }
  ListOptions options;
  options.name = spec.run_config.name;
  options.labels = spec.labels;
  COHORT_ASSIGN_OR_RETURN(const JobList list, cluster.List(options));
  // Drivers that ask at the same time name the same request: one job.
  std::string request = absl::StrCat("fit-", spec.labels.at(kFitLabel), "-");
  if (list.jobs.empty()) {
    absl::StrAppend(&request, ToUnixSeconds(MachineClock().Wall()) / 60);
  } else {
    COHORT_ASSIGN_OR_RETURN(const JobId newest,
                            JobId::FromBytes(list.jobs[0].job_id()));
    if (!HasEnded(list.jobs[0].state())) return Started{newest, true};
    absl::StrAppend(&request, newest.ToText());
  }
  COHORT_ASSIGN_OR_RETURN(const JobId job,
                          cluster.Submit(spec, {.request_id = request}));
  return Started{.job = job};
}

// A cluster of this program for one Fit; none where there is one.
class OwnCluster {
 public:
  absl::Status Start() {
    if (client::HasCluster("")) return absl::OkStatus();
    is_mine_ = !is_taken.exchange(true);
    if (!is_mine_) {
      return absl::FailedPreconditionError(
          "another Fit of this program starts a cluster of its own (run one "
          "after the other, or start a cluster with `cohort up`)");
    }
    COHORT_ASSIGN_OR_RETURN(
        cluster_,
        client::PrivateCluster::Start(client::PrivateCluster::ResultsHere()));
    return absl::OkStatus();
  }
  ~OwnCluster() {
    cluster_.reset();
    if (is_mine_) is_taken = false;
  }

 private:
  static inline std::atomic<bool> is_taken = false;
  bool is_mine_ = false;
  std::unique_ptr<client::PrivateCluster> cluster_;
};

// So that nobody waits for a head that is gone without knowing.
void SayNoAnswer(const std::string& name, const absl::Status& why) {
  constexpr int64_t kEverySeconds = 10;
  static std::atomic<int64_t> said = 0;
  const int64_t now = absl::ToInt64Seconds(MonotonicNow());
  int64_t last = said.load();
  if (last != 0 && now - last < kEverySeconds) return;
  if (!said.compare_exchange_strong(last, now)) return;
  std::fprintf(stderr, "%s: the head does not answer, waiting: %s\n",
               name.c_str(), std::string(why.message()).c_str());
}

absl::StatusOr<Result> FitOnCluster(const FitRequest& given) {
  FitRequest request = given;
  const std::string name =
      given.run_config.name.empty() ? "training" : given.run_config.name;
  request.run_config.storage_path = AbsolutePath(given.run_config.storage_path);
  OwnCluster own;
  COHORT_RETURN_IF_ERROR(own.Start());
  const bool is_own = client::HasOwnCluster();
  if (is_own && request.run_config.storage_path.empty()) {
    // What it stores otherwise goes with it.
    request.run_config.storage_path = client::PrivateCluster::ResultsHere();
  }
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Cluster> cluster,
      Cluster::Connect({.on_retry = [name = name](const absl::Status& why) {
        SayNoAnswer(name, why);
      }}));
  COHORT_ASSIGN_OR_RETURN(const JobSpec spec, SpecOf(request, *cluster));
  COHORT_ASSIGN_OR_RETURN(const Started run, JoinOrSubmit(*cluster, spec));
  // No node can be added to a cluster of this program.
  FitReport report(*cluster, run.job, name, /*may_grow=*/!is_own);
  report.OnMetrics(request.on_metrics);
  report.Begin(run.is_joined);
  report.Follow();
  COHORT_ASSIGN_OR_RETURN(const Job ended, cluster->Wait(run.job));
  return report.End(ended, spec.run_config.storage_path);
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : absolute.string();
}

absl::StatusOr<Result> FitLoop(const FitRequest& request) {
  ServeRanks();
  const bool is_here =
      client::IsRank() || request.scaling_config.num_workers == 0;
  return is_here ? RunInThisProcess(request) : FitOnCluster(request);
}

}  // namespace cohort::train
