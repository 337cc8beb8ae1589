#include "client/cli/up.h"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "client/cli/detached.h"
#include "client/cli/supervised.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/local_files.h"
#include "common/printable_text.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "rpc/credential.h"

namespace cohort::cli {
namespace {

// What SIGTERM to a worker may take (its ranks have 10 s), and what is left of
// the promised 15 s for the head.
constexpr absl::Duration kWorkersGrace = absl::Milliseconds(13'000);
constexpr absl::Duration kHeadGrace = absl::Milliseconds(1'500);
// A daemon that has not come up by then will not; first starts take well under
// a second.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);

std::string ProgramDirectory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error)
      .parent_path()
      .string();
}

// The cluster of one machine.
class LocalCluster {
 public:
  explicit LocalCluster(const UpOptions& options)
      : options_(options), directory_(options.state_dir) {}

  // `on_ready` is called once all of it serves.
  int Run(const std::function<void()>& on_ready) {
    const absl::Status status = Start();
    if (!status.ok()) {
      std::fprintf(stderr, "cohort up: %s\n",
                   MessageLine(status.message()).c_str());
      End();
      return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure;
    }
    if (!stopping_) {
      on_ready();
      while (!stopping_) Step(absl::InfiniteDuration());
      std::printf("cohort: ending ranks, workers and head\n");
      std::fflush(stdout);
    }
    End();
    return kExitOk;
  }

 private:
  absl::Status Start() {
    COHORT_RETURN_IF_ERROR(Prepare());
    COHORT_RETURN_IF_ERROR(StartHead());
    if (stopping_) return absl::OkStatus();
    for (int i = 0; i < options_.workers; ++i) AddWorker(i);
    for (Supervised& worker : workers_) COHORT_RETURN_IF_ERROR(worker.Start());
    for (size_t i = 0; i < workers_.size() && !stopping_; ++i) {
      COHORT_RETURN_IF_ERROR(
          AwaitFile(workers_[i], ReadyFile(workers_[i].name())));
    }
    if (stopping_) return absl::OkStatus();
    COHORT_RETURN_IF_ERROR(WriteFileAtomically(
        directory_ + "/address", absl::StrCat(address_, "\n"), 0644));
    serving_ = true;
    // Before the ready file: who waits for that finds everything said.
    Announce();
    if (!options_.ready_file.empty()) {
      COHORT_RETURN_IF_ERROR(WriteFileAtomically(
          options_.ready_file, absl::StrCat(address_, "\n"), 0644));
    }
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    COHORT_RETURN_IF_ERROR(CheckReadyFile(options_.ready_file));
    COHORT_RETURN_IF_ERROR(MakeStateDirectory(directory_));
    directory_ = std::filesystem::absolute(directory_).string();
    COHORT_ASSIGN_OR_RETURN(FileLock lock,
                            FileLock::Acquire(directory_, "cohort up"));
    lock_.emplace(std::move(lock));
    RemoveOldReadyFile(options_.ready_file);
    COHORT_ASSIGN_OR_RETURN(
        const rpc::Credential credential,
        rpc::Credential::LoadOrCreate(directory_ + "/credential", random_));
    COHORT_RETURN_IF_ERROR(MakeDirectories(directory_ + "/head", 0700));
    COHORT_RETURN_IF_ERROR(credential.Save(directory_ + "/head/credential"));

    sigset_t signals;
    sigemptyset(&signals);
    for (int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    watch_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!signals_ || !watch_ ||
        inotify_add_watch(watch_.get(), directory_.c_str(), IN_MOVED_TO) < 0) {
      return ErrnoStatus(errno, absl::StrCat("watch ", directory_));
    }
    return absl::OkStatus();
  }

  absl::Status StartHead() {
    const std::string wanted = absl::StrCat("127.0.0.1:", options_.port);
    std::vector<std::string> command = {ProgramDirectory() + "/cohort-head",
                                        "--address",
                                        wanted,
                                        "--state-dir",
                                        directory_ + "/head",
                                        "--ready-file",
                                        ReadyFile("head")};
    if (!options_.http_address.empty()) {
      command.insert(command.end(), {"--http-address", options_.http_address});
    }
    if (!options_.node_timeout.empty()) {
      command.insert(command.end(), {"--node-timeout", options_.node_timeout});
    }
    if (options_.is_volatile) command.push_back("--volatile");
    head_.emplace("head", std::move(command), LogFile("head"), random_);
    unlink(ReadyFile("head").c_str());
    COHORT_RETURN_IF_ERROR(head_->Start());
    COHORT_RETURN_IF_ERROR(AwaitFile(*head_, ReadyFile("head")));
    if (stopping_) return absl::OkStatus();
    COHORT_ASSIGN_OR_RETURN(std::string ready, ReadFile(ReadyFile("head")));
    address_ = std::string(absl::StripSuffix(ready, "\n"));
    return KeepAddresses(wanted);
  }

  // A head that is started again serves where clients and scrapers know it.
  absl::Status KeepAddresses(const std::string& wanted) {
    COHORT_ASSIGN_OR_RETURN(std::string http,
                            ReadFile(directory_ + "/head/http_address"));
    http_address_ = std::string(absl::StripSuffix(http, "\n"));
    head_->ReplaceArgument(wanted, address_);
    head_->SetFlag("--http-address", http_address_);
    return absl::OkStatus();
  }

  void AddWorker(int index) {
    const std::string name = absl::StrCat("worker-", index);
    std::vector<std::string> command = {
        ProgramDirectory() + "/cohort-worker",
        "--address",
        address_,
        "--credential-file",
        directory_ + "/credential",
        "--name",
        name,
        "--state-dir",
        absl::StrCat(directory_, "/", name),
        "--ready-file",
        ReadyFile(name),
        "--share",
        absl::StrCat(index, "/", options_.workers),
        "--end-ranks"};
    const auto add = [&command](const char* flag, const std::string& value) {
      if (value.empty()) return;
      command.emplace_back(flag);
      command.push_back(value);
    };
    add("--num-cpus", options_.num_cpus);
    add("--memory", options_.memory);
    add("--resources", options_.resources);
    if (options_.num_gpus.has_value()) {
      add("--num-gpus", absl::StrCat(*options_.num_gpus));
    }
    if (options_.simulate_gpus.has_value()) {
      add("--simulate-gpus", absl::StrCat(*options_.simulate_gpus));
    }
    unlink(ReadyFile(name).c_str());
    workers_.emplace_back(name, std::move(command), LogFile(name), random_);
  }

  // Until `daemon` has written its ready file.  A daemon that ends before that
  // cannot start here, whatever the reason: its last words say it.
  absl::Status AwaitFile(const Supervised& daemon, const std::string& file) {
    const absl::Duration until = clock_.Monotonic() + kStartTimeout;
    while (!stopping_ && access(file.c_str(), F_OK) != 0) {
      if (!daemon.running()) {
        const std::string message =
            absl::StrCat(daemon.name(), " did not start (exit status ",
                         daemon.exit_code(), "):\n", daemon.LastWords());
        return daemon.exit_code() == kExitUsage
                   ? absl::InvalidArgumentError(message)
                   : absl::UnavailableError(message);
      }
      if (clock_.Monotonic() >= until) {
        return absl::DeadlineExceededError(absl::StrCat(
            daemon.name(), " is not ready after ",
            absl::FormatDuration(kStartTimeout), ":\n", daemon.LastWords()));
      }
      starting_ = true;
      Step(until - clock_.Monotonic());
      starting_ = false;
    }
    return absl::OkStatus();
  }

  void Announce() {
    std::printf(
        "cohort: head at %s, %d worker%s, state in %s\n"
        "export COHORT_ADDRESS=%s\n"
        "export COHORT_CREDENTIAL_FILE=%s/credential\n",
        address_.c_str(), options_.workers, options_.workers == 1 ? "" : "s",
        directory_.c_str(), address_.c_str(), directory_.c_str());
    std::fflush(stdout);
  }

  std::vector<Supervised*> Daemons() {
    std::vector<Supervised*> daemons;
    if (head_.has_value()) daemons.push_back(&*head_);
    for (Supervised& worker : workers_) daemons.push_back(&worker);
    return daemons;
  }

  // Waits for something to happen, at most `timeout`, and deals with it.
  void Step(absl::Duration timeout) {
    for (const Supervised* daemon : Daemons()) {
      if (!daemon->running() && !starting_ && !ending_) {
        timeout = std::min(timeout, daemon->due() - clock_.Monotonic());
      }
    }
    pollfd fds[2] = {{signals_.get(), POLLIN, 0}, {watch_.get(), POLLIN, 0}};
    const int64_t milliseconds =
        timeout == absl::InfiniteDuration()
            ? -1
            : std::max<int64_t>(0, absl::ToInt64Milliseconds(absl::Ceil(
                                       timeout, absl::Milliseconds(1))));
    poll(fds, 2, static_cast<int>(std::min<int64_t>(milliseconds, 3'600'000)));
    char events[4096];
    while (read(watch_.get(), events, sizeof(events)) > 0) {
    }
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) stopping_ = true;
    }
    Reap();
    if (!starting_ && !ending_ && !stopping_) RestartDue();
  }

  void Reap() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      for (Supervised* daemon : Daemons()) {
        if (daemon->pid() != pid) continue;
        daemon->Ended(status, clock_.Monotonic());
        if (!ending_ && !stopping_ && !starting_) {
          std::fprintf(stderr,
                       "cohort: %s ended with status %d, starting it again\n",
                       daemon->name().c_str(), daemon->exit_code());
        }
      }
    }
  }

  void RestartDue() {
    for (Supervised* daemon : Daemons()) {
      if (daemon->running() || daemon->due() > clock_.Monotonic()) continue;
      const absl::Status status = daemon->Start();
      if (!status.ok()) {
        std::fprintf(stderr, "cohort: %s\n",
                     std::string(status.message()).c_str());
        daemon->Ended(kExitFailure << 8, clock_.Monotonic());
      }
    }
  }

  // Ranks and keepers go with their workers, then the head.
  void End() {
    ending_ = true;
    for (const Supervised& worker : workers_) worker.Signal(SIGTERM);
    EndWithin(kWorkersGrace, [this] { return WorkersEnded(); });
    for (const Supervised& worker : workers_) worker.Signal(SIGKILL);
    if (head_.has_value()) head_->Signal(SIGTERM);
    EndWithin(kHeadGrace,
              [this] { return !head_.has_value() || !head_->running(); });
    if (head_.has_value()) head_->Signal(SIGKILL);
    EndWithin(kHeadGrace, [this] {
      const std::vector<Supervised*> daemons = Daemons();
      return std::none_of(
          daemons.begin(), daemons.end(),
          [](const Supervised* daemon) { return daemon->running(); });
    });
  }

  // One that did not end by itself, because it was killed a moment ago, left
  // its ranks, which only it can end: it is started for that, once.
  bool WorkersEnded() {
    bool ended = true;
    for (Supervised& worker : workers_) {
      if (serving_ && !worker.running() && worker.exit_code() != kExitOk &&
          ended_again_.insert(&worker).second && worker.Start().ok()) {
        worker.Signal(SIGTERM);
      }
      ended = ended && !worker.running();
    }
    return ended;
  }

  template <typename Gone>
  void EndWithin(absl::Duration grace, Gone gone) {
    const absl::Duration until = clock_.Monotonic() + grace;
    while (!gone() && clock_.Monotonic() < until) {
      Step(until - clock_.Monotonic());
    }
  }

  std::string ReadyFile(const std::string& name) const {
    return absl::StrCat(directory_, "/", name, ".ready");
  }
  std::string LogFile(const std::string& name) const {
    return absl::StrCat(directory_, "/", name, ".log");
  }

  const UpOptions& options_;
  const MachineClock clock_;
  SystemRandom random_;
  std::string directory_;
  std::optional<FileLock> lock_;
  UniqueFd signals_;
  UniqueFd watch_;
  std::string address_;
  std::string http_address_;
  std::optional<Supervised> head_;
  std::deque<Supervised> workers_;
  bool starting_ = false;  // a daemon that ends now is not started again
  bool serving_ = false;   // every daemon has come up once
  bool stopping_ = false;  // a signal came
  bool ending_ = false;
  std::set<const Supervised*> ended_again_;
};

}  // namespace

int RunUp(const UpOptions& options) {
  if (!options.detach) return LocalCluster(options).Run([] {});
  return RunDetached(options.state_dir + "/up.log",
                     [&options](const std::function<void()>& ready) {
                       return LocalCluster(options).Run(ready);
                     });
}

absl::Status RunDown(const std::string& state_dir) {
  const absl::Status free = FileLock::Share(state_dir).status();
  if (GetReason(free) != "locked") {
    COHORT_RETURN_IF_ERROR(free);
    return absl::NotFoundError(
        absl::StrCat("no `cohort up` runs in ", state_dir,
                     ": name its directory with --state-dir"));
  }
  COHORT_ASSIGN_OR_RETURN(const std::string holder,
                          ReadFile(state_dir + "/LOCK", 4096));
  const std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(holder, absl::MaxSplits(' ', 1));
  pid_t pid = 0;
  if (!absl::SimpleAtoi(words.first, &pid) || words.second != "cohort up\n") {
    return absl::FailedPreconditionError(
        absl::StrCat(state_dir, " is used by another program: ", holder));
  }
  // A process, whatever becomes of its number.
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // In a container, or where others write, the number may be another's.
  const std::string name =
      ReadFile(absl::StrCat("/proc/", pid, "/comm"), 64).value_or("");
  if (name.empty()) return absl::OkStatus();  // it has just ended
  if (name != "cohort\n") {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", pid, ", which ", state_dir,
                     "/LOCK names, is not `cohort up` but ", name));
  }
  if (!process ||
      syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0) != 0) {
    return ErrnoStatus(errno, absl::StrCat("end process ", pid));
  }
  pollfd ended = {process.get(), POLLIN, 0};
  const absl::Duration patience = kWorkersGrace + 4 * kHeadGrace;
  if (poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) >
      0) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("process ", pid, " has not ended after ",
                   absl::FormatDuration(patience), "; it goes on ending"));
}

}  // namespace cohort::cli
