#include "client/cli/private_cluster.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "client/cli/local_cluster.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::cli {
namespace {

// The first byte of what the process tells: an address or an error follows.
constexpr char kServes = '+';
constexpr char kFailed = '-';

absl::StatusOr<std::string> MakeTemporary(const std::string& parent) {
  std::string path = parent + "/cohort-run-XXXXXX";
  if (mkdtemp(path.data()) != nullptr) return path;
  return ErrnoStatus(errno, absl::StrCat("make the directory ", path));
}

std::string TemporaryParent() {
  std::error_code error;
  const auto path = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : path.string();
}

// What is made for it: logs and packages may be large, and go where TMPDIR
// says; what the head syncs is small, and waits for no disk.
struct Directories {
  std::string state;
  std::string head;

  absl::Status Remove() const {
    const absl::Status removed = RemoveTree(head);
    COHORT_RETURN_IF_ERROR(RemoveTree(state));
    return removed;
  }
};

absl::StatusOr<Directories> MakeThem() {
  Directories made;
  COHORT_ASSIGN_OR_RETURN(made.state, MakeTemporary(TemporaryParent()));
  absl::StatusOr<std::string> head = MakeTemporary("/dev/shm");
  if (!head.ok()) {
    rmdir(made.state.c_str());
    return head.status();
  }
  made.head = *std::move(head);
  return made;
}

void Tell(int fd, char kind, absl::string_view text) {
  const std::string all = absl::StrCat(std::string(1, kind), text);
  // Whoever is gone has no cluster to wait for: the death signal came, too.
  const ssize_t ignored = write(fd, all.data(), all.size());
  static_cast<void>(ignored);
}

std::string ReadToEnd(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

// The process that runs it.
int Serve(const Directories& directories, UniqueFd told) {
  UpOptions options;
  options.workers = 1;
  options.port = 0;
  options.state_dir = directories.state;
  options.head_state_dir = directories.head;
  options.is_volatile = true;
  options.is_temporary = true;
  LocalCluster cluster(options);
  const absl::Status status = cluster.Start();
  if (!status.ok()) {
    Tell(told.get(), kFailed, status.message());
  } else {
    Tell(told.get(), kServes, cluster.address());
    told.Reset();
    cluster.Serve();
  }
  cluster.End();
  const absl::Status removed = directories.Remove();
  if (!removed.ok()) {
    std::fprintf(stderr, "cohort: %s\n",
                 std::string(removed.message()).c_str());
  }
  return status.ok() && removed.ok() ? kExitOk : kExitFailure;
}

// Ctrl-C is for who runs the command: this process hears of it from there.
void BecomeServer(pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) kill(getpid(), SIGTERM);  // it died before prctl
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateCluster>> PrivateCluster::Start() {
  COHORT_ASSIGN_OR_RETURN(const Directories directories, MakeThem());
  // Blocked over the fork, so that nothing ends the child before it reads them.
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t parent = getpid();
  int fds[2];
  const pid_t child = pipe2(fds, O_CLOEXEC) == 0 ? fork() : -1;
  const int error = errno;
  if (child == 0) {
    close(fds[0]);
    BecomeServer(parent);
    _exit(Serve(directories, UniqueFd(fds[1])));
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) {
    COHORT_RETURN_IF_ERROR(directories.Remove());
    return ErrnoStatus(error, "start a process");
  }
  close(fds[1]);
  const UniqueFd tells(fds[0]);
  auto cluster = absl::WrapUnique(
      new PrivateCluster(child, directories.state, directories.head));
  const std::string told = ReadToEnd(tells.get());
  if (told.empty() || told.front() != kServes) {
    return absl::UnavailableError(
        absl::StrCat("the cluster of this run did not start: ",
                     told.empty() ? "its process has ended" : told.substr(1)));
  }
  cluster->address_ = told.substr(1);
  cluster->watch_ =
      std::thread([watched = cluster.get()] { watched->Watch(); });
  return cluster;
}

void PrivateCluster::Watch() const {
  siginfo_t ended;
  while (waitid(P_PID, static_cast<id_t>(process_), &ended,
                WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  if (ending_) return;
  std::fprintf(stderr,
               "cohort: the cluster of this run was killed; remove what it "
               "left: %s %s\n",
               directory_.c_str(), head_directory_.c_str());
  _exit(kExitFailure);
}

PrivateCluster::~PrivateCluster() {
  ending_ = true;
  kill(process_, SIGTERM);
  if (watch_.joinable()) watch_.join();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace cohort::cli
