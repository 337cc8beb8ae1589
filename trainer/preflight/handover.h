#pragma once

#include <signal.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cohort::trainer {

// A process that becomes another program, with everything as it was when this
// was made: environment, signals and their mask, open descriptors.  Thread
// stacks, memory and mappings end with the old program by themselves.
//
// PF-3.  Made at the start of main, before anything changes them.
class Handover {
 public:
  // `command` is not empty: argv of the program, found as a shell finds it.
  explicit Handover(std::vector<std::string> command);

  // Becomes the command.  Returns only when that cannot be: NOT_FOUND when
  // there is no such program, else FAILED_PRECONDITION; the process then is fit
  // for nothing but to say so and end.
  absl::Status Exec();

 private:
  void RestoreSignals() const;
  void CloseNewDescriptors() const;

  std::vector<std::string> command_;
  std::vector<std::string> environment_;
  std::array<struct sigaction, NSIG> actions_;
  sigset_t mask_;
  std::set<int> descriptors_;
};

}  // namespace cohort::trainer
