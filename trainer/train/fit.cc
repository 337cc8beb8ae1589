#include "trainer/train/fit.h"

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
#include "client/package.h"
#include "client/private_cluster.h"
#include "client/process_environment.h"
#include "client/wire.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/train/fit_report.h"
#include "trainer/train/rank_loop.h"

namespace cohort::train {
namespace {

namespace fs = std::filesystem;

// By which a driver finds the run that another one, of the same program and
// with the same arguments, has begun.
constexpr char kFitLabel[] = "fit";
constexpr size_t kFitLabelDigits = 16;

// What Init does in a rank.
[[maybe_unused]] const bool ranks_are_served =
    SetRankProgram({.is_meant = &IsRankOfFit, .run = &ServeRank});

std::string PathHere(const char* name) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  return error ? "" : (here / name).string();
}

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

absl::StatusOr<Digest> UploadThisProgram(Cluster& cluster,
                                         const std::string& path) {
  PackageSource source;
  source.paths = {path};
  COHORT_ASSIGN_OR_RETURN(const PackageFiles files, ListPackageFiles(source));
  COHORT_ASSIGN_OR_RETURN(const Package package, Package::Pack(files));
  COHORT_RETURN_IF_ERROR(cluster.UploadPackage(package));
  return package.hash();
}

absl::StatusOr<JobSpec> SpecOf(const FitRequest& request, Cluster& cluster) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot tell which program this is: /proc/self/exe: ",
                     error.message()));
  }
  JobSpec spec;
  spec.command = {absl::StrCat("./", program.filename().string())};
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> arguments,
                          ThisCommandLine());
  spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
  spec.scaling_config = request.scaling_config;
  spec.run_config = request.run_config;
  COHORT_ASSIGN_OR_RETURN(spec.environment[kFitVariable],
                          EncodeForRanks(request));
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec));
  COHORT_ASSIGN_OR_RETURN(spec.package,
                          UploadThisProgram(cluster, program.string()));
  Sha256 hash;
  hash.Update(client::ToWire(spec).SerializeAsString());
  spec.labels[kFitLabel] = hash.Finish().ToHex().substr(0, kFitLabelDigits);
  return spec;
}

// The run of that name and spec that has not ended.
absl::StatusOr<std::optional<JobId>> FindRunning(const Cluster& cluster,
                                                 const JobSpec& spec) {
  if (spec.run_config.name.empty()) return std::nullopt;
  ListOptions options;
  options.name = spec.run_config.name;
  options.labels = spec.labels;
  COHORT_ASSIGN_OR_RETURN(const JobList list, cluster.List(options));
  for (const Job& job : list.jobs) {
    if (HasEnded(job.state())) continue;
    COHORT_ASSIGN_OR_RETURN(const JobId id, JobId::FromBytes(job.job_id()));
    return id;
  }
  return std::nullopt;
}

absl::StatusOr<Result> FitOnCluster(const FitRequest& given) {
  FitRequest request = given;
  request.run_config.storage_path = AbsolutePath(given.run_config.storage_path);
  std::unique_ptr<client::PrivateCluster> own;
  if (!client::HasCluster("")) {
    COHORT_ASSIGN_OR_RETURN(
        own, client::PrivateCluster::Start(PathHere("cohort-results")));
  }
  if (client::HasOwnCluster() && request.run_config.storage_path.empty()) {
    // What it stores otherwise goes with it.
    request.run_config.storage_path = PathHere("cohort-results");
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Cluster::Connect());
  COHORT_ASSIGN_OR_RETURN(const JobSpec spec, SpecOf(request, *cluster));
  COHORT_ASSIGN_OR_RETURN(std::optional<JobId> job,
                          FindRunning(*cluster, spec));
  const bool is_joined = job.has_value();
  if (!is_joined) {
    COHORT_ASSIGN_OR_RETURN(job, cluster->Submit(spec));
  }
  FitReport report(*cluster, *job, spec.run_config.name);
  report.Begin(is_joined);
  report.Follow();
  COHORT_ASSIGN_OR_RETURN(const Job ended, cluster->Wait(*job));
  return report.End(ended, spec.run_config.storage_path);
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  return path.empty() || error ? path : absolute.string();
}

void ServeRanks() {
  if (IsRankOfFit()) ServeRank();
}

absl::StatusOr<Result> FitLoop(const FitRequest& request) {
  ServeRanks();
  const bool is_here =
      client::IsRank() || request.scaling_config.num_workers == 0;
  return is_here ? RunInThisProcess(request) : FitOnCluster(request);
}

}  // namespace cohort::train
