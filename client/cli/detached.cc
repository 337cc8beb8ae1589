#include "client/cli/detached.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "common/exit_code.h"

namespace cohort::cli {
namespace {

void Replace(int fd, const char* path, int flags) {
  const int file = open(path, flags | O_CLOEXEC, 0600);
  if (file < 0) return;
  dup2(file, fd);
  close(file);
}

// From here on Ctrl-C and the end of the terminal are not for this process.
void LeaveTerminal(const std::string& log) {
  setsid();
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    Replace(fd, log.c_str(), O_WRONLY | O_CREAT | O_APPEND);
  }
}

int StatusOfEnded(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailure;
}

}  // namespace

int RunDetached(const std::string& log,
                const std::function<int(std::function<void()> ready)>& run) {
  int fds[2];
  const pid_t child = pipe2(fds, O_CLOEXEC) == 0 ? fork() : -1;
  if (child < 0) {
    std::fprintf(stderr, "cohort: start a process: %s\n", std::strerror(errno));
    return kExitFailure;
  }
  if (child == 0) {
    close(fds[0]);
    std::signal(SIGPIPE, SIG_IGN);
    Replace(STDIN_FILENO, "/dev/null", O_RDONLY);
    _exit(run([&log, fd = fds[1]] {
      // The process that started it has gone: nobody knows that it runs.
      if (write(fd, "1", 1) != 1) kill(getpid(), SIGTERM);
      close(fd);
      LeaveTerminal(log);
    }));
  }
  close(fds[1]);
  char ready = 0;
  ssize_t got = 0;
  while ((got = read(fds[0], &ready, 1)) < 0 && errno == EINTR) {
  }
  close(fds[0]);
  if (got == 1) return kExitOk;
  // Told to end before it served: also then nothing runs.
  const int status = StatusOfEnded(child);
  return status == kExitOk ? kExitFailure : status;
}

}  // namespace cohort::cli
