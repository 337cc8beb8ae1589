#include "client/cli/supervised.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/exit_code.h"
#include "common/real_clock.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::cli {
namespace {

// Back at once after a kill, not in a hot loop when it cannot start.
constexpr BackoffOptions kRestart = {
    .initial = absl::Milliseconds(100), .max = absl::Seconds(5), .jitter = 0};
// A process that lived this long was well.
constexpr absl::Duration kWell = absl::Seconds(10);
constexpr int64_t kLastWordsBytes = 2048;

// In the child, after fork: only async-signal-safe calls.
[[noreturn]] void Become(const std::vector<char*>& argv, int log,
                         pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExitFailure);  // died before prctl
  // As the daemons have it: a signal that comes before their main waits there.
  sigset_t waits;
  sigemptyset(&waits);
  sigaddset(&waits, SIGTERM);
  sigaddset(&waits, SIGINT);
  sigprocmask(SIG_SETMASK, &waits, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(argv[0], argv.data());
  const char* why = std::strerror(errno);
  const char* const program = argv[0];
  for (const char* text : {program, ": ", why, "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(kExitFailure);
}

}  // namespace

Supervised::Supervised(std::string name, std::vector<std::string> command,
                       std::string log_file, Random& random)
    : name_(std::move(name)),
      command_(std::move(command)),
      log_file_(std::move(log_file)),
      backoff_(kRestart, random) {}

absl::Status Supervised::Start() {
  const UniqueFd log(
      open(log_file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return ErrnoStatus(errno, absl::StrCat("open ", log_file_));
  log_begin_ = lseek(log.get(), 0, SEEK_END);
  if (log_begin_ < 0)
    return ErrnoStatus(errno, absl::StrCat("seek ", log_file_));
  std::vector<char*> argv;
  for (std::string& argument : command_) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, absl::StrCat("start ", name_));
  if (pid == 0) Become(argv, log.get(), parent);
  pid_ = pid;
  started_ = MonotonicNow();
  return absl::OkStatus();
}

void Supervised::Ended(int wait_status, absl::Duration now) {
  pid_ = 0;
  exit_code_ = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status)
                                      : 128 + WTERMSIG(wait_status);
  if (now - started_ >= kWell) backoff_.Reset();
  due_ = now + backoff_.Next();
}

void Supervised::Signal(int signal) const {
  if (pid_ != 0) kill(pid_, signal);
}

void Supervised::ReplaceArgument(const std::string& from,
                                 const std::string& to) {
  for (std::string& argument : command_) {
    if (argument == from) argument = to;
  }
}

void Supervised::SetFlag(const std::string& flag, const std::string& value) {
  const auto given = std::find(command_.begin(), command_.end(), flag);
  if (given == command_.end()) {
    command_.insert(command_.end(), {flag, value});
  } else {
    *std::next(given) = value;
  }
}

void Supervised::DropFlag(const std::string& flag) {
  const auto given = std::find(command_.begin(), command_.end(), flag);
  if (given != command_.end()) command_.erase(given, std::next(given, 2));
}

std::string Supervised::LastWords() const {
  const UniqueFd log(open(log_file_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!log) return "";
  const int64_t end = lseek(log.get(), 0, SEEK_END);
  const int64_t begin = std::max(log_begin_, end - kLastWordsBytes);
  std::string words(std::max<int64_t>(0, end - begin), '\0');
  const ssize_t read = pread(log.get(), words.data(), words.size(), begin);
  words.resize(std::max<ssize_t>(0, read));
  return words;
}

}  // namespace cohort::cli
