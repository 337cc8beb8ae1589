#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/resources.h"
#include "common/taint.h"

// The bounds of what a job may say.  The client checks them before it sends
// anything, the head because it trusts no client.  All give InvalidArgument
// that names the thing and what is possible.
namespace cohort {

// What makes repeats of a request one: 1 to 128 bytes of printable UTF-8.
absl::Status CheckRequestId(const std::string& id);

// One line of UTF-8, or empty: names go into messages, tables and JSON.
absl::Status CheckJobName(const std::string& name);

// Absolute, without control characters, or empty for the worker's own.
absl::Status CheckStoragePath(const std::string& path);

// Where ranks run in a directory of their workers: absolute, as a storage path,
// and without a package; or empty.
absl::Status CheckWorkingDirectory(const std::string& path, bool has_package);

// No variable that the worker sets for each rank (RankEnvironment's contract),
// and what execve takes: Linux refuses one argument or variable of 128 KiB
// (MAX_ARG_STRLEN).  `secrets` are variables, too, none of them in
// `environment`.  All together are at most 1 MiB, because they go with every
// message about the job and into its row.
absl::Status CheckCommand(
    const std::vector<std::string>& command,
    const std::map<std::string, std::string>& environment,
    const std::map<std::string, std::string>& secrets = {});

absl::Status CheckNumWorkers(int num_workers);

// ResourceSet::Validate, and GPUs that can be given: a share of one, or whole
// ones.
absl::Status CheckResourcesPerWorker(const ResourceSet& resources);

// "default" and the like: 1 to 64 bytes (IsNameText).
absl::Status CheckNamespace(const std::string& name_space);

// At most 64; keys of 1 to 64 bytes (IsNameText), printable values of up to
// 256.
absl::Status CheckLabels(const std::map<std::string, std::string>& labels);

// -1000 to 1000.
absl::Status CheckPriority(int priority);

// What ArraySpec reads; empty: no array.
absl::Status CheckArray(const std::string& array);

// At most 100, none of them twice.
absl::Status CheckAfter(const std::vector<JobId>& jobs);

// -1: no limit.
absl::Status CheckMaxFailures(int max_failures);

// 1 ms to 365 days, or infinite.
absl::Status CheckTimeLimit(absl::Duration time_limit);
// Until a job starts: at most 365 days; less than 0: at once.
absl::Status CheckStartsIn(absl::Duration left);
// 0 to 1 h.
absl::Status CheckGrace(absl::Duration grace);
// 0 to 1 h.
absl::Status CheckRetryDelay(absl::Duration retry_delay);

// That they ask for something and parse (label_selector.h); errors name the
// text and the column.
absl::Status CheckSelectors(const std::vector<std::string>& selectors);
absl::Status CheckTolerations(const std::vector<Toleration>& tolerations);

// Empty: any.
absl::Status CheckAcceleratorType(const std::string& type);

// "host", or the key of a label of nodes; empty: no wish.
absl::Status CheckTopologyLevel(const std::string& level);

}  // namespace cohort
