#include "client/cli/job_wait.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/real_clock.h"
#include "rpc/enum_text.h"

namespace cohort::cli {
namespace {

// How often a line that lives is drawn again.
constexpr absl::Duration kPeriod = absl::Milliseconds(500);

absl::Status TimedOut(const JobId& id, absl::Duration timeout,
                      absl::string_view state) {
  // A timeout of zero asks for the present state.
  const std::string after =
      timeout > absl::ZeroDuration()
          ? absl::StrCat(" after ", DurationToText(absl::Ceil(
                                        timeout, absl::Milliseconds(1))))
          : "";
  return absl::DeadlineExceededError(
      absl::StrCat("job ", id.ToText(), " is ", state, after, "; it goes on"));
}

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Prepared for the signal handler, which may only call write(2).
std::array<char, 160> interrupt_text;

void OnInterrupt(int signal) {
  const ssize_t ignored =
      write(STDERR_FILENO, interrupt_text.data(),
            strnlen(interrupt_text.data(), interrupt_text.size()));
  static_cast<void>(ignored);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

absl::StatusOr<Job> WaitForJob(const Cluster& cluster, const JobId& id,
                               absl::Duration timeout, Progress& progress) {
  const MachineClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  const auto left = [&] { return deadline - clock.Monotonic(); };
  // Without any time it still looks once.
  const absl::Duration first_look = timeout > absl::ZeroDuration()
                                        ? std::min(kReadDeadline, timeout)
                                        : kReadDeadline;
  absl::StatusOr<Job> job = cluster.Get(id, first_look);
  if (!job.ok() && IsAway(job.status()) && left() <= absl::ZeroDuration()) {
    return TimedOut(id, timeout, "not known");
  }
  if (!job.ok()) return job;
  for (;;) {
    progress.Show(*job);
    if (HasEnded(job->state())) return job;
    if (left() <= absl::ZeroDuration()) {
      return TimedOut(id, timeout, EnumText(job->state()));
    }
    absl::StatusOr<Job> next = cluster.Wait(id, std::min(kPeriod, left()));
    // Not ended, or the head is away: then what it said last is shown.
    if (!next.ok() && IsAway(next.status())) {
      next = cluster.Get(id, std::min(absl::Seconds(1), left()));
      if (!next.ok() && IsAway(next.status())) continue;
    }
    if (!next.ok()) return next;
    job = std::move(next);
  }
}

int ExitCodeOf(const Job& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return kExitOk;
  if (job.state() == v1::JOB_STATE_STOPPED) return kExitStopped;
  if (!job.has_exit()) return kExitFailure;
  const int status = ShellStatus(job.exit());
  return status == 0 ? kExitFailure : status;
}

void SayOnInterrupt(const JobId& id) {
  const std::string text =
      absl::StrCat("\ncohort: the job goes on; stop it with `cohort jobs stop ",
                   id.ToText(), "`\n");
  interrupt_text.fill('\0');
  text.copy(interrupt_text.data(), interrupt_text.size() - 1);
  std::signal(SIGINT, &OnInterrupt);
}

}  // namespace cohort::cli
