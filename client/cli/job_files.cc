#include "client/cli/job_files.h"

#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "client/cli/command.h"
#include "client/message_text.h"
#include "common/printable_text.h"
#include "common/size_text.h"

namespace cohort::cli {
namespace {

// A question for each node: of a large job that is too much for a hint.
constexpr int kRanksAskedMax = 64;
constexpr size_t kNamedMax = 3;

}  // namespace

void SayWhatIsLeft(const Cluster& cluster, const Job& job) {
  const absl::StatusOr<JobId> id = JobId::FromBytes(job.job_id());
  if (!id.ok() || job.attempt() == 0 || job.num_workers() > kRanksAskedMax) {
    return;
  }
  const absl::StatusOr<JobFiles> files = cluster.Files(*id, absl::Seconds(1));
  if (!files.ok()) return;
  std::vector<std::string> names;
  std::vector<std::string> not_kept;
  int64_t bytes = 0;
  for (const JobFile& each : files->files) {
    if (!absl::StartsWith(each.file.path(), "work-")) continue;
    if (absl::EndsWith(each.file.path(), ".not-kept.txt")) {
      not_kept.push_back(each.file.path());
      continue;
    }
    names.push_back(each.file.path());
    bytes += each.file.size_bytes();
  }
  if (!not_kept.empty()) {
    Say(absl::StrCat(
        "it left more than is kept: ", absl::StrJoin(not_kept, ", "),
        " says what is gone, why and what to do"));
  }
  if (names.empty()) return;
  const size_t count = names.size();
  names.resize(std::min(count, kNamedMax));
  Say(absl::StrCat("it left ", count, count == 1 ? " file" : " files", " (",
                   SizeToText(bytes), ") in its working directory: ",
                   absl::StrJoin(names, ", "), count > kNamedMax ? ", ..." : "",
                   "; `cohort jobs get-files ", id->ToText(),
                   " DIR` fetches them"));
}

void SayWhatGoes(const Cluster& cluster, const Job& job) {
  const absl::StatusOr<JobId> id = JobId::FromBytes(job.job_id());
  if (!id.ok() || job.attempt() == 0) return;
  const absl::StatusOr<JobFiles> files = cluster.Files(*id, absl::Seconds(1));
  if (!files.ok() || files->files.empty()) return;
  int64_t bytes = 0;
  for (const JobFile& each : files->files) bytes += each.file.size_bytes();
  const size_t count = files->files.size();
  Say(absl::StrCat(count, count == 1 ? " file (" : " files (",
                   SizeToText(bytes),
                   ") in COHORT_STORAGE_DIR went with this run's own "
                   "cluster: --storage-path DIR keeps them"));
}

}  // namespace cohort::cli
