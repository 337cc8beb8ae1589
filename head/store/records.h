#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/message_differencer.h"

#include "cohort/v1/domain.pb.h"
#include "cohort/v1/storage.pb.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/store/shared.h"

// The rows of the cluster's state as the head's domain sees them.
//
// Plain values: ClusterState's tables own the current ones, Transition carries
// changed ones, records_codec turns them into storage.proto bytes and back.
// Wall times are for people; nothing is decided by them.
namespace cohort::v1 {

// Messages are compared by value, as what else records are made of.
template <std::derived_from<google::protobuf::Message> Message>
bool operator==(const Message& a, const Message& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

}  // namespace cohort::v1

namespace cohort::storage::v1 {
using cohort::v1::operator==;
}

namespace cohort::head {

// Nouns that the head keeps as the wire has them.
using AttemptCause = v1::AttemptCause;
using AttemptState = v1::AttemptState;
using Checkpoint = v1::Checkpoint;
using Dependency = v1::Dependency;
using DependencyKind = v1::DependencyKind;
using Device = v1::Device;
using DeviceState = v1::DeviceState;
using Drain = v1::Drain;
using ExitStatus = v1::ExitStatus;
using FailureClass = v1::FailureClass;
using JobSpec = v1::JobSpec;  // ValidateJobSpec filled what was left out
using JobState = v1::JobState;
using NodeState = v1::NodeState;
using Origin = v1::Origin;
using PlacePhase = v1::PlacePhase;
using PlacementStrategy = v1::PlacementStrategy;
using Preflight = v1::Preflight;
using PreflightVerdict = v1::PreflightVerdict;
using ProcessState = v1::ProcessState;
using RestartPolicy = v1::RestartPolicy;
using WaitKind = v1::WaitKind;

// The bytes of an id in a message, none of a nil one, and back: of one that was
// checked before.
template <typename Id>
std::string IdBytes(const Id& id) {
  return id.IsNil() ? std::string() : std::string(id.bytes());
}
template <typename Id>
Id IdOf(absl::string_view bytes) {
  return bytes.empty() ? Id() : Id::FromBytes(bytes).value_or(Id());
}

inline bool EndedWell(const ExitStatus& exit) {
  return exit.code() == 0 && exit.signal() == 0;
}

// Grows with every change of storage.proto or of an enum below, whose values it
// stores as numbers: an older head must not read, and by writing drop, what a
// newer one stored, nor call a row damaged whose value it does not know.  Kept
// in the cluster row.
inline constexpr uint32_t kSchemaVersion = 1;

// One life of a head on this store: from its term on until the next one's.
struct HeadLife {
  uint64_t term = 0;
  uint64_t nonce = 0;              // by chance: in a copy it is another one
  uint64_t first_incarnation = 0;  // that it could give to a node

  friend bool operator==(const HeadLife&, const HeadLife&) = default;
};

// One row: what the store belongs to and who may write it.
struct ClusterRecord {
  ClusterId cluster;
  GenerationId generation;
  uint64_t term = 0;
  uint64_t next_event = 1;
  uint64_t next_incarnation = 1;
  uint64_t next_job_sequence = 1;
  // The store was restored from a backup, and nodes with attempts that it does
  // not know of may still come: nothing is placed.
  bool settling = false;
  // Nodes have, or may have, attempts without a row that wait for a person: the
  // next start settles again, since only the nodes can tell of them.
  bool rowless_orphans = false;
  // Orphans without rows that a person has ended: the last ones.
  std::vector<AttemptId> ended_orphans;
  // Of this generation, those that nodes may have followed last; the last one
  // is now (head/state/head_lives.h).
  std::vector<HeadLife> lives;

  friend bool operator==(const ClusterRecord&, const ClusterRecord&) = default;
};

struct NodeRecord {
  NodeId id;
  NodeState state = v1::NODE_STATE_ALIVE;
  uint64_t cause = 0;  // the event of its drain, or else of its registration
  // What is told of it.  The head knows by itself, and does not keep here: its
  // id and shown state, what is available, how `device_states` show its
  // devices. A drain stands until a person undrains the node.  `since`: its
  // state, as people are shown it, became what it is.  `unfit` is kept with it:
  // a new head knows since when it is UNFIT.
  v1::Node node;

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// What a job did or waited for since a time, but for the end of others: that is
// told by when they ended.
struct JobPhase {
  WaitKind kind = v1::WAIT_KIND_RESOURCES;
  absl::Time since = absl::InfinitePast();

  friend bool operator==(const JobPhase&, const JobPhase&) = default;
};

// Written once, so that no change of a job writes it again.
struct SpecRecord {
  JobId id;  // of the job or array
  Shared<JobSpec> spec;

  friend bool operator==(const SpecRecord&, const SpecRecord&) = default;
};

struct JobRecord {
  JobId id;
  Origin origin;
  // In a row of its own, that of `id.array()`, with which a load joins it.
  Shared<JobSpec> spec;
  uint64_t sequence = 0;  // place in line: order of submission
  JobState state = v1::JOB_STATE_PENDING;
  std::string reason;
  int attempts = 0;           // number of the last attempt
  int64_t epoch = 0;          // of the last attempt's membership
  uint64_t incarnations = 0;  // that its processes were given
  // Slots that it is to have: the spec's until it was resized.
  int num_workers = 0;
  int failures = 0;
  int infra_restarts = 0;
  std::map<FailureClass, int> failures_by_class;  // charged or not
  bool held = false;
  std::string held_by;  // the principal
  // Running time of the attempts that ended, against spec.time_limit.
  absl::Duration ran = absl::ZeroDuration();
  FailureClass failure_class = v1::FAILURE_CLASS_NONE;  // of the last failure
  // How the last failure came about, the first cause first.
  std::vector<std::string> causes;
  std::optional<ExitStatus> exit;  // of the rank that failed first
  int failed_rank = -1;
  std::string stderr_tail;
  absl::Time submitted_at = absl::InfinitePast();
  absl::Time started_at = absl::InfinitePast();  // InfinitePast: not yet
  absl::Time ended_at = absl::InfinitePast();
  std::string metrics_json;
  uint64_t metrics_count = 0;
  std::vector<Checkpoint> checkpoints;  // committed, oldest first
  std::vector<std::string> retired;     // directories still to be removed
  std::vector<JobPhase> phases;         // the last ones, oldest first
  std::optional<Preflight> preflight;   // of the last attempt that had one
  // Its array's row says what its own does not yet; not stored.
  bool behind = false;

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// A slot of an attempt: who occupies it, or did last.
struct Process {
  int slot = 0;
  // By the job's counter, never used twice; 0: the slot was never filled.
  uint64_t incarnation = 0;
  NodeId node;  // nil: the slot waits to be filled
  int local_rank = 0;
  std::map<std::string, Amount> devices;  // GPU id -> how much of it
  ProcessState state = v1::PROCESS_STATE_PENDING;
  int64_t pid = 0;                 // not stored
  std::optional<ExitStatus> exit;  // of this incarnation, or the last one
  absl::Duration ran;              // of all incarnations that ended
  int failures = 0;                // charged to the slot
  int moves = 0;                   // ends that nobody is charged for
  // The slot is filled again once the process has ENDED and its back-off has
  // run; it keeps its room until then, while it has a node.
  bool again = false;
  bool leaving = false;  // it is to end, and the slot be filled elsewhere
  bool retired = false;  // it is to end, and the slot go with it
  bool has_row = false;  // of its own; not stored

  // Nothing of it runs, nor will.
  bool over() const { return node.IsNil() || state == v1::PROCESS_STATE_ENDED; }
  // The slot has no room.
  bool waits() const { return node.IsNil(); }
  // The slot is filled again, not yet.
  bool backs_off() const { return again && over(); }
  bool succeeded() const {
    return state == v1::PROCESS_STATE_ENDED && exit.has_value() &&
           EndedWell(*exit);
  }
  friend bool operator==(const Process&, const Process&) = default;
};

// What an attempt has on a node beside its processes there.
struct Place {
  NodeId node;
  PlacePhase phase = v1::PLACE_PHASE_ASSIGNED;
  int master_port = 0;  // reserved by the node of slot 0

  friend bool operator==(const Place&, const Place&) = default;
};

struct AttemptRecord {
  AttemptId id;
  JobId job;
  int number = 0;
  // Of its membership; under ONE and NONE the job's row has it while it goes
  // on.
  int64_t epoch = 0;
  AttemptState state = v1::ATTEMPT_STATE_PREPARING;
  std::vector<Place> places;
  std::vector<Process> processes;  // by slot
  std::string master_address;
  int master_port = 0;
  AttemptCause cause = v1::ATTEMPT_CAUSE_NONE;
  std::string detail;
  std::optional<ExitStatus> exit;
  int failed_rank = -1;
  std::vector<std::string> causes;  // how its end came about, first cause first
  uint32_t gpu_abort_levels =
      0;  // bit n: an event tells of GpuAbortLevel n of some rank
  Origin origin;
  // Since the store was restored from a backup; InfinitePast: it is not.  What
  // became of it after the backup is not known: a person says whether the job
  // goes on with it.  Its job does nothing meanwhile.
  absl::Time orphaned_since = absl::InfinitePast();

  bool orphaned() const { return orphaned_since != absl::InfinitePast(); }
  friend bool operator==(const AttemptRecord&, const AttemptRecord&) = default;
};

// A slot that changed since its attempt's row was written, while the attempt
// goes on; the attempt's last row has it.
struct ProcessRecord {
  AttemptId attempt;
  uint64_t slot = 0;
  Process process;

  friend bool operator==(const ProcessRecord&, const ProcessRecord&) = default;
};

// How those elements of an array end that have not, until all were told: the
// cause, stored at once, from which their ends follow in turns (BD-1).
struct ArrayEnd {
  JobState to = v1::JOB_STATE_STOPPED;  // else kFailed: those that are PENDING
  std::string reason;
  std::vector<std::string> causes;  // as in JobRecord
  FailureClass failure_class = v1::FAILURE_CLASS_NONE;
  bool spares_held = false;  // and those that wait for an orphan
  uint64_t cause = 0;        // the event that told of it

  friend bool operator==(const ArrayEnd&, const ArrayEnd&) = default;
};

// What is so of those of its elements that were PENDING with an event of before
// `cause`, until their own rows say it (BD-1).
struct ArrayHold {
  bool held = true;  // else they are released
  std::string by;    // the principal; empty of a release
  uint64_t cause = 0;

  friend bool operator==(const ArrayHold&, const ArrayHold&) = default;
};

// What the elements of an array have in common.
struct ArrayRecord {
  JobId id;  // its elements are id.Element(index)
  Origin origin;
  Shared<JobSpec> spec;  // as a job's
  absl::Time submitted_at = absl::InfinitePast();
  std::optional<ArrayEnd> end = std::nullopt;
  std::optional<ArrayHold> hold = std::nullopt;
  // Of its first element, while some have no row yet: these are as they were
  // submitted (BD-1).  0: each has one.
  uint64_t first_sequence = 0;

  friend bool operator==(const ArrayRecord&, const ArrayRecord&) = default;
};

using RequestRecord = storage::v1::RequestRow;
// Pinned while a job that has not ended names it.
using PackageRecord = storage::v1::PackageRow;
using WaitReasonRecord = storage::v1::WaitReasonRow;

// As much as the end of a gang of thousands may take of the event log.
inline constexpr size_t kEventNodesMax = 512;

using EventRecord = v1::Event;  // node_ids: at most kEventNodesMax

}  // namespace cohort::head
