#include "client/cli/local_cluster.h"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/exit_code.h"
#include "common/local_files.h"
#include "common/node_runtime_path.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/credential.h"

namespace cohort::cli {
namespace {

// What SIGTERM to a worker may take (its ranks have 10 s), and what is left of
// the promised 15 s for the head.
constexpr absl::Duration kWorkersGrace = absl::Milliseconds(13'000);
constexpr absl::Duration kHeadGrace = absl::Milliseconds(1'500);
// After a second signal: to kill takes milliseconds, and the head hears of it.
constexpr absl::Duration kHurryGrace = absl::Seconds(2);
// A daemon that has not come up by then will not; first starts take well under
// a second.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);

std::string ProgramDirectory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error)
      .parent_path()
      .string();
}

}  // namespace

LocalCluster::LocalCluster(const UpOptions& options)
    : options_(options), directory_(options.state_dir) {}

absl::Status LocalCluster::Start() {
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
  return absl::OkStatus();
}

void LocalCluster::Serve() {
  while (!stopping_) Step(absl::InfiniteDuration());
}

absl::Status LocalCluster::Prepare() {
  COHORT_RETURN_IF_ERROR(CheckReadyFile(options_.ready_file));
  COHORT_RETURN_IF_ERROR(MakeStateDirectory(directory_));
  directory_ = std::filesystem::absolute(directory_).string();
  head_directory_ = directory_ + "/head";
  COHORT_ASSIGN_OR_RETURN(FileLock lock,
                          FileLock::Acquire(directory_, "cohort up"));
  lock_.emplace(std::move(lock));
  RemoveOldReadyFile(options_.ready_file);
  COHORT_RETURN_IF_ERROR(MakeDirectories(head_directory_, 0700));

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

absl::Status LocalCluster::StartHead() {
  const std::string wanted = absl::StrCat("127.0.0.1:", options_.port);
  std::vector<std::string> command = {ProgramDirectory() + "/cohort-head",
                                      "--address",
                                      wanted,
                                      "--state-dir",
                                      head_directory_,
                                      "--ready-file",
                                      ReadyFile("head")};
  if (!options_.http_address.empty()) {
    command.insert(command.end(), {"--http-address", options_.http_address});
  }
  if (!options_.node_timeout.empty()) {
    command.insert(command.end(), {"--node-timeout", options_.node_timeout});
  }
  if (!options_.cluster_file.empty()) {
    command.insert(command.end(), {"--cluster-file", options_.cluster_file});
  }
  if (options_.is_volatile) command.push_back("--volatile");
  head_.emplace("head", std::move(command), LogFile("head"), random_);
  unlink(ReadyFile("head").c_str());
  COHORT_RETURN_IF_ERROR(head_->Start());
  COHORT_RETURN_IF_ERROR(AwaitFile(*head_, ReadyFile("head")));
  if (stopping_) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(std::string ready, ReadFile(ReadyFile("head")));
  address_ = std::string(absl::StripSuffix(ready, "\n"));
  COHORT_ASSIGN_OR_RETURN(
      const rpc::Credential credential,
      rpc::Credential::Load(head_directory_ + "/credential"));
  COHORT_RETURN_IF_ERROR(credential.Save(directory_ + "/credential"));
  return KeepAddresses(wanted);
}

// A head that is started again serves where clients and scrapers know it.
absl::Status LocalCluster::KeepAddresses(const std::string& wanted) {
  COHORT_ASSIGN_OR_RETURN(std::string http,
                          ReadFile(head_directory_ + "/http_address"));
  http_address_ = std::string(absl::StripSuffix(http, "\n"));
  head_->ReplaceArgument(wanted, address_);
  head_->SetFlag("--http-address", http_address_);
  // It is in the store by now, and may be gone or another one later.
  if (!options_.cluster_file.empty()) head_->DropFlag("--cluster-file");
  return absl::OkStatus();
}

void LocalCluster::AddWorker(int index) {
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
  add("--keep-results", options_.keep_results);
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
absl::Status LocalCluster::AwaitFile(const Supervised& daemon,
                                     const std::string& file) {
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

std::vector<Supervised*> LocalCluster::Daemons() {
  std::vector<Supervised*> daemons;
  if (head_.has_value()) daemons.push_back(&*head_);
  for (Supervised& worker : workers_) daemons.push_back(&worker);
  return daemons;
}

// Waits for something to happen, at most `timeout`, and deals with it.
void LocalCluster::Step(absl::Duration timeout) {
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
    if (info.ssi_signo == SIGCHLD) continue;
    if (stopping_) Hurry();
    stopping_ = true;
  }
  Reap();
  if (!starting_ && !ending_ && !stopping_) RestartDue();
}

void LocalCluster::Reap() {
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

void LocalCluster::RestartDue() {
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
void LocalCluster::End() {
  ending_ = true;
  for (const Supervised& worker : workers_) worker.Signal(SIGTERM);
  bool have_ended = false;
  EndWithin(kWorkersGrace, [&] { return have_ended = WorkersEnded(); });
  for (const Supervised& worker : workers_) worker.Signal(SIGKILL);
  if (head_.has_value()) {
    head_->Signal(options_.is_temporary ? SIGKILL : SIGTERM);
  }
  EndWithin(kHeadGrace,
            [this] { return !head_.has_value() || !head_->running(); });
  if (head_.has_value()) head_->Signal(SIGKILL);
  EndWithin(kHeadGrace, [this] {
    const std::vector<Supervised*> daemons = Daemons();
    return std::none_of(
        daemons.begin(), daemons.end(),
        [](const Supervised* daemon) { return daemon->running(); });
  });
  EndLaunched();
  if (options_.is_temporary || have_ended) RemoveRuntimes();
}

// The workers of instances that the provider `process` made for this head.
std::vector<pid_t> LocalCluster::LaunchedWorkers() const {
  std::vector<pid_t> pids;
  std::error_code error;
  const auto instances = std::filesystem::directory_iterator(
      head_directory_ + "/instances", error);
  if (error) return pids;
  for (const auto& each : instances) {
    const std::string directory = each.path().string();
    const auto text = ReadFile(directory + "/pid", 64);
    int pid = 0;
    if (!text.ok() ||
        !absl::SimpleAtoi(absl::StripTrailingAsciiWhitespace(*text), &pid)) {
      continue;
    }
    // Not one that was given the number meanwhile.
    const auto command =
        ReadFile(absl::StrCat("/proc/", pid, "/cmdline"), 64 << 10);
    if (command.ok() && absl::StrContains(*command, directory)) {
      pids.push_back(pid);
    }
  }
  return pids;
}

void LocalCluster::EndLaunched() {
  for (const pid_t pid : LaunchedWorkers()) kill(pid, SIGTERM);
  absl::Duration until = clock_.Monotonic() + kWorkersGrace;
  while (!LaunchedWorkers().empty() && clock_.Monotonic() < until) {
    // They are not this program's children: nothing tells of their end.
    Step(absl::Milliseconds(50));
    if (hurried_at_) until = std::min(until, *hurried_at_ + kHurryGrace);
  }
  // One that drains does not wait for its ranks any more.
  for (const pid_t pid : LaunchedWorkers()) kill(pid, SIGTERM);
  until = clock_.Monotonic() + kHurryGrace;
  while (!LaunchedWorkers().empty() && clock_.Monotonic() < until) {
    Step(absl::Milliseconds(50));
  }
  for (const pid_t pid : LaunchedWorkers()) kill(pid, SIGKILL);
}

// What no head told a worker to forget, such as places of actors, of which no
// process is left.
void LocalCluster::RemoveRuntimes() const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const absl::StatusOr<std::string> node =
        ReadFile(absl::StrCat(directory_, "/worker-", i, "/node_id"), 4096);
    if (!node.ok() || node->size() < 32) continue;
    const absl::Status removed = RemoveTree(NodeRuntimePath(*node));
    if (removed.ok() || absl::IsNotFound(removed)) continue;
    std::fprintf(stderr, "cohort: %s\n",
                 std::string(removed.message()).c_str());
  }
}

// Workers kill their ranks at a second signal.
void LocalCluster::Hurry() {
  if (hurried_at_.has_value()) return;
  hurried_at_ = clock_.Monotonic();
  for (const Supervised& worker : workers_) worker.Signal(SIGTERM);
}

// One that did not end by itself, because it was killed a moment ago, left
// its ranks, which only it can end: it is started for that, once.
bool LocalCluster::WorkersEnded() {
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

void LocalCluster::EndWithin(absl::Duration grace,
                             absl::FunctionRef<bool()> gone) {
  absl::Duration until = clock_.Monotonic() + grace;
  while (!gone() && clock_.Monotonic() < until) {
    Step(until - clock_.Monotonic());
    if (hurried_at_) until = std::min(until, *hurried_at_ + kHurryGrace);
  }
}

std::string LocalCluster::ReadyFile(const std::string& name) const {
  return absl::StrCat(directory_, "/", name, ".ready");
}
std::string LocalCluster::LogFile(const std::string& name) const {
  return absl::StrCat(directory_, "/", name, ".log");
}

}  // namespace cohort::cli
