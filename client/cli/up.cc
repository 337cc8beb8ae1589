#include "client/cli/up.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "client/cli/detached.h"
#include "client/connection.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::cli {
namespace {

// Beyond which `down` does not wait.
constexpr absl::Duration kDownTimeout = absl::Seconds(32);

void Announce(const LocalCluster& cluster, const UpOptions& options) {
  const std::string& address = cluster.address();
  const std::string& directory = cluster.directory();
  std::printf(
      "cohort: head at %s, %d worker%s, state in %s\n"
      "export COHORT_ADDRESS=%s\n"
      "export COHORT_CREDENTIAL_FILE=%s/credential\n",
      address.c_str(), options.workers, options.workers == 1 ? "" : "s",
      directory.c_str(), address.c_str(), directory.c_str());
  std::fflush(stdout);
}

absl::Status Begin(LocalCluster& cluster, const UpOptions& options) {
  COHORT_RETURN_IF_ERROR(cluster.Start());
  if (cluster.is_stopping()) return absl::OkStatus();
  // Before the ready file: who waits for that finds everything said.
  Announce(cluster, options);
  if (options.ready_file.empty()) return absl::OkStatus();
  return WriteFileAtomically(options.ready_file,
                             absl::StrCat(cluster.address(), "\n"), 0644);
}

// `on_ready` is called once all of it serves.
int RunHere(const UpOptions& options, const std::function<void()>& on_ready) {
  LocalCluster cluster(options);
  const absl::Status status = Begin(cluster, options);
  if (!status.ok()) {
    std::fprintf(stderr, "cohort up: %s\n",
                 MessageLine(status.message()).c_str());
    cluster.End();
    return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure;
  }
  if (!cluster.is_stopping()) {
    on_ready();
    cluster.Serve();
    std::printf(
        "cohort: ending ranks, workers and head (at once when told again)\n");
    std::fflush(stdout);
  }
  cluster.End();
  return kExitOk;
}

}  // namespace

int RunUp(const UpOptions& options) {
  if (!options.detach) return RunHere(options, [] {});
  return RunDetached(options.state_dir + "/up.log",
                     [&options](const std::function<void()>& ready) {
                       return RunHere(options, ready);
                     });
}

absl::Status RunDown(const std::string& state_dir) {
  COHORT_ASSIGN_OR_RETURN(const bool runs, client::UpRunsIn(state_dir));
  if (!runs) {
    return absl::NotFoundError(
        absl::StrCat("no `cohort up` runs in ", state_dir,
                     ": name its directory with --state-dir"));
  }
  COHORT_ASSIGN_OR_RETURN(const std::string holder,
                          ReadFile(state_dir + "/LOCK", 4096));
  const std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(holder, absl::MaxSplits(' ', 1));
  pid_t pid = 0;
  if (!absl::SimpleAtoi(words.first, &pid) || words.second != "cohort up\n") {
    return absl::FailedPreconditionError(
        absl::StrCat(state_dir, " is used by another program: ", holder));
  }
  // A process, whatever becomes of its number.
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // In a container, or where others write, the number may be another's.
  const std::string name =
      ReadFile(absl::StrCat("/proc/", pid, "/comm"), 64).value_or("");
  if (name.empty()) return absl::OkStatus();  // it has just ended
  if (name != "cohort\n") {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid, ", which ", state_dir,
                     "/LOCK names, is not `cohort up` but ", name));
  }
  if (!process ||
      syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0) != 0) {
    return ErrnoStatus(errno, absl::StrCat("end process ", pid));
  }
  pollfd ended = {process.get(), POLLIN, 0};
  const auto timeout =
      static_cast<int>(absl::ToInt64Milliseconds(kDownTimeout));
  if (poll(&ended, 1, timeout) > 0) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("process ", pid, " has not ended after ",
                   absl::FormatDuration(kDownTimeout), "; it goes on ending"));
}

}  // namespace cohort::cli
