#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "cohort/v1/domain.pb.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "rpc/channel.h"
#include "worker/node_directories.h"
#include "worker/work_directory.h"

namespace cohort::worker {

// Removes the results of jobs that the head has forgotten: because history has
// no room for them, or `cohort jobs remove` was asked for.
//
//   WD-3: those in the worker's own directory only, and only when a head of the
//         generation under which they were made says that it does not know the
//         job.  After a restore of the store nobody may remove what was made
//         since the backup.
//
// Looks each kPeriod at kJobsPerRound of them, in turn.  Strand-bound to the
// node strand; looks and removes on `bulk`.  Lives as long as Worker.
class ResultsSweep {
 public:
  static constexpr absl::Duration kPeriod = absl::Minutes(1);
  static constexpr size_t kJobsPerRound = 256;

  // All outlive it and what it posted.  `followed` gives the stamp of the head
  // that the worker follows; nothing: none yet.
  ResultsSweep(const NodeDirectories& directories, const WorkDirectories& work,
               rpc::Channel& head,
               std::function<std::optional<v1::Stamp>()> followed,
               Executor& strand, Executor& bulk);

  void Start();

 private:
  void Look();
  // The next jobs after `last`, by name, that were made under `generation` and
  // that no attempt uses here.
  std::vector<JobId> Candidates(const std::string& generation);
  // One after the other; a head that does not answer ends the round.
  void AskAbout(std::vector<JobId> jobs, const v1::Stamp& head);

  const NodeDirectories& directories_;
  const WorkDirectories& work_;  // on `bulk` only
  rpc::Channel& head_;
  const std::function<std::optional<v1::Stamp>()> followed_;
  Executor& strand_;
  Executor& bulk_;
  std::string last_;  // bulk's: where the next round goes on
};

}  // namespace cohort::worker
