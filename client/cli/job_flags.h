#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "client/job.h"

namespace cohort::cli {

// The flags of `cohort submit` that say what the job is.
struct JobFlags {
  // Those whose text is the field: they need no reading.
  JobSpec spec;

  // The others as typed; empty where they were not given.
  std::string num_workers;
  std::string nnodes;
  std::string nproc_per_node;
  std::string cpus;
  std::string gpus;
  bool use_gpu = false;
  std::string memory;
  std::string resources;
  std::string strategy;
  std::string max_failures;
  std::string restart;
  std::string storage_path;
  std::string working_directory;
  std::string num_to_keep;
  std::vector<std::string> environment;
  std::vector<std::string> secret_env;
  std::vector<std::string> secret_file;
  std::string time_limit;
  std::string grace;
  std::string retry_delay;
  std::string begin;
  std::vector<std::string> after;
  std::vector<std::string> labels;
  std::string priority;
  std::vector<std::string> selectors;
  std::vector<std::string> tolerations;
  std::string accelerator;
  std::string same;
  std::string prefer_same;
};

// What one --after says: JOB, JOB:ok or JOB:any.
struct AfterFlag {
  std::string job;  // as FindJob finds it
  DependencyKind kind = DependencyKind::kOk;
};
// InvalidArgument, with the column and what was expected there.
absl::StatusOr<AfterFlag> ParseAfter(const std::string& text);

// The job that they and `command` mean, but for the jobs of --after, which only
// the head can find.  InvalidArgument, naming the flag and
// the fix, when one cannot be.
absl::StatusOr<JobSpec> ToJobSpec(const JobFlags& flags,
                                  std::vector<std::string> command);

// What `--label K=V`, given again and again, means.  InvalidArgument.
absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& labels);

}  // namespace cohort::cli
