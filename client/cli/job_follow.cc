#include "client/cli/job_follow.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/cli/explain_text.h"
#include "client/cli/job_notice.h"
#include "client/cli/log_output.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::cli {

absl::Status FollowOutput(
    const Cluster& cluster, const JobId& id, int num_workers,
    std::function<absl::StatusOr<bool>(const LogChunk&)> shows) {
  LogOutput output({.layout = {.ranks = num_workers > 1, .follows = true},
                    .one_rank = num_workers == 1,
                    .apart = true,
                    .shows = std::move(shows)});
  JobNotice notice;
  const absl::Status read = output.Print(cluster, id, {.follow = true}, notice);
  COHORT_RETURN_IF_ERROR(output.Finish());
  COHORT_RETURN_IF_ERROR(output.BreakLine());
  return read;
}

// Brief: it is beside the point.
std::optional<std::string> WhyItNeverFits(const Cluster& cluster,
                                          const JobId& id) {
  const absl::StatusOr<Job> job = cluster.Get(id, absl::Seconds(1));
  if (!job.ok() || job->state() != v1::JOB_STATE_PENDING ||
      !job->never_fits()) {
    return std::nullopt;
  }
  const absl::StatusOr<Explanation> why =
      cluster.Explain(id, {.deadline = absl::Seconds(1)});
  return why.ok() ? NeverFitsText(*why)
                  : absl::StrCat(OneLine(job->reason()), "\n");
}

void SayWhenItNeverFits(const Cluster& cluster, const JobId& id) {
  const std::optional<std::string> why = WhyItNeverFits(cluster, id);
  if (!why.has_value()) return;
  std::fputs(absl::StrCat("cohort: it does not fit this cluster, and waits "
                          "until other nodes join: ",
                          *why, "cohort: `cohort explain ", id.ToText(),
                          "` says what would let it start\n")
                 .c_str(),
             stderr);
}

void SayWhenResultsMayGo(const Cluster& cluster, const JobSpec& spec) {
  if (!spec.run_config.storage_path.empty()) return;
  const absl::StatusOr<Autoscaling> autoscaling =
      cluster.GetAutoscaling(absl::Seconds(1));
  if (!autoscaling.ok() || autoscaling->is_dry_run()) return;
  const auto& types = autoscaling->node_types();
  if (std::none_of(types.begin(), types.end(), [](const auto& status) {
        return status.type().max() > status.type().min();
      })) {
    return;
  }
  std::fputs(
      "cohort: this cluster ends nodes that are idle, and what the job wrote "
      "there goes with them\n"
      "cohort: --storage-path DIR keeps checkpoints and results in a directory "
      "that outlives nodes\n",
      stderr);
}

}  // namespace cohort::cli
