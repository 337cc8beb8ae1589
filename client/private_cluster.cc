#include "client/private_cluster.h"

#include <fcntl.h>
#include <spawn.h>
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

#include "client/connection.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::client {
namespace {

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
// says; what is synced is small, and waits for no disk.
struct Directories {
  std::string large;
  std::string small;

  absl::Status Remove() const {
    const absl::Status removed = RemoveTree(small);
    COHORT_RETURN_IF_ERROR(RemoveTree(large));
    return removed;
  }
};

absl::StatusOr<Directories> MakeThem() {
  Directories made;
  COHORT_ASSIGN_OR_RETURN(made.large, MakeTemporary(TemporaryParent()));
  absl::StatusOr<std::string> small = MakeTemporary("/dev/shm");
  if (!small.ok()) {
    rmdir(made.large.c_str());
    return small.status();
  }
  made.small = *std::move(small);
  return made;
}

absl::StatusOr<std::string> FindCommand() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = self.parent_path() / "cohort";
  if (!error && access(beside.c_str(), X_OK) == 0) return beside;
  const char* const path = std::getenv("PATH");
  std::string found = FindProgram(path == nullptr ? "" : path, "cohort");
  if (!found.empty()) return found;
  return absl::NotFoundError(
      "no cluster is named, and there is no `cohort` beside this program or on "
      "PATH to start one (set COHORT_ADDRESS, or put `cohort` on PATH)");
}

// Starts it as a group of its own: Ctrl-C is for who runs this program, and it
// hears of it from here.  What ends it is blocked until it reads that.
absl::StatusOr<pid_t> Spawn(const std::string& command,
                            const Directories& directories,
                            const std::string& results, int told) {
  const std::string parent = absl::StrCat(getpid());
  const char* const argv[] = {command.c_str(),
                              kPrivateCommand,
                              directories.large.c_str(),
                              directories.small.c_str(),
                              parent.c_str(),
                              results.empty() ? nullptr : results.c_str(),
                              nullptr};
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&blocked, signal);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, told, kPrivateToldFd);
  pid_t child = -1;
  const int error = posix_spawn(&child, command.c_str(), &files, &attributes,
                                const_cast<char* const*>(argv), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("run ", command));
  return child;
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

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateCluster>> PrivateCluster::Start(
    const std::string& results) {
  COHORT_ASSIGN_OR_RETURN(const std::string command, FindCommand());
  COHORT_ASSIGN_OR_RETURN(const Directories directories, MakeThem());
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    const int error = errno;
    COHORT_RETURN_IF_ERROR(directories.Remove());
    return ErrnoStatus(error, "make a pipe");
  }
  const UniqueFd tells(fds[0]);
  UniqueFd told(fds[1]);
  const absl::StatusOr<pid_t> child =
      Spawn(command, directories, results, told.get());
  if (!child.ok()) {
    COHORT_RETURN_IF_ERROR(directories.Remove());
    return child.status();
  }
  told.Reset();
  auto cluster = absl::WrapUnique(
      new PrivateCluster(*child, directories.large, directories.small));
  const std::string answer = ReadToEnd(tells.get());
  if (answer.empty() || answer.front() != kPrivateServes) {
    return absl::UnavailableError(absl::StrCat(
        "the cluster of this program did not start: ",
        answer.empty() ? "its process has ended" : answer.substr(1)));
  }
  cluster->address_ = answer.substr(1);
  SetOwnCluster(cluster->address_, cluster->CredentialFile());
  cluster->watch_ =
      std::thread([watched = cluster.get()] { watched->Watch(); });
  return cluster;
}

std::string PrivateCluster::ResultsHere() {
  std::error_code error;
  const auto here = std::filesystem::current_path(error);
  return error ? "" : (here / "cohort-results").string();
}

void PrivateCluster::Watch() const {
  siginfo_t ended;
  while (waitid(P_PID, static_cast<id_t>(process_), &ended,
                WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
  if (ending_) return;
  std::fprintf(stderr,
               "cohort: the cluster of this program was killed; remove what it "
               "left: %s %s\n",
               large_directory_.c_str(), small_directory_.c_str());
  _exit(kExitFailure);
}

PrivateCluster::~PrivateCluster() {
  ending_ = true;
  ClearOwnCluster();
  kill(process_, SIGTERM);
  if (watch_.joinable()) watch_.join();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace cohort::client
