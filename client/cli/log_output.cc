#include "client/cli/log_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/table.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// How often the head is asked how the job is.
constexpr absl::Duration kAskPeriod = absl::Milliseconds(500);
// How long the last lines of a failed attempt may take to come.
constexpr absl::Duration kLastLines = absl::Milliseconds(300);
constexpr size_t kColumnsUnknown = 80;

// Whether both are one terminal, pipe or file.
bool IsOnePlace() {
  struct stat out = {};
  struct stat err = {};
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

size_t TerminalColumns(int fd) {
  if (isatty(fd) == 0) return 0;
  const size_t columns = LineColumns(fd);
  return columns > 0 ? columns : kColumnsUnknown;
}

absl::Status WriteError(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  return absl::OkStatus();
}

LogLayout LayoutFor(const LogOutput::Options& options, int fd,
                    bool one_stream) {
  LogLayout layout = options.layout;
  layout.one_source = options.one_rank && one_stream;
  layout.columns = layout.json ? 0 : TerminalColumns(fd);
  return layout;
}

}  // namespace

LogOutput::LogOutput(Options options)
    : options_(options),
      one_place_(IsOnePlace()),
      out_(LayoutFor(options, STDOUT_FILENO,
                     (options.apart && !one_place_) ||
                         !(options.standard_output && options.standard_error)),
           [apart = options.apart](LogStream stream, absl::string_view text) {
             return apart && stream == v1::LOG_STREAM_STDERR ? WriteError(text)
                                                             : PrintRaw(text);
           }) {
  if (!options.apart || one_place_) return;
  err_.emplace(
      LayoutFor(options, STDERR_FILENO, /*one_stream=*/true),
      [](LogStream, absl::string_view text) { return WriteError(text); });
}

absl::Status LogOutput::Print(const Cluster& cluster, const JobId& id,
                              LogOptions options, JobNotice& notice) {
  options.standard_output = options_.standard_output;
  options.standard_error = options_.standard_error;
  if (options.follow) options.tick = kTick;
  absl::Duration ask_at = absl::ZeroDuration();
  // The notice of a failed attempt comes after its last lines and before the
  // first lines of the next attempt.
  std::string held;
  absl::Duration say_at = absl::ZeroDuration();
  int attempt = 0;
  std::set<std::string> gone;  // named in a message already
  const auto say_held = [&] { return Say(std::exchange(held, "")); };
  const auto show = [&](const LogChunk& chunk) -> absl::Status {
    const absl::Duration now = MachineClock().Monotonic();
    if (!held.empty() && (chunk.attempt > attempt || now >= say_at)) {
      COHORT_RETURN_IF_ERROR(say_held());
    }
    attempt = std::max(attempt, chunk.attempt);
    if (!chunk.gone_node.empty() && gone.insert(chunk.gone_node).second) {
      COHORT_RETURN_IF_ERROR(
          Say(absl::StrCat("node ", OneLine(chunk.gone_node),
                           " is gone: of each log there at most the last 1 MiB "
                           "is left")));
    }
    if (!chunk.data.empty()) {
      bool shown = true;
      if (options_.shows) {
        COHORT_ASSIGN_OR_RETURN(shown, options_.shows(chunk));
      }
      return shown ? PrinterOf(chunk.stream).Add(chunk, now) : absl::OkStatus();
    }
    COHORT_RETURN_IF_ERROR(out_.ShowDue(now));
    if (err_.has_value()) COHORT_RETURN_IF_ERROR(err_->ShowDue(now));
    if (options_.layout.json || now < ask_at) return absl::OkStatus();
    const absl::StatusOr<Job> job = cluster.Get(id, absl::Seconds(1));
    ask_at = MachineClock().Monotonic() + kAskPeriod;
    std::string text = job.ok() ? notice.Next(*job) : "";
    if (text.empty()) return absl::OkStatus();
    if (job->attempt() == 0) return Say(text);
    const bool waits = job->state() == v1::JOB_STATE_PENDING;
    attempt = std::max(attempt, job->attempt() - (waits ? 0 : 1));
    held = std::move(text);
    say_at = now + kLastLines;
    return absl::OkStatus();
  };
  COHORT_RETURN_IF_ERROR(cluster.Logs(id, options, show));
  return held.empty() ? absl::OkStatus() : say_held();
}

absl::Status LogOutput::Finish() {
  COHORT_RETURN_IF_ERROR(out_.Finish());
  return err_.has_value() ? err_->Finish() : absl::OkStatus();
}

absl::Status LogOutput::Say(const std::string& text) {
  COHORT_RETURN_IF_ERROR(BreakLine());
  return WriteError(absl::StrCat("cohort: ", text, "\n"));
}

absl::Status LogOutput::BreakLine() {
  if (err_.has_value()) return err_->BreakLine();
  return one_place_ ? out_.BreakLine() : absl::OkStatus();
}

LogPrinter& LogOutput::PrinterOf(LogStream stream) {
  return stream == v1::LOG_STREAM_STDERR && err_.has_value() ? *err_ : out_;
}

}  // namespace cohort::cli
