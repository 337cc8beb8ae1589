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

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {
namespace {

using keeper::UniqueFd;

// Where keeper/main.cc expects them.
constexpr int kLockFd = 3;
constexpr int kListenerFd = 4;

struct ControlAddress {
  UniqueFd dir;  // has to stay open while the address is used
  sockaddr_un address{};
};

// A socket's path may have 107 bytes, a directory's may have more: so it is
// named through an open descriptor.
absl::StatusOr<ControlAddress> AddressIn(const std::string& runtime_dir) {
  ControlAddress control;
  control.dir =
      UniqueFd(open(runtime_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!control.dir) {
    return ErrnoStatus(errno, absl::StrCat("open ", runtime_dir));
  }
  const std::string path =
      absl::StrCat("/proc/self/fd/", control.dir.get(), "/control");
  control.address.sun_family = AF_UNIX;
  std::memcpy(control.address.sun_path, path.c_str(), path.size() + 1);
  return control;
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

// Starts `program` `argument` with these files, in a session of its own,
// without environment and with signals as new.
absl::StatusOr<KeeperProcess> Spawn(const std::string& program,
                                    const std::string& argument,
                                    posix_spawn_file_actions_t& files) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  absl::Cleanup destroy = [&attributes] {
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addchdir_np(&files, "/");
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
  std::string words[] = {program, argument};
  char* argv[] = {words[0].data(), words[1].data(), nullptr};
  char* environment[] = {nullptr};
  KeeperProcess process;
  const int error = posix_spawn(&process.pid, program.c_str(), &files,
                                &attributes, argv, environment);
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

absl::StatusOr<UniqueFd> ListenForKeeper(const std::string& runtime_dir) {
  const std::string error = keeper::MakeDirectories(runtime_dir);
  if (!error.empty()) return absl::UnavailableError(error);
  COHORT_ASSIGN_OR_RETURN(const ControlAddress control, AddressIn(runtime_dir));
  COHORT_ASSIGN_OR_RETURN(UniqueFd listener, MakeSocket());
  unlink(control.address.sun_path);
  if (bind(listener.get(), Generic(control.address), sizeof(control.address)) !=
          0 ||
      listen(listener.get(), 16) != 0) {
    return ErrnoStatus(errno,
                       absl::StrCat("listen on ", runtime_dir, "/control"));
  }
  return listener;
}

absl::StatusOr<UniqueFd> ConnectToKeeper(const std::string& runtime_dir) {
  COHORT_ASSIGN_OR_RETURN(const ControlAddress control, AddressIn(runtime_dir));
  COHORT_ASSIGN_OR_RETURN(UniqueFd connection, MakeSocket());
  if (connect(connection.get(), Generic(control.address),
              sizeof(control.address)) == 0) {
    return connection;
  }
  const std::string what = absl::StrCat("connect to ", runtime_dir, "/control");
  return errno == ECONNREFUSED ? absl::NotFoundError(what)
                               : ErrnoStatus(errno, what);
}

absl::StatusOr<KeeperProcess> SpawnKeeper(const std::string& program,
                                          const std::string& dir,
                                          const NewAttemptDir& made,
                                          const UniqueFd& listener) {
  const UniqueFd lock = AboveKeepersOwn(made.lock.get());
  const UniqueFd control = AboveKeepersOwn(listener.get());
  const UniqueFd log = AboveKeepersOwn(made.log.get());
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
  return Spawn(program, dir, files);
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
  for (const int fd : {0, 1, 2}) {
    posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  }
  COHORT_ASSIGN_OR_RETURN(KeeperProcess process,
                          Spawn(program, "--check", files));
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
