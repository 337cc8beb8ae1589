#include "worker/stack_reader.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "common/child_program.h"
#include "common/file.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "worker/keeper/proc.h"
#include "worker/process_mark.h"
#include "worker/process_tree.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kToolTimeout = absl::Seconds(20);
constexpr size_t kToolBytesMax = 512 << 10;
constexpr absl::Duration kKillTimeout = absl::Seconds(1);
constexpr int kLookEvery_ms = 5;

std::string PathVariable() {
  const char* const path = std::getenv("PATH");
  return path == nullptr ? "/usr/bin:/bin" : path;
}

std::string ProgramOf(pid_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"),
                                       error)
      .filename();
}

// The job may bring the tool, which needs nothing of the daemon's: its secrets
// stay here, and eu-stack asks no server for debug information.
std::vector<std::string> ToolEnvironment() {
  return {absl::StrCat("PATH=", PathVariable()), "LC_ALL=C.UTF-8"};
}

// Absolute directories of that PATH, not the daemon's own, which no job has.
std::string AbsoluteOf(absl::string_view path) {
  std::vector<absl::string_view> kept;
  for (const absl::string_view each : absl::StrSplit(path, ':')) {
    if (absl::StartsWith(each, "/")) kept.push_back(each);
  }
  return absl::StrJoin(kept, ":");
}

// In a process group of its own, with both outputs to `output`.
absl::StatusOr<pid_t> StartTool(const StackTool& tool, int output) {
  ChildProgram child = {.command = {tool.program},
                        .environment = ToolEnvironment(),
                        .files = {ChildProgram::kNothing, output, output}};
  child.command.insert(child.command.end(), tool.arguments.begin(),
                       tool.arguments.end());
  return StartChild(child);
}

}  // namespace

std::vector<StackTool> StackToolsFor(pid_t pid) {
  const std::string path = PathVariable();
  std::vector<StackTool> tools = {{.title = "native stacks (eu-stack)",
                                   .program = FindProgram(path, "eu-stack"),
                                   .arguments = {"-p", absl::StrCat(pid)},
                                   .package = "the package elfutils",
                                   .partial_status = 1}};
  if (!absl::StartsWith(ProgramOf(pid), "python")) return tools;
  // It runs with the daemon's rights: what another user brings does not.
  std::string spy;
  if (IsOfThisUser(pid)) {
    spy = FindProgram(
        AbsoluteOf(keeper::ValueOf(keeper::ReadEnvironment(pid), "PATH")),
        "py-spy");
  }
  if (spy.empty()) spy = FindProgram(path, "py-spy");
  tools.push_back({.title = "Python stacks (py-spy)",
                   .program = std::move(spy),
                   .arguments = {"dump", "--pid", absl::StrCat(pid)},
                   .package = "`pip install py-spy`"});
  return tools;
}

// One tool, from its start to its end.
class StackReader::Run {
 public:
  static absl::StatusOr<std::unique_ptr<Run>> Start(const StackTool& tool,
                                                    pid_t of) {
    UniqueFd output(memfd_create("cohort-stacks", MFD_CLOEXEC));
    if (!output) return ErrnoStatus(errno, "make a file in memory");
    COHORT_ASSIGN_OR_RETURN(const pid_t pid, OwnChildren::Start([&] {
                              return StartTool(tool, output.get());
                            }));
    return std::unique_ptr<Run>(
        new Run(pid, of, tool.partial_status, std::move(output)));
  }
  ~Run() {
    if (!ended_) Kill();
    OwnChildren::Forget(pid_);
  }

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Kills it when it takes too long or writes too much.
  bool HasEnded() {
    if (ended_) return true;
    ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    if (ended_) return true;
    if (MonotonicNow() > deadline_) {
      end_ = absl::StrCat("ended after ", absl::FormatDuration(kToolTimeout));
    } else if (Size() > kToolBytesMax) {
      end_ = absl::StrCat("ended after ", kToolBytesMax, " bytes");
    } else {
      return false;
    }
    Kill();
    return true;
  }
  bool worked() const {
    return end_.empty() && WIFEXITED(status_) &&
           (WEXITSTATUS(status_) == 0 ||
            WEXITSTATUS(status_) == partial_status_);
  }

  // What it wrote, and how it ended unless by itself.
  std::string Output() const {
    std::string text(std::min(Size(), kToolBytesMax), '\0');
    const ssize_t got = pread(output_.get(), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (!end_.empty()) absl::StrAppend(&text, "(", end_, ")\n");
    return text;
  }

 private:
  Run(pid_t pid, pid_t of, int partial_status, UniqueFd output)
      : pid_(pid),
        of_(of),
        partial_status_(partial_status),
        was_stopped_(IsStopped(of)),
        output_(std::move(output)),
        deadline_(MonotonicNow() + kToolTimeout) {}

  static bool IsStopped(pid_t pid) {
    const auto stat = keeper::ReadProcessStat(pid);
    return stat.has_value() && stat->state == 'T';
  }

  size_t Size() const {
    struct stat status = {};
    return fstat(output_.get(), &status) == 0
               ? static_cast<size_t>(status.st_size)
               : 0;
  }

  // One that does not die within kKillTimeout is left to ReapOrphans.
  void Kill() {
    kill(-pid_, SIGKILL);
    const absl::Duration until = MonotonicNow() + kKillTimeout;
    do {
      ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
      if (!ended_) poll(nullptr, 0, kLookEvery_ms);
    } while (!ended_ && MonotonicNow() < until);
    ended_ = true;
    // A tool that is killed while it stops the process may leave it so.
    if (!was_stopped_) kill(of_, SIGCONT);
  }

  const pid_t pid_;
  const pid_t of_;
  const int partial_status_;
  const bool was_stopped_;
  const UniqueFd output_;
  const absl::Duration deadline_;
  bool ended_ = false;
  int status_ = 0;
  std::string end_;
};

StackReader::StackReader(v1::SendLog order, FindTools find)
    : order_(std::move(order)), find_(std::move(find)) {}

StackReader::~StackReader() = default;

v1::LogPiece StackReader::Read(int64_t offset, size_t bytes_max) {
  v1::LogPiece piece;
  piece.set_offset(offset);
  absl::Status status =
      std::exchange(begun_, true) ? absl::OkStatus() : Begin();
  bool ended = false;
  if (status.ok()) status = GoOn(ended);
  if (!status.ok()) {
    piece.set_data(std::string(status.message()).substr(0, bytes_max));
    piece.set_end(true);
    return piece;
  }
  piece.set_known(true);
  if (!ended) return piece;
  const size_t at =
      std::min(static_cast<size_t>(std::max<int64_t>(offset, 0)), text_.size());
  piece.set_data(text_.substr(at, bytes_max));
  piece.set_end(at + piece.data().size() == text_.size());
  return piece;
}

absl::Status StackReader::CheckProcess() const {
  const auto pid = static_cast<pid_t>(order_.stack_of_pid());
  const std::string attempt =
      keeper::ValueOf(keeper::ReadEnvironment(pid), keeper::kAttemptVariable);
  if (attempt == absl::BytesToHexString(order_.attempt_id()) &&
      IsOfOurUsers(pid)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "process ", pid, " is not this rank's any more (try again)"));
}

absl::Status StackReader::Begin() {
  COHORT_RETURN_IF_ERROR(CheckProcess());
  for (StackTool& tool : find_(static_cast<pid_t>(order_.stack_of_pid()))) {
    tools_.push_back(std::move(tool));
  }
  if (std::any_of(tools_.begin(), tools_.end(), [](const StackTool& each) {
        return !each.program.empty();
      })) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("nothing there shows stacks: eu-stack is missing (install ",
                   tools_.front().package, " on that node)"));
}

absl::Status StackReader::GoOn(bool& ended) {
  while (!tools_.empty()) {
    const StackTool& tool = tools_.front();
    if (tool.program.empty()) {
      Add(tool,
          absl::StrCat("not shown: install it there (", tool.package, ")\n"));
      tools_.pop_front();
      continue;
    }
    if (run_ == nullptr) {
      // The pid may be another's by now.
      COHORT_RETURN_IF_ERROR(CheckProcess());
      COHORT_ASSIGN_OR_RETURN(
          run_, Run::Start(tool, static_cast<pid_t>(order_.stack_of_pid())));
    }
    if (!run_->HasEnded()) return absl::OkStatus();
    any_worked_ |= run_->worked();
    Add(tool, run_->Output());
    run_.reset();
    tools_.pop_front();
  }
  ended = true;
  if (any_worked_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the stacks cannot be read: ", absl::StripSuffix(text_, "\n")));
}

void StackReader::Add(const StackTool& tool, const std::string& what) {
  absl::StrAppend(&text_, text_.empty() ? "" : "\n", tool.title, ":\n", what);
}

}  // namespace cohort::worker
