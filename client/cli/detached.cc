#include "client/cli/detached.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/exit_code.h"

namespace cohort::cli {
namespace {

// Stdin, and stdout and stderr, which the shell's terminal are no longer.
void LeaveTerminal(const std::string& log) {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out =
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (null >= 0) dup2(null, STDIN_FILENO);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    dup2(out >= 0 ? out : null, fd);
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
    setsid();
    const int code = run([&log, fd = fds[1]] {
      LeaveTerminal(log);
      const ssize_t ignored = write(fd, "1", 1);
      static_cast<void>(ignored);
    });
    _exit(code);
  }
  close(fds[1]);
  char ready = 0;
  ssize_t got = 0;
  while ((got = read(fds[0], &ready, 1)) < 0 && errno == EINTR) {
  }
  close(fds[0]);
  return got == 1 ? kExitOk : StatusOfEnded(child);
}

}  // namespace cohort::cli
