#include "trainer/local_session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/checkpoint.h"
#include "trainer/durable_file.h"

namespace cohort::trainer {
namespace {

constexpr char kJob[] = "local";
constexpr int kAttemptsMax = 1'000'000;

// Claims the next free attempt: mkdir is the one answer that two processes
// cannot both get.
absl::StatusOr<std::string> ClaimRoot(const std::string& job_path,
                                      int& attempt) {
  for (attempt = 1; attempt < kAttemptsMax; ++attempt) {
    const std::string root = absl::StrCat(job_path, "/attempt-", attempt, ".1");
    if (mkdir(root.c_str(), 0755) == 0) return root;
    if (errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("make directory ", root));
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      job_path, " holds ", kAttemptsMax, " attempts; remove old ones"));
}

absl::StatusOr<CheckpointRecord> RecordOf(const std::string& directory) {
  const absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(directory);
  if (absl::IsNotFound(checkpoint.status())) {
    return absl::InvalidArgumentError(checkpoint.status().message());
  }
  COHORT_RETURN_IF_ERROR(checkpoint.status());
  return CheckpointRecord{directory, checkpoint->manifest.step,
                          checkpoint->manifest.epoch};
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalSession>> LocalSession::Create(
    const LocalSessionOptions& options) {
  RunPlace place;
  place.job_id = kJob;
  if (!options.restore.empty()) {
    COHORT_ASSIGN_OR_RETURN(place.restore, RecordOf(options.restore));
  }
  std::error_code error;
  const std::filesystem::path storage =
      std::filesystem::absolute(options.storage_path, error);
  const std::string job_path = (storage / kJob).string();
  COHORT_RETURN_IF_ERROR(MakeDurableDirectories(job_path));
  COHORT_ASSIGN_OR_RETURN(place.checkpoint_root,
                          ClaimRoot(job_path, place.attempt));
  return std::unique_ptr<LocalSession>(new LocalSession(std::move(place)));
}

LocalSession::~LocalSession() {
  // Only empty directories go.
  if (rmdir(place_.checkpoint_root.c_str()) != 0) return;
  rmdir(std::filesystem::path(place_.checkpoint_root).parent_path().c_str());
}

absl::Status LocalSession::Report(absl::string_view metrics) {
  if (metrics.size() > static_cast<size_t>(kMetricsBytesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics of ", metrics.size(), " bytes; at most ",
                     kMetricsBytesMax, " are reported"));
  }
  metrics_.assign(metrics.data(), metrics.size());
  return absl::OkStatus();
}

absl::Status LocalSession::CommitCheckpoint(absl::string_view path,
                                            int64_t step,
                                            std::optional<double> score) {
  if (!absl::StartsWith(path, place_.checkpoint_root + "/")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is not below this attempt's ", place_.checkpoint_root));
  }
  committed_ = CheckpointRecord{std::string(path), step, place_.epoch, score};
  return absl::OkStatus();
}

}  // namespace cohort::trainer
