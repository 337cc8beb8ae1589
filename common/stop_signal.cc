#include "common/stop_signal.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "common/check.h"

namespace cohort {
namespace {

sigset_t StopSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t set = StopSet();
  COHORT_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  COHORT_CHECK(std::signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

int StopSignal::Wait() {
  const sigset_t set = StopSet();
  int signal = 0;
  COHORT_CHECK(sigwait(&set, &signal) == 0);
  return signal;
}

void StopSignal::Raise() { COHORT_CHECK(kill(getpid(), SIGTERM) == 0); }

}  // namespace cohort
