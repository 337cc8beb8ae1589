#include "trainer/preflight/handover.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace cohort::trainer {
namespace {

// As the keeper searches where the environment names no PATH.
constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";

std::set<int> OpenDescriptors() {
  std::set<int> open;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"),
                                                      &closedir);
  if (directory == nullptr) return open;
  while (const dirent* entry = readdir(directory.get())) {
    int descriptor = 0;
    if (absl::SimpleAtoi(entry->d_name, &descriptor) &&
        descriptor != dirfd(directory.get())) {
      open.insert(descriptor);
    }
  }
  return open;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> PathOf(const std::vector<std::string>& environment) {
  std::string path = kDefaultPath;
  for (const std::string& entry : environment) {
    if (entry.compare(0, 5, "PATH=") == 0) path = entry.substr(5);
  }
  return absl::StrSplit(path, ':');
}

}  // namespace

Handover::Handover(std::vector<std::string> command)
    : command_(std::move(command)), descriptors_(OpenDescriptors()) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment_.push_back(*entry);
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, nullptr, &actions_[signal]);
  }
  sigprocmask(SIG_SETMASK, nullptr, &mask_);
}

absl::Status Handover::Exec() {
  CloseNewDescriptors();
  RestoreSignals();
  const std::vector<char*> argv = Pointers(command_);
  const std::vector<char*> environment = Pointers(environment_);
  const std::string& program = command_.front();
  std::vector<std::string> files = {program};
  if (program.find('/') == std::string::npos) {
    files.clear();
    for (const std::string& directory : PathOf(environment_)) {
      // An empty entry is the current directory.
      files.push_back(
          absl::StrCat(directory.empty() ? "." : directory, "/", program));
    }
  }
  int error = ENOENT;
  for (const std::string& file : files) {
    execve(file.c_str(), argv.data(), environment.data());
    // As a shell: look on, but remember a file that may not be run.
    if (errno == ENOENT && access(file.c_str(), F_OK) == 0) {
      return absl::NotFoundError(
          absl::StrCat("cannot run \"", program, "\": ", strerror(ENOENT),
                       " (the file is there: its interpreter or loader is "
                       "not)"));
    }
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    if (error != ENOENT && error != EACCES) break;
  }
  const std::string message =
      absl::StrCat("cannot run \"", program, "\": ", strerror(error));
  return error == ENOENT ? absl::NotFoundError(message)
                         : absl::FailedPreconditionError(message);
}

void Handover::RestoreSignals() const {
  for (int signal = 1; signal < NSIG; ++signal) {
    // Fails for SIGKILL, SIGSTOP and what glibc keeps for itself, which nobody
    // has changed.
    sigaction(signal, &actions_[signal], nullptr);
  }
  sigprocmask(SIG_SETMASK, &mask_, nullptr);
}

void Handover::CloseNewDescriptors() const {
  for (const int descriptor : OpenDescriptors()) {
    if (!descriptors_.contains(descriptor)) {
      fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    }
  }
}

}  // namespace cohort::trainer
