#include "worker/results_sweep.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/log.h"
#include "rpc/methods.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kAskDeadline = absl::Seconds(10);

}  // namespace

ResultsSweep::ResultsSweep(const NodeDirectories& directories,
                           const WorkDirectories& work, rpc::Channel& head,
                           std::function<std::optional<v1::Stamp>()> followed,
                           Executor& strand, Executor& bulk)
    : directories_(directories),
      work_(work),
      head_(head),
      followed_(std::move(followed)),
      strand_(strand),
      bulk_(bulk) {}

void ResultsSweep::Start() {
  strand_.PostAfter(kPeriod, [this] { Look(); });
}

void ResultsSweep::Look() {
  const std::optional<v1::Stamp> head = followed_();
  if (!head.has_value()) return Start();
  bulk_.Post([this, head = *head] {
    std::vector<JobId> jobs = Candidates(head.generation());
    strand_.Post([this, jobs = std::move(jobs), head]() mutable {
      AskAbout(std::move(jobs), head);
    });
  });
}

std::vector<JobId> ResultsSweep::Candidates(const std::string& generation) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator each(directories_.Results(), error);
       !error && each != std::filesystem::directory_iterator();
       each.increment(error)) {
    names.push_back(each->path().filename());
  }
  std::sort(names.begin(), names.end());
  std::vector<JobId> jobs;
  auto at = std::upper_bound(names.begin(), names.end(), last_);
  for (; at != names.end() && jobs.size() < kJobsPerRound; ++at) {
    last_ = *at;
    const absl::StatusOr<JobId> job = JobId::FromText(*at);
    if (job.ok() && work_.MayBeForgotten(*job, generation)) {
      jobs.push_back(*job);
    }
  }
  if (at == names.end()) last_.clear();
  return jobs;
}

void ResultsSweep::AskAbout(std::vector<JobId> jobs, const v1::Stamp& head) {
  if (jobs.empty()) return Start();
  const JobId job = jobs.back();
  jobs.pop_back();
  v1::GetJobRequest request;
  request.set_job_id(std::string(job.bytes()));
  rpc::CallWithStamp<v1::GetJobRequest, v1::GetJobResponse>(
      head_, rpc::kGetJob, request, {.deadline = kAskDeadline}, strand_,
      [this, job, head, jobs = std::move(jobs)](
          rpc::TypedResult<v1::GetJobResponse> result) mutable {
        // A later life may have been restored from a backup.
        if (!result.stamp.has_value() || result.stamp->term != head.term() ||
            result.stamp->cluster_id != head.cluster_id()) {
          return Start();
        }
        if (!absl::IsNotFound(result.response.status())) {
          return AskAbout(std::move(jobs), head);
        }
        bulk_.Post([this, job, head, jobs = std::move(jobs)]() mutable {
          // Nothing of it may have begun meanwhile.
          if (work_.MayBeForgotten(job, head.generation())) {
            const absl::Status removed = RemoveTree(
                absl::StrCat(directories_.Results(), "/", job.ToText()));
            COHORT_LOG(kInfo, "results_removed", {"job", job.ToText()},
                       {"status", removed.message()});
          }
          strand_.Post([this, jobs = std::move(jobs), head]() mutable {
            AskAbout(std::move(jobs), head);
          });
        });
      });
}

}  // namespace cohort::worker
