#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "client/job.h"

namespace cohort::cli {

// The flags of `cohort submit` that say what the job is, as typed; empty where
// they were not given.
struct JobFlags {
  std::string name;
  std::string num_workers;
  std::string cpus;
  std::string gpus;
  bool use_gpu = false;
  std::string memory;
  std::string resources;
  std::string strategy;
  std::string max_failures;
  std::string storage_path;
  std::string num_to_keep;
  std::vector<std::string> environment;
};

// The job that they and `command` mean.  InvalidArgument, naming the flag and
// the fix, when one cannot be.
absl::StatusOr<JobSpec> ToJobSpec(const JobFlags& flags,
                                  std::vector<std::string> command);

}  // namespace cohort::cli
