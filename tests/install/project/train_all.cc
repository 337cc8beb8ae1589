// A program of somebody else's: run by hand it submits itself to a cluster,
// follows its ranks' output, waits for them and reads the metrics that they
// reported; started by a worker it is one of the ranks.

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cohort/client/cluster.h"
#include "cohort/client/package.h"
#include "cohort/trainer/worker_session.h"

namespace {

absl::Status RunRank() {
  absl::StatusOr<cohort::trainer::WorkerSessionOptions> options =
      cohort::trainer::WorkerSessionFromEnvironment();
  if (!options.ok()) return options.status();
  absl::StatusOr<std::unique_ptr<cohort::trainer::Session>> session =
      cohort::trainer::WorkerSession::Join(*std::move(options));
  if (!session.ok()) return session.status();
  std::cout << "rank " << (*session)->rank() << " of " << (*session)->world()
            << std::endl;
  if ((*session)->is_lead()) {
    const absl::Status reported = (*session)->Report(R"({"loss": 0.25})");
    if (!reported.ok()) return reported;
  }
  return (*session)->Finish();
}

absl::Status SubmitAndWait(const std::string& program) {
  // COHORT_ADDRESS and COHORT_CREDENTIAL_FILE, or the cluster of `cohort up`.
  absl::StatusOr<std::unique_ptr<cohort::Cluster>> cluster =
      cohort::Cluster::Connect();
  if (!cluster.ok()) return cluster.status();
  const absl::StatusOr<cohort::PackageFiles> files =
      cohort::ListPackageFiles({.paths = {program}});
  if (!files.ok()) return files.status();
  absl::StatusOr<cohort::Package> package = cohort::Package::Pack(*files);
  if (!package.ok()) return package.status();
  const absl::Status uploaded = (*cluster)->UploadPackage(*package);
  if (!uploaded.ok()) return uploaded;

  const absl::StatusOr<cohort::JobId> job =
      (*cluster)->Submit({.command = {"./train_all"},
                          .scaling_config = {.num_workers = 2},
                          .run_config = {.name = "train-all"},
                          .package = package->hash()});
  if (!job.ok()) return job.status();
  const absl::Status followed =
      (*cluster)->Logs(*job, {.standard_error = true, .follow = true},
                       [](const cohort::LogChunk& chunk) {
                         std::cout << chunk.data << std::flush;
                         return absl::OkStatus();
                       });
  if (!followed.ok()) return followed;

  const absl::StatusOr<cohort::Job> ended = (*cluster)->Wait(*job);
  if (!ended.ok()) return ended.status();
  std::cout << "metrics " << ended->metrics_json() << "\n";
  return ended->state() == cohort::v1::JOB_STATE_SUCCEEDED
             ? absl::OkStatus()
             : absl::AbortedError(ended->reason());
}

}  // namespace

int main(int, char** argv) {
  const absl::Status status =
      cohort::trainer::IsRank() ? RunRank() : SubmitAndWait(argv[0]);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
