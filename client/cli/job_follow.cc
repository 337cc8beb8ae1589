#include "client/cli/job_follow.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/explain_text.h"
#include "client/cli/log_printer.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

// Whether both are one terminal, pipe or file.
bool IsOutputShared() {
  struct stat out = {};
  struct stat err = {};
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

}  // namespace

absl::Status FollowOutput(
    const Cluster& cluster, const JobId& id, int num_workers,
    const std::function<absl::StatusOr<bool>(const LogChunk&)>& shows) {
  LogPrinter printer(
      num_workers > 1 ? LogPrinter::Form::kPrefixed : LogPrinter::Form::kRaw,
      [](LogStream stream, absl::string_view text) {
        if (stream == v1::LOG_STREAM_STDOUT) return PrintRaw(text);
        std::fwrite(text.data(), 1, text.size(), stderr);
        return absl::OkStatus();
      });
  LogOptions options;
  options.standard_error = true;
  options.follow = true;
  const absl::Status read =
      cluster.Logs(id, options, [&](const LogChunk& chunk) -> absl::Status {
        bool shown = true;
        if (shows != nullptr) {
          COHORT_ASSIGN_OR_RETURN(shown, shows(chunk));
        }
        return shown ? printer.Add(chunk) : absl::OkStatus();
      });
  COHORT_RETURN_IF_ERROR(printer.Finish());
  if (IsOutputShared() ? printer.IsMidLine()
                       : printer.IsMidLine(v1::LOG_STREAM_STDERR)) {
    std::fputs("\n", stderr);
  }
  return read;
}

// Brief: it is beside the point.
void SayWhenItNeverFits(const Cluster& cluster, const JobId& id) {
  const absl::StatusOr<Job> job = cluster.Get(id, absl::Seconds(1));
  if (!job.ok() || job->state() != v1::JOB_STATE_PENDING ||
      !job->never_fits()) {
    return;
  }
  const absl::StatusOr<Explanation> why =
      cluster.Explain(id, {.deadline = absl::Seconds(1)});
  const std::string text = why.ok()
                               ? NeverFitsText(*why)
                               : absl::StrCat(OneLine(job->reason()), "\n");
  std::fputs(absl::StrCat("cohort: it does not fit this cluster, and waits "
                          "until other nodes join: ",
                          text, "cohort: `cohort explain ", id.ToText(),
                          "` says what would let it start\n")
                 .c_str(),
             stderr);
}

}  // namespace cohort::cli
