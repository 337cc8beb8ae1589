#pragma once

#include <functional>
#include <thread>

#include "common/unique_fd.h"

namespace cohort::cli {

// While it lives, SIGINT, SIGTERM, SIGHUP and SIGQUIT call `act` on a thread of
// its own with how many came so far, in place of ending the program.  One at a
// time.
class Interrupts {
 public:
  explicit Interrupts(std::function<void(int count)> act);
  // Waits for an `act` that runs.
  ~Interrupts();

  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  UniqueFd came_;
  std::thread thread_;
};

}  // namespace cohort::cli
