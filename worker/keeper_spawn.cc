#include "worker/keeper_spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

using keeper::UniqueFd;

// Where keeper/main.cc expects them.
constexpr int kLockFd = 3;
constexpr int kListenerFd = 4;

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

// A copy of `fd` whose number is none that the keeper gets its own at: dup2 in
// the child would close it otherwise.
UniqueFd AboveKeepersOwn(int fd) {
  return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, kListenerFd + 1));
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Starts `program` `arguments` with these files and this environment, in a
// session of its own and with signals as new.
absl::StatusOr<KeeperProcess> Spawn(const std::string& program,
                                    std::vector<std::string> arguments,
                                    std::vector<std::string> environment,
                                    posix_spawn_file_actions_t& files) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  absl::Cleanup destroy = [&attributes] {
    posix_spawnattr_destroy(&attributes);
  };
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
                         POSIX_SPAWN_SETSIGMASK));
  arguments.insert(arguments.begin(), program);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> variables = Pointers(environment);
  KeeperProcess process;
  const int error = posix_spawn(&process.pid, program.c_str(), &files,
                                &attributes, argv.data(), variables.data());
  if (error == EAGAIN || error == ENOMEM) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", program, ": ", std::strerror(error)));
  }
  if (error != 0) {
    return absl::InternalError(
        absl::StrCat("cannot start ", program, ": ", std::strerror(error)));
  }
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
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  absl::Cleanup destroy = [&files] {
    posix_spawn_file_actions_destroy(&files);
  };
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, log.get(), 1);
  posix_spawn_file_actions_adddup2(&files, log.get(), 2);
  posix_spawn_file_actions_adddup2(&files, lock.get(), kLockFd);
  posix_spawn_file_actions_adddup2(&files, control.get(), kListenerFd);
  posix_spawn_file_actions_addchdir_np(&files, start.dir.c_str());
  return Spawn(
      start.program,
      {start.dir, absl::StrCat(absl::ToInt64Milliseconds(start.idle_timeout)),
       start.cgroup_parent},
      {absl::StrCat(keeper::kPlaceVariable, "=", start.place)}, files);
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
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  absl::Cleanup destroy = [&files] {
    posix_spawn_file_actions_destroy(&files);
  };
  posix_spawn_file_actions_addchdir_np(&files, "/");
  for (const int fd : {0, 1, 2}) {
    posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  }
  COHORT_ASSIGN_OR_RETURN(KeeperProcess process,
                          Spawn(program, {"--check"}, {}, files));
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
