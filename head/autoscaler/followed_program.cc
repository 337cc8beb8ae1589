#include "head/autoscaler/followed_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/child_program.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::head {
namespace {

constexpr int kStopLookMs = 100;
constexpr size_t kPieceBytes = 4'096;
// After so many lines it is not read for as long as nobody looks for `stop`.
constexpr int kLinesAtOnce = 50;
// What is still read of one that has ended, even if another process writes
// there.
constexpr int kPiecesAfterEnd = 16;
constexpr int kNoSuchCommand = 2;
constexpr int kNotRun = 127;

// What a program writes, line by line.
class Lines {
 public:
  // `on_line` has each whole one that has something; true: there may be more.
  template <typename F>
  bool Read(int fd, F on_line) {
    char piece[kPieceBytes];
    const ssize_t got = read(fd, piece, sizeof(piece));
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    for (const char each : absl::string_view(piece, static_cast<size_t>(got))) {
      if (each != '\n') {
        if (line_.size() < kFollowedLineBytesMax) line_.push_back(each);
        continue;
      }
      absl::StripAsciiWhitespace(&line_);
      if (!line_.empty()) on_line(std::move(line_));
      line_.clear();
    }
    return true;
  }

 private:
  std::string line_;
};

struct Pipe {
  UniqueFd out;
  UniqueFd in;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// In the child, after fork: only async-signal-safe calls.  posix_spawn knows no
// way to let it end with its parent.
[[noreturn]] void Become(const std::vector<char*>& argv,
                         const std::vector<char*>& variables, int input,
                         int output, int errors, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotRun);  // died before prctl
  for (int signal = 1; signal < NSIG; ++signal) {
    (void)::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  closefrom(STDERR_FILENO + 1);
  execve(argv[0], argv.data(), variables.data());
  _exit(kNotRun);
}

absl::Status StatusOfEnd(int status, const std::string& last_words) {
  const std::string words =
      last_words.empty() ? "" : absl::StrCat(": ", Shown(last_words));
  if (WIFSIGNALED(status)) {
    return absl::AbortedError(
        absl::StrCat("ended by signal ", WTERMSIG(status), words));
  }
  const int code = WEXITSTATUS(status);
  if (code == 0) return absl::OkStatus();
  const std::string text = absl::StrCat("exit status ", code, words);
  return code == kNoSuchCommand ? absl::UnimplementedError(text)
                                : absl::AbortedError(text);
}

}  // namespace

absl::Status FollowProgram(const std::vector<std::string>& command,
                           const std::vector<std::string>& environment,
                           const std::function<void(std::string line)>& on_line,
                           const std::atomic<bool>& stop) {
  if (access(command.front().c_str(), X_OK) != 0) {
    return ErrnoStatus(errno, absl::StrCat("run ", command.front()));
  }
  COHORT_ASSIGN_OR_RETURN(Pipe input, MakePipe());
  COHORT_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  COHORT_ASSIGN_OR_RETURN(Pipe errors, MakePipe());
  const std::vector<char*> argv = ArgumentVector(command);
  const std::vector<char*> variables = ArgumentVector(environment);
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "fork");
  if (pid == 0) {
    Become(argv, variables, input.out.get(), output.in.get(), errors.in.get(),
           self);
  }
  output.in.Reset();
  errors.in.Reset();
  fcntl(output.out.get(), F_SETFL, O_NONBLOCK);
  fcntl(errors.out.get(), F_SETFL, O_NONBLOCK);
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  Lines events;
  Lines complaints;
  std::string last_words;
  int lines = 0;
  int pieces_left = kPiecesAfterEnd;
  siginfo_t ended = {};
  while (!stop) {
    ended.si_pid = 0;
    // Not reaped yet: its group is still its own.
    waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT);
    const bool rests = lines >= kLinesAtOnce && ended.si_pid == 0;
    if (rests) lines = 0;
    const auto heard = [rests](const UniqueFd& fd) {
      return pollfd{
          .fd = rests ? -1 : fd.get(), .events = POLLIN, .revents = 0};
    };
    pollfd fds[] = {heard(output.out),
                    heard(errors.out),
                    {.fd = process.get(), .events = POLLIN, .revents = 0}};
    // Of one that has ended, what is there is still read.
    poll(fds, ended.si_pid == 0 ? 3 : 2, ended.si_pid == 0 ? kStopLookMs : 0);
    const bool wrote = (fds[0].revents | fds[1].revents) & POLLIN;
    if (fds[0].revents != 0 &&
        !events.Read(output.out.get(), [&](std::string line) {
          ++lines;
          on_line(std::move(line));
        })) {
      output.out.Reset();
    }
    if (fds[1].revents != 0 &&
        !complaints.Read(errors.out.get(), [&last_words](std::string line) {
          last_words = Cut(line, 512);
        })) {
      errors.out.Reset();
    }
    if (ended.si_pid != 0 && (!wrote || --pieces_left == 0)) break;
  }
  kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (ended.si_pid == 0) return absl::CancelledError("the head ends");
  return StatusOfEnd(status, last_words);
}

}  // namespace cohort::head
