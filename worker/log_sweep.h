#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/executor.h"
#include "worker/node_directories.h"
#include "worker/work_directory.h"

namespace cohort::worker {

// Removes the oldest logs of attempts that have ended, so that they do not fill
// the disk on which new ones are to run.
//
//   LO-3: the log of an attempt that is here stays.
//
// Looks each kPeriod.  Strand-bound to the node strand; looks and removes on
// `bulk`.  Lives as long as Worker.
class LogSweep {
 public:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);

  struct Limits {
    int64_t bytes = 0;  // of all logs
    absl::Duration age = absl::Hours(30 * 24);
  };

  // All outlive it and what it posted.
  LogSweep(Limits limits, const NodeDirectories& directories,
           const WorkDirectories& work, const Clock& clock, Executor& strand,
           Executor& bulk);

  void Start();

 private:
  // One attempt's.
  struct Log {
    std::string path;
    absl::Time written;
    int64_t bytes = 0;
  };

  void Sweep();
  // Those that may go, and into `total` how much all have.
  std::vector<Log> Ended(int64_t& total);
  void Remove(const Log& log);

  const Limits limits_;
  const NodeDirectories& directories_;
  const WorkDirectories& work_;  // on `bulk` only
  const Clock& clock_;
  Executor& strand_;
  Executor& bulk_;
  // bulk's: of attempts that have ended, which do not grow; by path.
  std::map<std::string, Log> ended_;
};

}  // namespace cohort::worker
