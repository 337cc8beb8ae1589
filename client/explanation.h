#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "client/job.h"
#include "common/job_id.h"
#include "common/resources.h"

// Why a job waits.  Plain values.
namespace cohort {

// Nodes that one thing keeps from a job's workers.
struct NodeFailure {
  // "state", "taint", "accelerator", "label", "topology", "device", "resource";
  // of nodes that have room, but not together for all workers: "domain", which
  // all must share, "spread", as each must have another node.
  std::string by;
  // "DRAINED", the taint, the model, the requirement, the level, "FENCED: ...",
  // "GPU"; the domain that comes nearest, "rack=r1"; "different nodes".
  std::string what;
  // Each node is counted once, under the first thing that keeps it.
  int64_t nodes = 0;
  // All that this keeps, those too that are counted under another.
  int64_t nodes_in_all = 0;
  // Of a resource: what the closest node lacks, and the one in the middle.  Of
  // "domain" and "spread": the workers that find no room, though `nodes` may be
  // 0.
  std::optional<Amount> short_least;
  std::optional<Amount> short_median;
  std::string closest;  // that node's name
  // Of a state: since when the one that is longest in it is.
  std::optional<absl::Time> since;
};

// A job that holds what this one lacks, on nodes that it could use.
struct Holder {
  std::string resource;
  JobId job;
  Amount amount;
  int64_t nodes = 0;
};

// One thing that keeps a job from starting.
struct Blocker {
  // "resources"; "held", "after", "array", "back_off", "package", "read_only",
  // "restored", "orphan", "later_store", "not_tried", "waits".
  std::string kind;
  std::string text;  // on one line

  // Of `resources`.  nodes = nodes_that_fit + the sum of the failures' nodes.
  std::string shape;  // what is asked for
  int num_workers = 0;
  int64_t nodes = 0;
  int64_t nodes_that_fit = 0;
  int64_t workers_that_fit = 0;
  std::vector<NodeFailure> failures;  // most nodes first
  std::vector<Holder> holders;        // most first, of each resource
  bool holders_complete = true;       // false: not all leases were looked at
  // Not even if every node that is known were idle.
  bool never_fits = false;
};

// Jobs that are tried before it and may take what it needs.  It may start
// before them where they do not fit and it does.
struct Ahead {
  struct Job {
    JobId id;
    std::string name;
    int priority = 0;
  };
  int64_t jobs = 0;
  bool more = false;  // there are more than were counted
  std::vector<Job> first;
};

// One change after which it would start, if nobody comes first.
struct Remedy {
  std::string kind;         // "FEWER_WORKERS", "UNDRAIN"
  bool of_request = false;  // false: of the cluster
  std::string text;         // "6 workers instead of 8"
  std::string how;          // "--num-workers 6"; may be empty
};

// What kept the job, for a time; of kind "unknown" it is not remembered.
struct WaitReason {
  absl::Time since;
  std::optional<absl::Time> until;  // nothing: it still holds
  Blocker blocker;
};

// Elements of an array that wait for the same; each is counted once.
struct WaitingElements {
  std::string kind;  // as Blocker::kind
  int64_t count = 0;
  std::optional<JobId> first;  // nothing: not known
};

struct Explanation {
  JobId job;
  std::string name;
  JobState state = JobState::kUnknown;
  std::string summary;            // on one line
  std::vector<Blocker> blockers;  // all of them; none when it does not wait
  Ahead ahead;
  std::vector<Remedy> changes;   // smallest first
  bool changes_complete = true;  // false: the search was cut short
  // What was asked for of the past, oldest first.
  std::vector<WaitReason> history;
  // Of an array: whom the rest is about, and what all that wait wait for.
  std::optional<JobId> element;
  std::vector<WaitingElements> elements;
};

struct ExplainOptions {
  // Why it waited then.
  std::optional<absl::Time> at;
  // All that is remembered.
  bool history = false;
  std::optional<absl::Duration> deadline;
};

}  // namespace cohort
