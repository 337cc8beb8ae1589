#include "client/cli/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace cohort::cli {
namespace {

// As torchrun: a terminal that closes ends the run, too.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Where the handler writes: it may do nothing but write(2).
volatile sig_atomic_t interrupt_pipe = -1;

void OnSignal(int) {
  const int error = errno;
  const ssize_t ignored = write(interrupt_pipe, "i", 1);
  static_cast<void>(ignored);
  errno = error;
}

}  // namespace

Interrupts::Interrupts(std::function<void(int count)> act) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return;  // then they end the program
  came_.Reset(fds[1]);
  interrupt_pipe = fds[1];
  thread_ = std::thread([act = std::move(act), fd = fds[0]] {
    const UniqueFd in(fd);
    char byte = 0;
    for (int count = 1;; ++count) {
      ssize_t got = 0;
      while ((got = read(in.get(), &byte, 1)) < 0 && errno == EINTR) {
      }
      if (got != 1) return;
      act(count);
    }
  });
  for (const int signal : kSignals) {
    // nohup's SIGHUP, and a background job's SIGINT, stay ignored.
    if (std::signal(signal, &OnSignal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

Interrupts::~Interrupts() {
  if (!came_) return;
  for (const int signal : kSignals) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
  came_ = UniqueFd();
  thread_.join();
}

}  // namespace cohort::cli
