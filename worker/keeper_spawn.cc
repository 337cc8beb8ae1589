#include "worker/keeper_spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/child_program.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

using keeper::UniqueFd;

// 0, 1, 2, the lock and the listener.
constexpr int kKeepersOwn = 5;

std::string ControlPath(const std::string& place) {
  return absl::StrCat(place, "/control");
}

// A runtime directory is short enough for a socket's path (NodeDirectories).
sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

absl::StatusOr<UniqueFd> MakeSocket() {
  UniqueFd socket_fd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd) return ErrnoStatus(errno, "make a unix socket");
  return socket_fd;
}

const sockaddr* Generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// A copy of `fd` whose number differs from those that the keeper gets its own
// at: dup2 in the child would close it otherwise.
UniqueFd AboveKeepersOwn(int fd) {
  return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, kKeepersOwn));
}

// In a session of its own.
absl::StatusOr<KeeperProcess> Spawn(ChildProgram child) {
  child.in_new_session = true;
  const absl::StatusOr<pid_t> started = StartChild(child);
  if (!started.ok()) {
    const std::string why = absl::StrCat("cannot ", started.status().message());
    const bool for_now = absl::IsUnavailable(started.status()) ||
                         absl::IsResourceExhausted(started.status());
    return for_now ? absl::ResourceExhaustedError(why)
                   : absl::InternalError(why);
  }
  KeeperProcess process;
  process.pid = *started;
  process.pidfd =
      UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (process.pidfd) return process;
  const int open_error = errno;
  kill(process.pid, SIGKILL);
  waitpid(process.pid, nullptr, 0);
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot watch the keeper: ", std::strerror(open_error)));
}

bool EndsWithin(const KeeperProcess& process, absl::Duration timeout) {
  pollfd ended = {process.pidfd.get(), POLLIN, 0};
  return poll(&ended, 1,
              static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 1;
}

}  // namespace

absl::StatusOr<UniqueFd> ListenForKeeper(const std::string& place) {
  const std::string error = keeper::MakeDirectories(place);
  if (!error.empty()) return absl::UnavailableError(error);
  COHORT_ASSIGN_OR_RETURN(UniqueFd listener, MakeSocket());
  const std::string path = ControlPath(place);
  const sockaddr_un address = AddressOf(path);
  unlink(path.c_str());
  if (bind(listener.get(), Generic(address), sizeof(address)) != 0 ||
      listen(listener.get(), 16) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen on ", path));
  }
  return listener;
}

absl::StatusOr<UniqueFd> ConnectToKeeper(const std::string& place) {
  COHORT_ASSIGN_OR_RETURN(UniqueFd connection, MakeSocket());
  const std::string path = ControlPath(place);
  const sockaddr_un address = AddressOf(path);
  if (connect(connection.get(), Generic(address), sizeof(address)) == 0) {
    return connection;
  }
  const std::string what = absl::StrCat("connect to ", path);
  return errno == ECONNREFUSED ? absl::NotFoundError(what)
                               : ErrnoStatus(errno, what);
}

absl::StatusOr<KeeperProcess> SpawnKeeper(const KeeperStart& start,
                                          const LockedKeeperDir& locked,
                                          const UniqueFd& listener) {
  const UniqueFd lock = AboveKeepersOwn(locked.lock.get());
  const UniqueFd control = AboveKeepersOwn(listener.get());
  const UniqueFd log = AboveKeepersOwn(locked.log.get());
  return Spawn(
      {.command = {start.program, start.dir,
                   absl::StrCat(absl::ToInt64Milliseconds(start.idle_timeout)),
                   start.cgroup_parent},
       .environment = {absl::StrCat(keeper::kPlaceVariable, "=", start.place)},
       // As keeper/main.cc expects them.
       .files = {ChildProgram::kNothing, log.get(), log.get(), lock.get(),
                 control.get()},
       .directory = start.dir});
}

absl::Status CheckKeeper(const std::string& program, absl::Duration timeout,
                         KeeperProcess& left) {
  if (left.pid != 0) {
    if (!EndsWithin(left, absl::ZeroDuration())) {
      return absl::DeadlineExceededError(absl::StrCat(
          program, " --check does not even die: process ", left.pid));
    }
    waitpid(left.pid, nullptr, 0);
    left = KeeperProcess();
  }
  COHORT_ASSIGN_OR_RETURN(
      KeeperProcess process,
      Spawn({.command = {program, "--check"}, .directory = "/"}));
  if (!EndsWithin(process, timeout)) {
    // With what it started: it leads a session of its own.
    kill(-process.pid, SIGKILL);
    if (EndsWithin(process, timeout)) {
      waitpid(process.pid, nullptr, 0);
    } else {
      left = std::move(process);
    }
    return absl::DeadlineExceededError(
        absl::StrCat(program, " --check does not end"));
  }
  int status = 0;
  waitpid(process.pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      program, " --check ended with ",
      WIFEXITED(status) ? absl::StrCat("status ", WEXITSTATUS(status))
                        : absl::StrCat("signal ", WTERMSIG(status))));
}

}  // namespace cohort::worker
