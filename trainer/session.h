#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort::trainer {

class Comm;

// A checkpoint directory, as the head's record names it.
struct CheckpointRecord {
  std::string path;   // absolute: <checkpoint root>/step-<k>
  int64_t step = 0;   // optimizer steps that it holds
  int64_t epoch = 0;  // membership epoch of the run that wrote it
  // How good it is, if somebody said so: the higher, the longer it is kept.
  std::optional<double> score{};
};

// A rank's place in its gang: all that the head decided about it.  A process
// keeps its place as long as it lives: a new membership means a new process.
struct RunPlace {
  std::string job_id;
  int attempt = 1;  // 1, 2, ... within the job
  // Which process of the attempt this is; no incarnation is ever used twice.
  int slot = 0;
  uint64_t incarnation = 1;
  int64_t epoch = 1;  // of the membership; stamps communicators and records
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;  // ranks of the gang on this node
  int node_rank = 0;
  int node_count = 1;
  // <storage>/<job>/attempt-<n>.<epoch>: no two attempts share it.
  std::string checkpoint_root;
  // The last one committed before this attempt began; the one to go on from,
  // never the newest directory that happens to be there.
  std::optional<CheckpointRecord> restore;
};

// What a process is told while it runs.
struct RunNotice {
  enum class Kind {
    kStop,   // It is being stopped: SIGKILL at the deadline.
    kDrain,  // Its node is drained: it is moved at the deadline.
  };

  Kind kind = Kind::kStop;
  std::string reason;
  // By the machine's monotonic clock (MachineClock); infinite: none.
  absl::Duration deadline = absl::InfiniteDuration();
};

// The bound of one report, so that a cell of shared memory holds it.
inline constexpr int kMetricsBytesMax = 4096;
// A message about a gang that waits longer than this says so and fails.
// Covers a peer that is still loading its data or evaluating.
inline constexpr int kGangTimeoutSeconds = 600;

// What a rank's program talks to: its place, its gang's communicator, and the
// way back to the head.
//
// In a gang it is a WorkerSession (the node's daemon is the only peer); outside
// of cohort a LocalSession, a gang of one.  Thread-compatible: the training
// thread owns it.  Outlives everything that uses comm().
//
// Once the gang has a later membership than place().epoch, Report,
// CommitCheckpoint and Finish are FailedPrecondition: end, and a process of
// that membership takes over.
class Session {
 public:
  virtual ~Session() = default;

  virtual const RunPlace& place() const = 0;

  // What this process is told now; nothing when that was taken back.  Neither
  // blocks nor calls: ask at each step.  Ranks on other nodes may be told
  // something else: agree with them before a collective call.
  virtual std::optional<RunNotice> notice() const { return std::nullopt; }

  // The gang's communicator, of this epoch alone.
  virtual Comm& comm() = 0;

  // Shows `metrics`, one JSON object, to people: `metrics` of `jobs get`.  A
  // copy into a bounded cell: no call, no wait, whatever state the head is in.
  // Reports coalesce: the last one wins.  InvalidArgument when
  // larger than kMetricsBytesMax (nothing is reported).
  virtual absl::Status Report(absl::string_view metrics) = 0;

  // Records a complete, synced checkpoint directory below
  // place().checkpoint_root. Returns when this node has the record on its disk;
  // the head commits it as soon as it can, and removes what `num_to_keep`
  // retires.  Idempotent by path; called by one rank for the gang.
  // Of those with a score the best are kept, and the last.  InvalidArgument for
  // a path elsewhere and a score that is not a number; FailedPrecondition when
  // this attempt is over: stop, do not retry.  Any thread may call it, beside
  // other calls.
  virtual absl::Status CommitCheckpoint(absl::string_view path, int64_t step,
                                        std::optional<double> score) = 0;

  // Says that the loop is over and the last report is out.  After it only the
  // destructor may be called.
  virtual absl::Status Finish() = 0;

  int rank() const { return place().rank; }
  int world() const { return place().world; }
  bool is_lead() const { return place().rank == 0; }
};

}  // namespace cohort::trainer
