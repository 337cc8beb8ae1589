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

#include "cohort/v1/autoscaler.pb.h"
#include "cohort/v1/domain.pb.h"
#include "cohort/v1/security.pb.h"
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

using ClusterRecord = storage::v1::ClusterRow;
using HeadLife = storage::v1::HeadLife;
// Of an empty store.
ClusterRecord NewCluster();

// Microseconds since 1970, as times are stored; 0 and InfinitePast: not yet.
inline int64_t ToMicros(absl::Time time) {
  return time == absl::InfinitePast() ? 0 : absl::ToUnixMicros(time);
}
inline absl::Time FromMicros(int64_t micros) {
  return micros == 0 ? absl::InfinitePast() : absl::FromUnixMicros(micros);
}

struct NodeRecord {
  NodeId id;
  NodeState state = v1::NODE_STATE_ALIVE;
  uint64_t cause = 0;  // the event of its drain, or else of its registration
  // What others report of it.  The head knows by itself, and does not keep
  // here: its id and shown state, what is available, how `device_states` show
  // its devices. A drain stands until a person undrains the node.  `since`: its
  // state, as people are shown it, became what it is.  `not_ready` is kept with
  // it: a new head knows since when it is NOT_READY.
  v1::Node node;

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// Written once, so that no change of a job writes it again.
struct SpecRecord {
  JobId id;  // of the job or array
  Shared<JobSpec> spec;

  friend bool operator==(const SpecRecord&, const SpecRecord&) = default;
};

using JobPhase = storage::v1::JobPhase;

struct JobRecord {
  JobRecord() {
    row.set_state(v1::JOB_STATE_PENDING);
    row.set_failed_rank(-1);
  }
  explicit JobRecord(const JobId& of) : JobRecord() {
    id = of;
    row.set_job_id(IdBytes(id));
  }

  JobId id;  // as in its row
  // In a row of its own, that of `id.array()`, with which a load joins it.
  Shared<JobSpec> spec;
  storage::v1::JobRow row;
  // Its array's row says what its own does not yet; not stored.
  bool behind = false;

  absl::Time submitted_at() const { return FromMicros(row.submitted_at_us()); }
  // InfinitePast: not yet.
  absl::Time started_at() const { return FromMicros(row.started_at_us()); }
  absl::Time ended_at() const { return FromMicros(row.ended_at_us()); }
  absl::Duration ran() const { return absl::Microseconds(row.ran_us()); }
  // None: it is not known.
  void SetExit(const std::optional<ExitStatus>& exit) {
    row.clear_exit();
    if (exit.has_value()) *row.mutable_exit() = *exit;
  }

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
  int64_t pid = 0;  // not stored
  // Where it serves calls, of an actor; not stored.
  std::vector<std::string> addresses;
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

using ArrayEnd = storage::v1::ArrayEnd;
using ArrayHold = storage::v1::ArrayHold;

struct ArrayRecord {
  JobId id;
  Shared<JobSpec> spec;  // as a job's
  storage::v1::ArrayRow row;

  friend bool operator==(const ArrayRecord&, const ArrayRecord&) = default;
};

using RequestRecord = storage::v1::RequestRow;
// Pinned while a job that has not ended names it.
using PackageRecord = storage::v1::PackageRow;
using WaitReasonRecord = storage::v1::WaitReasonRow;
using DriverRecord = storage::v1::DriverRow;
using ClusterFile = v1::ClusterFile;
using InstanceRecord = v1::Instance;
using CapacityRecord = v1::CapacityRequest;
using TokenRecord = v1::Token;
using MetricsRecord = storage::v1::MetricsRow;
using AuditRecord = v1::AuditEntry;

// As much as the end of a gang of thousands may take of the event log.
inline constexpr size_t kEventNodesMax = 512;

using EventRecord = v1::Event;  // node_ids: at most kEventNodesMax

}  // namespace cohort::head
