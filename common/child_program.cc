#include "common/child_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>

#include <csignal>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/file_limit.h"
#include "common/status_util.h"

namespace cohort {

std::vector<char*> ArgumentVector(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<pid_t> StartChild(const ChildProgram& child) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  };
  const int count = static_cast<int>(child.files.size());
  for (int fd = 0; fd < count; ++fd) {
    const int ours = child.files[static_cast<size_t>(fd)];
    if (ours == ChildProgram::kNothing) {
      posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    } else {
      posix_spawn_file_actions_adddup2(&files, ours, fd);
    }
  }
  posix_spawn_file_actions_addclosefrom_np(&files, count);
  if (!child.directory.empty()) {
    posix_spawn_file_actions_addchdir_np(&files, child.directory.c_str());
  }
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  const int group =
      child.in_new_session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(&attributes,
                           static_cast<short>(group | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSIGMASK));
  const std::vector<char*> argv = ArgumentVector(child.command);
  const std::vector<char*> variables = ArgumentVector(child.environment);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &files, &attributes, argv.data(),
                                variables.data());
  if (error == 0) {
    // Ours may be raised.  It has it from here on, milliseconds after its start
    // at the latest.
    const rlimit limit = InheritedFileLimit();
    prlimit(pid, RLIMIT_NOFILE, &limit, nullptr);
    return pid;
  }
  return ErrnoStatus(error, absl::StrCat("start ", child.command.front()));
}

}  // namespace cohort
