#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "worker/keeper/child.h"
#include "worker/keeper/files.h"
#include "worker/keeper/keeper.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/record.h"

// cohort-keeper DIR IDLE_TIMEOUT_MS CGROUP_PARENT (may be empty):
// docs/design/0002-keeper.md.  cohort-keeper --check: whether this program can
// run at all; the daemon asks before it takes new work again.
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

int Run(const std::string& dir, const char* idle_timeout_ms,
        const char* cgroup_parent) {
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
  // What marks its processes marks itself.
  const char* const place = std::getenv(kPlaceVariable);
  const std::optional<int64_t> idle_ms = ParseDecimal(idle_timeout_ms);
  if (place == nullptr || place[0] != '/' || idle_ms.value_or(-1) < 0) {
    return Fail(kExitUsage, std::string("no ") + kPlaceVariable +
                                " in its environment, or no idle timeout");
  }
  Keeper keeper({dir, place, cgroup_parent, *idle_ms, UniqueFd(kLockFd),
                 UniqueFd(kListenerFd)});
  const std::string error = keeper.Prepare();
  if (!error.empty()) return Fail(kExitFailure, error);
  keeper.Run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--check") == 0) return 0;
  if (argc != 4 || argv[1][0] != '/') {
    return Fail(kExitUsage,
                "usage: cohort-keeper /ABSOLUTE/DIRECTORY IDLE_TIMEOUT_MS "
                "CGROUP_PARENT");
  }
  prctl(PR_SET_NAME, "cohort-keeper");
  return Run(argv[1], argv[2], argv[3]);
}
