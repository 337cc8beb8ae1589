#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/resources.h"
#include "common/taint.h"
#include "head/store/records.h"

// What a job's spec says.  All from ResourcesPerWorker on REQUIRE one
// that ValidateJobSpec accepted.
namespace cohort::head {

// Of jobs that name none.
inline constexpr char kDefaultNamespace[] = "default";

// Says what was left out: PACK, 10 s of grace, 1 s before a retry, and of each
// dependency that it has to succeed.  Fields that a newer client set, and that
// nothing here knows, go.
void FillJobSpec(JobSpec& spec);

// InvalidArgument, saying what is wrong and what would be right, when `spec` or
// the namespace can never be accepted, whatever nodes join.
absl::Status ValidateJobSpec(const JobSpec& spec,
                             const std::string& name_space);

// Of a job that the head takes at `now`: makes start_in_us a time.
// InvalidArgument when it starts farther ahead than CheckStartsIn allows.
absl::Status SetStartTime(absl::Time now, JobSpec& spec);

// What it takes in memory, about: each argument and variable has more than its
// bytes.
int64_t SpecBytes(const JobSpec& spec);

ResourceSet ResourcesPerWorker(const JobSpec& spec);
// Expressions over node labels; all must hold.
std::vector<std::string> SelectorsOf(const JobSpec& spec);
std::vector<Toleration> TolerationsOf(const JobSpec& spec);
// Not before; long ago: at once.
absl::Time StartTimeOf(const JobSpec& spec);
// Which job has to end first.
JobId JobOf(const Dependency& dependency);
// Of running, summed over attempts; InfiniteDuration: without end.
absl::Duration TimeLimitOf(const JobSpec& spec);
// Between SIGTERM and SIGKILL when the job is stopped.
absl::Duration GraceOf(const JobSpec& spec);
// Before the attempt after a charged failure.
absl::Duration RetryDelayOf(const JobSpec& spec);

}  // namespace cohort::head
