#include "head/autoscaler/bounded_program.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/child_program.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::head {
namespace {

constexpr int kLookEveryMs = 50;
constexpr size_t kLastLineBytesMax = 512;

size_t SizeOf(const UniqueFd& file) {
  struct stat status = {};
  return fstat(file.get(), &status) == 0 ? static_cast<size_t>(status.st_size)
                                         : 0;
}

std::string ContentOf(const UniqueFd& file, size_t bytes_max) {
  std::string text(std::min(SizeOf(file), bytes_max), '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

std::string LastLine(const UniqueFd& errors) {
  std::string text = ContentOf(errors, 64 << 10);
  absl::StripTrailingAsciiWhitespace(&text);
  const size_t newline = text.rfind('\n');
  if (newline != std::string::npos) text.erase(0, newline + 1);
  return Shown(text.substr(0, kLastLineBytesMax));
}

std::string WithWords(const std::string& what, const UniqueFd& errors) {
  const std::string words = LastLine(errors);
  return words.empty() ? what : absl::StrCat(what, ": ", words);
}

}  // namespace

absl::StatusOr<std::string> RunProgram(
    const std::vector<std::string>& command,
    const std::vector<std::string>& environment, const ProgramBounds& bounds,
    const std::atomic<bool>& stop) {
  const UniqueFd output(memfd_create("cohort-output", MFD_CLOEXEC));
  const UniqueFd errors(memfd_create("cohort-errors", MFD_CLOEXEC));
  if (!output || !errors) return ErrnoStatus(errno, "make a file in memory");
  COHORT_ASSIGN_OR_RETURN(const pid_t pid,
                          StartChild({.command = command,
                                      .environment = environment,
                                      .files = {ChildProgram::kNothing,
                                                output.get(), errors.get()}}));
  // Readable once it has ended.
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const absl::Duration until = MonotonicNow() + bounds.timeout;
  absl::Status cut;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (stop) {
      cut = absl::CancelledError("the head ends");
    } else if (MonotonicNow() > until) {
      cut = absl::DeadlineExceededError(WithWords(
          absl::StrCat("no answer in ", absl::FormatDuration(bounds.timeout)),
          errors));
    } else if (SizeOf(output) > bounds.output_bytes_max ||
               SizeOf(errors) > bounds.output_bytes_max) {
      cut = absl::ResourceExhaustedError(absl::StrCat(
          "it writes more than ", bounds.output_bytes_max, " bytes"));
    }
    if (!cut.ok()) {
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      return cut;
    }
    pollfd ended = {.fd = process.get(), .events = POLLIN, .revents = 0};
    poll(&ended, 1, kLookEveryMs);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return ContentOf(output, bounds.output_bytes_max);
  }
  return absl::AbortedError(WithWords(
      WIFEXITED(status) ? absl::StrCat("exit status ", WEXITSTATUS(status))
                        : absl::StrCat("ended by signal ", WTERMSIG(status)),
      errors));
}

}  // namespace cohort::head
