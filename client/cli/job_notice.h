#pragma once

#include <string>

#include "client/job.h"

namespace cohort::cli {

// What to tell somebody who follows a job: what it waits for, and which of its
// failures are retried.
// Thread-compatible.
class JobNotice {
 public:
  // What `job` shows is known already.
  void Know(const Job& job);
  // "attempt 1 failed: rank 1 on w1 was killed by signal 9; attempt 2 of 3 in
  // 1s", of what is new in `job`; empty when nothing is.  Of one that waits,
  // from the second look on, once: "it waits: ..."; of a gang that runs, once
  // each, what its nodes warn of and what it may hang at.
  std::string Next(const Job& job);

 private:
  int failures_ = 0;
  int looks_waiting_ = 0;
  int warnings_ = 0;
  bool told_reason_ = false;
};

}  // namespace cohort::cli
