#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "worker/keeper/child.h"
#include "worker/keeper/files.h"
#include "worker/keeper/keeper.h"
#include "worker/keeper/spec.h"

// cohort-keeper DIR: docs/design/0002-keeper.md.  cohort-keeper --check:
// whether this program can run at all; the daemon asks before it takes new work
// again.
namespace {

using cohort::keeper::UniqueFd;

constexpr int kExitUsage = 2;
constexpr int kExitFailure = 125;
// The worker daemon hands these over.
constexpr int kLockFd = 3;
constexpr int kListenerFd = 4;

int Fail(int code, const std::string& error) {
  std::fprintf(stderr, "cohort-keeper: %s\n", error.c_str());
  return code;
}

// The descriptor `fd` is open on the file `path`.
bool IsOpenOn(int fd, const std::string& path) {
  struct stat open_file {};
  struct stat file {};
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &file) == 0 &&
         open_file.st_dev == file.st_dev && open_file.st_ino == file.st_ino;
}

bool IsListening(int fd) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 &&
         listening == 1;
}

int Run(const std::string& dir) {
  using namespace cohort::keeper;  // NOLINT(google-build-using-namespace): main
  if (!IsOpenOn(kLockFd, dir + "/lock") || !IsListening(kListenerFd) ||
      flock(kLockFd, LOCK_EX | LOCK_NB) != 0) {
    return Fail(kExitUsage,
                "it is started by cohort-worker, which hands it the lock of " +
                    dir + " as descriptor 3 and a listening socket as 4");
  }
  syscall(SYS_close_range, kListenerFd + 1, ~0u, 0);
  fcntl(kLockFd, F_SETFD, FD_CLOEXEC);
  fcntl(kListenerFd, F_SETFD, FD_CLOEXEC);
  fcntl(kListenerFd, F_SETFL, O_NONBLOCK);
  if (access((dir + "/keeper").c_str(), F_OK) == 0) {
    return Fail(kExitUsage, dir + " has had its keeper; an attempt runs once");
  }
  int error_number = 0;
  const std::optional<std::string> bytes =
      ReadWhole(dir + "/spec", kSpecBytesMax, &error_number);
  if (!bytes) {
    return Fail(kExitUsage, ErrnoText("read", dir + "/spec", error_number));
  }
  std::string error;
  std::optional<KeeperSpec> spec = ParseSpec(*bytes, &error);
  if (!spec) return Fail(kExitUsage, dir + "/spec: " + error);
  Keeper keeper(
      {dir, *std::move(spec), UniqueFd(kLockFd), UniqueFd(kListenerFd)});
  error = keeper.Prepare();
  if (!error.empty()) return Fail(kExitFailure, error);
  keeper.Run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--check") == 0) return 0;
  if (argc != 2 || argv[1][0] != '/') {
    return Fail(kExitUsage, "usage: cohort-keeper /ABSOLUTE/ATTEMPT/DIRECTORY");
  }
  prctl(PR_SET_NAME, "cohort-keeper");
  cohort::keeper::RaiseOwnFileLimit();
  return Run(argv[1]);
}
