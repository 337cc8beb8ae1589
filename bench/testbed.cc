#include "bench/testbed.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::bench {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(1);
// A worker's ranks have 10 s, see kDrainRanksGrace.
constexpr absl::Duration kEndTimeout = absl::Seconds(15);
constexpr absl::Duration kGlance = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(
    std::vector<std::string> argv, const std::string& output,
    const std::vector<std::string>& environment) {
  const UniqueFd out(
      open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!out) return ErrnoStatus(errno, absl::StrCat("open ", output));
  std::vector<char*> arguments;
  for (std::string& argument : argv) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  // Copied before fork: what is added stands first and wins.
  std::vector<std::string> added = environment;
  std::vector<char*> variables;
  for (std::string& variable : added) variables.push_back(variable.data());
  for (char** at = environ; *at != nullptr; ++at) variables.push_back(*at);
  variables.push_back(nullptr);

  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, absl::StrCat("start ", argv[0]));
  if (pid == 0) {
    // As ranks have: the kernel shares cores out by session.
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(out.get(), STDOUT_FILENO);
    dup2(out.get(), STDERR_FILENO);
    execve(arguments[0], arguments.data(), variables.data());
    _exit(125);
  }
  return std::unique_ptr<Child>(new Child(pid, argv[0], output));
}

Child::~Child() {
  if (Ended()) return;
  Signal(SIGTERM);
  const absl::Time late = absl::Now() + kEndTimeout;
  while (!Ended() && absl::Now() < late) absl::SleepFor(kGlance);
  if (pid_ == 0) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Child::Signal(int signal) const {
  if (pid_ != 0) kill(pid_, signal);
}

bool Child::Ended() {
  if (pid_ != 0 && waitpid(pid_, &wait_status_, WNOHANG) == pid_) pid_ = 0;
  return pid_ == 0;
}

absl::Status Child::Wait() {
  if (pid_ != 0) waitpid(pid_, &wait_status_, 0);
  pid_ = 0;
  if (wait_status_ == 0) return absl::OkStatus();
  const absl::StatusOr<std::string> words = ReadFile(output_);
  return absl::InternalError(
      absl::StrCat(program_, " ended with wait status ", wait_status_, ": ",
                   words.ok() ? words->substr(0, 2000) : ""));
}

absl::StatusOr<std::unique_ptr<Testbed>> Testbed::Create() {
  std::string directory = "/var/tmp/cohort-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("make ", directory));
  }
  std::unique_ptr<Testbed> testbed(new Testbed(directory));
  COHORT_ASSIGN_OR_RETURN(const bool in_memory, IsTmpfs(directory));
  if (in_memory) {
    return absl::FailedPreconditionError(
        "/var/tmp is a tmpfs: mount a disk there, or fsync costs nothing");
  }
  return testbed;
}

Testbed::~Testbed() {
  worker_.reset();
  head_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::Status Testbed::StartHead(const std::vector<std::string>& flags) {
  const std::string ready = directory_ + "/head.ready";
  std::filesystem::remove(ready);
  std::vector<std::string> command = {
      ProgramDirectory() + "/cohort-head", "--address",
      address_.empty() ? "127.0.0.1:0" : address_, "--state-dir",
      directory_ + "/head", "--ready-file", ready,
      // Other heads run on a machine too.
      "--http-address", "127.0.0.1:0"};
  command.insert(command.end(), flags.begin(), flags.end());
  COHORT_ASSIGN_OR_RETURN(head_,
                          Child::Start(command, directory_ + "/head.log"));
  COHORT_RETURN_IF_ERROR(AwaitFile(ready, *head_));
  COHORT_ASSIGN_OR_RETURN(address_, ReadFile(ready));
  absl::StripAsciiWhitespace(&address_);
  return absl::OkStatus();
}

void Testbed::KillHead() {
  head_->Signal(SIGKILL);
  head_->Wait().IgnoreError();  // It was killed.
  head_.reset();
}

absl::Status Testbed::StartWorker(int num_cpus) {
  const std::string ready = directory_ + "/worker.ready";
  COHORT_ASSIGN_OR_RETURN(
      worker_,
      Child::Start(
          {ProgramDirectory() + "/cohort-worker", "--address", address_,
           "--credential-file", directory_ + "/head/credential", "--state-dir",
           directory_ + "/worker", "--num-cpus", absl::StrCat(num_cpus),
           "--num-gpus", "0", "--end-ranks", "--ready-file", ready},
          directory_ + "/worker.log"));
  return AwaitFile(ready, *worker_);
}

absl::StatusOr<std::unique_ptr<Cluster>> Testbed::Connect() const {
  return Cluster::Connect({.address = address_,
                           .credential_file = directory_ + "/head/credential"});
}

int64_t Testbed::HeadLogBytes() const {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           directory_ + "/head",
           std::filesystem::directory_options::skip_permission_denied)) {
    if (entry.path().extension() == ".log") {
      bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  return bytes;
}

absl::Status AwaitFile(const std::string& path, Child& writer) {
  const absl::Time late = absl::Now() + kTimeout;
  while (!std::filesystem::exists(path)) {
    if (writer.Ended()) {
      COHORT_RETURN_IF_ERROR(writer.Wait());
      return absl::InternalError(absl::StrCat(path, " was never written"));
    }
    if (absl::Now() > late) {
      return absl::DeadlineExceededError(absl::StrCat("no ", path));
    }
    absl::SleepFor(kGlance);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (!fd || bind(fd.get(), any, size) != 0 ||
      getsockname(fd.get(), any, &size) != 0) {
    return ErrnoStatus(errno, "find a free port");
  }
  return ntohs(address.sin_port);
}

std::string ProgramDirectory() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

}  // namespace cohort::bench
