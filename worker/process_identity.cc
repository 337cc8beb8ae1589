#include "worker/process_identity.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {

absl::StatusOr<ProcessIdentity> IdentityOf(int64_t pid) {
  const std::optional<keeper::ProcessStat> stat =
      keeper::ReadProcessStat(static_cast<pid_t>(pid));
  if (!stat) return absl::NotFoundError(absl::StrCat("no process ", pid));
  return ProcessIdentity{pid, stat->start_time, keeper::ReadBootId()};
}

absl::StatusOr<int> OpenPidfd(const ProcessIdentity& process) {
  keeper::UniqueFd pidfd(
      static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  const std::string what = absl::StrCat("open process ", process.pid);
  if (!pidfd) {
    return errno == ESRCH ? absl::NotFoundError(what)
                          : ErrnoStatus(errno, what);
  }
  // Only now does the pid stand for one process: look whether it is the one.
  const absl::StatusOr<ProcessIdentity> now = IdentityOf(process.pid);
  if (!now.ok() || *now != process) {
    return absl::NotFoundError(absl::StrCat(what, ": it has ended"));
  }
  return pidfd.Release();
}

}  // namespace cohort::worker
