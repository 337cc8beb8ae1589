#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/actor.pb.h"
#include "common/clock.h"
#include "common/job_id.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/strong_id.h"
#include "head/state/attempt_table.h"
#include "head/state/audit_table.h"
#include "head/state/change.h"
#include "head/state/deadlines.h"
#include "head/state/desired.h"
#include "head/state/drain_order.h"
#include "head/state/driver_table.h"
#include "head/state/exchange_table.h"
#include "head/state/fleet.h"
#include "head/state/history.h"
#include "head/state/job_gates.h"
#include "head/state/job_table.h"
#include "head/state/later_store.h"
#include "head/state/metrics_table.h"
#include "head/state/node_links.h"
#include "head/state/node_table.h"
#include "head/state/observed.h"
#include "head/state/orphans.h"
#include "head/state/package_table.h"
#include "head/state/request_table.h"
#include "head/state/rows.h"
#include "head/state/run_controller.h"
#include "head/state/slot_ask.h"
#include "head/state/token_table.h"
#include "head/state/waiting_line.h"
#include "head/store/records.h"
#include "head/store/transition.h"

namespace cohort::head {

// What bounds the head's memory and disk however long it runs.
struct ClusterLimits {
  // Silence after which a node is dead.
  absl::Duration node_timeout = absl::Seconds(10);
  // Between two calls of Tick.
  absl::Duration tick_period = absl::Milliseconds(200);
  size_t waiting_jobs_max = 1'000'000;
  // The specs of jobs that have not ended are in memory.
  int64_t live_spec_bytes_max = int64_t{1} << 30;
  size_t nodes_max = 10'000;  // alive
  size_t drains_max = 10'000;
  size_t drivers_max = 10'000;
  // Rows of one decision from which on what follows from it goes on in the next
  // turns (BD-1): some 10 ms of the strand.
  size_t turn_rows_max = 1'000;
  absl::Duration metrics_period = absl::Seconds(1);
  HistoryLimits history;
  RunController::Limits runs;
};

// A mutating request as the client identifies it (RQ-1).
struct RequestKey {
  std::string principal;
  std::string request_id;
  std::string body_hash;  // SHA-256 of the request
  std::string user = {};  // as Origin.user
};

// What a node is told first, then sent.
struct RegisteredNode {
  uint64_t incarnation = 0;
  std::vector<v1::DesiredPlace> desired;  // the full set
  std::vector<SharedExchange> exchanges;
  std::vector<Acknowledged> acknowledged;
};

// The cluster's truth: all tables, and the only thing that changes them.
//
// Built from rows alone, so that it can be thrown away and built again at any
// time (CM-3).  Each change takes a Transition, into which it puts the rows
// that changed, events and effects; the caller submits it, also when the call
// gave an error (then it is empty).  Decides at once and speaks through effects
// only.  Thread-compatible; the head strand owns it.  Everything passed by
// reference outlives it; effects do not refer to it.
class ClusterState {
 public:
  // All nodes get full leases and are not offered (PL-3, LS-1).  Secrets of
  // jobs are kept sealed by `box`; null: as they come.
  ClusterState(ClusterLimits limits, const Clock& clock, Random& random,
               NodeLinks& links, JobWatchers& watchers, Rows rows,
               std::shared_ptr<const SecretBox> box = nullptr);
  ~ClusterState();

  ClusterState(const ClusterState&) = delete;
  ClusterState& operator=(const ClusterState&) = delete;

  // Takes the next term, and makes the cluster's ids when the store was empty.
  // The first change of each head's life and of each rebuilt state (TM-1).
  void TakeTerm(Transition& transition);

  // ---- clients ----

  // Makes a job, or an array of jobs with one id for all, or gives what the
  // same request made.  InvalidArgument: the spec can never run; NotFound: it
  // is to start after a job that is not here; AlreadyExists: another body under
  // this request id; FailedPrecondition: the package is not complete;
  // ResourceExhausted: too many jobs wait, or live specs take too much memory.
  absl::StatusOr<JobId> SubmitJob(const RequestKey& request,
                                  const std::string& name_space, JobSpec spec,
                                  Transition& transition);

  // Asks a job to stop; OK for one that is stopping or ended.  The elements of
  // an array end in turns (GoOn).  NotFound; AlreadyExists as above.
  absl::Status StopJob(const RequestKey& request, const JobId& job,
                       Transition& transition);

  // Keeps a PENDING job, or those elements of an array that are, from starting
  // until it is released; OK for one that is held.  NotFound;
  // FailedPrecondition: nothing of it waits; AlreadyExists as above.
  absl::Status HoldJob(const RequestKey& request, const JobId& job,
                       Transition& transition);
  // Puts it back at its place in line; OK for one that is not held.  NotFound;
  // AlreadyExists as above.
  absl::Status ReleaseJob(const RequestKey& request, const JobId& job,
                          Transition& transition);

  // Forgets a job that has ended, or an array (GoOn).  NotFound;
  // FailedPrecondition: it has not ended, or others wait for it; AlreadyExists
  // as above.
  absl::Status RemoveJob(const RequestKey& request, const JobId& job,
                         Transition& transition);

  // A job with restart policy ONE or NONE has this many slots from now on: what
  // is to be added is placed whole or waits, and the highest ones end.
  // NotFound; InvalidArgument: no such number can be; FailedPrecondition: its
  // policy is another one, or it ends or has ended; AlreadyExists as above.
  absl::Status ResizeJob(const RequestKey& request, const JobId& job,
                         int num_workers, Transition& transition);

  // ---- drivers ----

  // A program that owns actors from now on.  With `owner` it is that process of
  // a job, and ends with it.  InvalidArgument: its name or its timeout;
  // ResourceExhausted: too many; FailedPrecondition: that process is over.
  absl::StatusOr<DriverId> OpenDriver(const std::string& principal,
                                      const std::optional<ProcessId>& owner,
                                      const v1::OpenDriver& request,
                                      Transition& transition);
  // It is here again.  NotFound (session_over): its actors were ended.
  absl::Status ResumeDriver(const DriverId& driver);
  // Its stream broke: it is waited for as long as it said.
  void AwaitDriver(const DriverId& driver);
  // It is over, because it `why`: its actors end in turns (GoOn).  Nothing
  // when it is.
  void EndDriver(const DriverId& driver, absl::string_view why,
                 Transition& transition);

  // A package is whole on disk, for the first time or again.
  void CompletePackage(const std::string& hash, int64_t size_bytes,
                       Transition& transition);
  // Its file is gone or damaged, says `why`: told as an event, once.  Nothing
  // when it is not one of ours.
  void LosePackage(const std::string& hash, absl::string_view why,
                   Transition& transition);

  // Somebody is about to name a package: it stays for another hour.
  void TouchPackage(const std::string& hash) { packages_.Touch(hash); }

  // Packages that history has no room for and that `uploading` does not name
  // go; gives their hashes, whose files are to go once that is durable.
  std::vector<std::string> TrimPackages(const std::set<std::string>& uploading,
                                        Transition& transition);

  // ---- nodes ----

  // Takes a node in under a new incarnation and applies its full observed set
  // before anything of it is offered (PL-3).  InvalidArgument: what it says of
  // itself cannot be; ResourceExhausted: too many nodes.
  absl::StatusOr<RegisteredNode> RegisterNode(const Registration& registration,
                                              Transition& transition);

  // What a node reports.  Nothing when it is not registered as `incarnation`.
  // InvalidArgument, and nothing changed: it cannot be; ResourceExhausted: the
  // node has too much that nobody gave it.
  absl::Status Observe(const NodeId& node, uint64_t incarnation,
                       const v1::Observed& observed, Transition& transition);

  // A sign of life.
  void RenewLease(const NodeId& node, uint64_t incarnation,
                  Transition& transition);

  // Why no attempt could begin on the node, as it says; empty: it could.
  // Nothing when it is not registered as `incarnation`, or said so before.
  void NoteReadiness(const NodeId& node, uint64_t incarnation,
                     const std::string& not_ready, Transition& transition);

  // How the node's devices are, as it says.  Nothing when it is not registered
  // as `incarnation`; of devices that it does not have.
  void NoteDevices(const NodeId& node, uint64_t incarnation,
                   std::vector<v1::DeviceStatus> devices,
                   Transition& transition);

  // It follows another store of this cluster, of `term`, and was sent away.
  void NoteLaterStore(const NodeId& node, const std::string& name,
                      uint64_t term) {
    later_store_.Note(node, name, term, clock_.Monotonic());
  }

  // Its stream ended, or it says that it is about to go: not offered until it
  // registers again, not dead either.
  void WithdrawNode(const NodeId& node, uint64_t incarnation);

  // Nothing new is placed on the node that `text` means (FindNode) until it is
  // undrained, whatever restarts meanwhile; what runs there goes on until the
  // deadline, then it is moved.  Of a drained node, replaces reason and
  // deadline.  Gives which node it is.  Errors as ValidateDrainOrder, FindNode
  // and RequestTable::Find; ResourceExhausted: too many are drained.
  absl::StatusOr<NodeId> DrainNode(const RequestKey& request,
                                   const std::string& text,
                                   const DrainOrder& order,
                                   Transition& transition);
  // The node takes work again; OK when it is not drained.
  absl::StatusOr<NodeId> UndrainNode(const RequestKey& request,
                                     const std::string& text,
                                     Transition& transition);
  // ---- who is let in ----

  // One of that id that is the same is given as it is.  AlreadyExists: one of
  // that id is another; a living one has the user's name, or is the node's.
  // ResourceExhausted: too many.  PermissionDenied (token_used): `joins_by`,
  // the token that a node's is asked for with, is an instance's, and let
  // another node in.
  absl::StatusOr<TokenRecord> AddToken(TokenRecord token,
                                       Transition& transition,
                                       const std::string& joins_by = "");
  // NotFound.
  absl::StatusOr<TokenRecord> RevokeToken(const std::string& principal,
                                          const std::string& id,
                                          Transition& transition);

  // Adds a call to the audit log.
  void Audit(AuditRecord call, Transition& transition) {
    audit_.Add(std::move(call), transition);
  }

  // ---- what providers launch ----

  // REQUIRES: what is given was read from a text (cluster_file.h).
  void ApplyClusterFile(const std::string& principal, ClusterFile file,
                        Transition& transition);
  // For so long, or until it is withdrawn.  ResourceExhausted: too many.
  absl::Status RequestCapacity(CapacityRecord capacity, absl::Duration ttl,
                               Transition& transition);
  // NotFound.
  absl::Status WithdrawCapacity(const std::string& principal,
                                const CapacityKey& key, Transition& transition);
  // One more of this type is to be launched, for `job` unless that is nil.
  void AddInstance(const std::string& type, const JobId& job,
                   const std::string& why, Transition& transition);
  // Nothing when it is not here, or there already.  `detail`: of ALLOCATED the
  // provider's id, of TERMINATING why, else for people.
  void MoveInstance(const InstanceId& id, v1::InstanceState to,
                    const std::string& detail, Transition& transition);
  // What its provider calls it, and why it does not run yet; without an event.
  void SetProviderId(const InstanceId& id, const std::string& provider_id,
                     Transition& transition);
  void SetInstanceReason(const InstanceId& id, const std::string& reason,
                         Transition& transition);
  // Its provider has one of which no row is left, as after a restore: when its
  // node is here it has a row again, and true is given.
  bool AdoptInstance(const InstanceId& id, const std::string& provider_id,
                     Transition& transition);
  // A JOINED one takes nothing new, and what runs there is moved after
  // `deadline`.
  void DrainInstance(const InstanceId& id, const std::string& why,
                     absl::Duration deadline, Transition& transition);
  // What the job wrote on that node goes with it: an event, and a warning of
  // the job.  Not `known`: it may have written nothing.
  void NoteLostResults(const JobId& job, const NodeId& node, bool known,
                       Transition& transition);
  // A provider's node that does not come back, nor what lay there: it is away,
  // and has ended, or is to end.
  bool IsGoneForGood(const NodeId& node) const;
  // It is drained until then.
  bool HasDeadlineAhead(const NodeId& node) const {
    return deadlines_.Contains({DueKind::kDrain, node});
  }
  // The provider was asked to end it, for the `tries`th time, and did not.
  void NoteNotEnded(const InstanceId& id, int tries, const std::string& why,
                    Transition& transition);
  // An event of the autoscaler's that is about no instance.
  void NoteScaling(const char* kind, std::string text, Transition& transition);
  // Nothing is left of it.
  void EndInstance(const InstanceId& id, const std::string& why,
                   Transition& transition);

  // ---- after a restore ----

  // A person speaks for an orphan (OR-1); each gives its job.  NotFound: it is
  // none; AlreadyExists as above.

  // Its job goes on with it.  FailedPrecondition, saying why: it has no row, or
  // may be over.
  absl::StatusOr<JobId> AdoptAttempt(const RequestKey& request,
                                     const AttemptId& attempt,
                                     Transition& transition);
  // Its ranks are ended; its job goes on as after a lost node, uncharged.  One
  // without a row is killed where it is, and its job goes on once its nodes
  // said that it is gone, or are dead (OR-2).
  absl::StatusOr<JobId> EndAttempt(const RequestKey& request,
                                   const AttemptId& attempt,
                                   Transition& transition);

  // ---- time ----

  // Expires leases, trims history, stores metrics that waited, and goes on with
  // a pass over the line that was cut short.  Every tick_period.
  void Tick(Transition& transition);
  // Something follows from what is decided and stored: GoOn does some of it, a
  // bounded number of rows.
  bool HasToGoOn() const {
    return !jobs_.arrays().ending().empty() || gates_.after().HasBroken() ||
           !jobs_.arrays().behind().empty() || !untold_phases_.empty() ||
           !emptying_.empty() || !drivers_.ending().empty() ||
           (!drivers_.unowned().empty() && !cluster_.settling());
  }
  void GoOn(Transition& transition);

  // ---- reads ----

  const ClusterLimits& limits() const { return limits_; }
  const ClusterRecord& cluster() const { return cluster_; }
  const NodeTable& nodes() const { return nodes_; }
  const JobTable& jobs() const { return jobs_; }
  const AttemptTable& attempts() const { return attempts_; }
  const PackageTable& packages() const { return packages_; }
  const RequestTable& requests() const { return requests_; }
  const DriverTable& drivers() const { return drivers_; }
  const Fleet& fleet() const { return fleet_; }
  const TokenTable& tokens() const { return tokens_; }
  const MetricsTable& metrics() const { return metrics_; }
  // As TokenTable::Keep.
  void KeepTokens(std::shared_ptr<rpc::TokenBook> book) {
    tokens_.Keep(std::move(book));
  }
  const OrphanTable& orphans() const { return orphans_; }
  // Nodes that refuse this head, as its store is older than theirs.
  std::optional<LaterStore::Sight> later_store() const {
    return later_store_.Look(clock_.Monotonic());
  }
  // Jobs that wait, whatever for.
  size_t waiting_count() const {
    return static_cast<size_t>(jobs_.CountOf(v1::JOB_STATE_PENDING));
  }
  // What happened since this state was loaded, for metrics.
  struct Counters {
    std::map<std::string, uint64_t> events_by_kind;
    uint64_t placements = 0;  // of whole gangs
    size_t most_rows = 0;     // that one decision has written (BD-1)
    // By failure class, or how else: "user", "infra", "succeeded", "stopped".
    std::map<std::string, uint64_t> attempts_ended;
  };
  const Counters& counters() const { return counters_; }
  // PENDING jobs, and slots of running ones, by what keeps them; none of an
  // array that is about to end.
  std::map<std::string, int64_t> WaitingByReason() const;
  const WaitingLine& line() const { return line_; }
  const JobGates& gates() const { return gates_; }
  // All that keeps a PENDING job, but the want of room; the first is what it
  // waits for.
  std::vector<Wait> WaitsOf(const JobRecord& job) const;
  // How much is remembered of what is over, by kind (HI-1).
  std::vector<HistoryLevel> HistoryLevels() const;
  // How long ranks of a job ran, over all attempts: what its time limit counts.
  // Of one that runs it is not known before its end, and told as the head sees
  // it.
  absl::Duration RanOf(const JobRecord& job) const;
  // Of an id that names no job here: NotFound, naming an orphan of it where
  // there is one.
  absl::Status NoJob(const JobId& id) const;
  // An element that has not been told yet how its array ends.
  bool WillEnd(const JobRecord& job) const;
  bool IsSpared(const ArrayEnd& end, const JobRecord& job) const;
  // Why a job waits or ended.
  std::string ReasonOf(const JobRecord& job) const;
  // Its slots that wait: of each ask those that are placed together, or not at
  // all.
  struct SlotsInLine {
    AskId ask;
    std::vector<int> slots;
  };
  std::vector<SlotsInLine> SlotsInLineOf(const JobId& job) const;
  // Whether it waits although not even idle nodes would hold it.
  bool NeverFits(const JobRecord& job) const {
    return job.row.state() == v1::JOB_STATE_PENDING &&
           line_.NeverFits(job, nodes_.index());
  }

 private:
  void Load(Rows rows);

  // ---- jobs (cluster_state_jobs.cc) ----
  // What Mutate is given by the calls of the same names.
  absl::StatusOr<JobId> SubmitJob(const RequestKey& request,
                                  const std::string& name_space, JobSpec spec,
                                  Change& change);
  absl::StatusOr<JobId> StopJob(const JobId& id, Change& change);
  absl::StatusOr<JobId> HoldJob(const JobId& id, Change& change);
  absl::StatusOr<JobId> ReleaseJob(const JobId& id, Change& change);
  absl::StatusOr<JobId> RemoveJob(const JobId& id, Change& change);
  absl::StatusOr<JobId> ResizeJob(const JobId& id, int num_workers,
                                  Change& change);
  absl::StatusOr<JobId> AdoptAttempt(const AttemptId& attempt, Change& change);
  absl::StatusOr<JobId> EndAttempt(const AttemptId& attempt, Change& change);
  absl::StatusOr<NodeId> DrainNode(const std::string& text,
                                   const DrainOrder& order, Change& change);
  absl::StatusOr<NodeId> UndrainNode(const std::string& text, Change& change);
  absl::Status CheckRoom(const JobSpec& spec, size_t count) const;
  void AddJob(JobRecord job, Change& change);
  // One job for each index, all as `model`.
  void AddArray(JobRecord model, const std::vector<uint32_t>& indices,
                Change& change);
  // An event of a job or an array; gives its number.
  uint64_t TellOf(const JobId& id, const char* kind, std::string text,
                  Change& change);
  // A job, or all elements of an array.  NotFound.
  absl::StatusOr<std::vector<JobId>> JobsOf(const JobId& id) const;
  // All of these are held or let go, which `id` names.
  void HoldAll(const JobId& id, const std::vector<JobId>& jobs, bool held,
               Change& change);
  // Its ranks end, or it does not begin.
  void Stop(JobRecord& job, Change& change,
            const std::string& why = kStoppedOnRequest);
  // Once nothing but resources and its back-off keeps it (EL-1).
  void StandInLine(const JobRecord& job);
  void LeaveLine(const JobRecord& job);
  // Something of a PENDING job runs already: it does not wait for a place.
  void Occupy(const JobRecord& job, Change& change);
  // What a job that has not ended does or waits for.
  WaitKind PhaseOf(const JobRecord& job) const;
  // Lets in whom others have kept, and ends whom they failed (DP-1).
  void AdmitReady(Change& change);
  // Some that a gate kept ask again.
  void AskAgain(const std::vector<JobId>& jobs, Change& change);
  void FailBroken(Change& change);
  void FailWaiting(const Dependencies::Broken& broken, Change& change);
  // An element ended because the head lost its package: those of its array that
  // wait for a place end too, instead of learning it one by one.
  void FailWithoutPackage(const JobRecord& failed, Change& change);

  // ---- drivers (cluster_state_drivers.cc) ----
  // Whether a driver is there to own it, and its name is free (AC-1).
  absl::Status CheckActor(const JobSpec& spec,
                          const std::string& name_space) const;
  void EndDriver(const DriverId& driver, absl::string_view why, Change& change);
  // Whether its process runs; of a driver that is in no job it is not known.
  bool IsOwned(const DriverRecord& driver) const;
  // Those whose processes are gone by what `change` has, in turns.
  void EndUnownedDrivers(Change& change);
  void NoteUnownedDrivers(const Change& change);
  // Those that were waited for long enough.
  void EndAbsentDrivers(Change& change);
  // What drivers owned that are over, in turns.
  void EndActors(Change& change);
  // False when some are left to be told.
  bool EndActorsOf(const DriverId& driver, Change& change);
  // Once nothing that it owned lives.
  void ForgetDriver(const DriverId& driver, Change& change);

  // ---- instances (cluster_state_instances.cc) ----
  void DropCapacity(const CapacityKey& key, const char* kind, std::string text,
                    Change& change);
  void ExpireCapacity(Change& change);
  void PutInstance(InstanceRecord instance, Change& change);
  // It goes to another state, with an event.
  void SetState(InstanceRecord& instance, v1::InstanceState to,
                const std::string& detail, Change& change);
  void DrainInstance(InstanceRecord instance, const std::string& why,
                     absl::Duration deadline, Change& change);
  // The node may be one that was launched, as its label says.
  void JoinInstance(const NodeId& node, Change& change);
  // A machine that is launched joins by a token of its own: from before it is
  // launched until it has joined or is gone.
  void AddLaunchToken(const InstanceId& id, Change& change);
  // The token of that id, if it is an instance's; else null.
  const TokenRecord* LaunchToken(const std::string& id) const;
  // Whether that node may be the instance, as far as tokens tell.
  bool CameAs(const NodeId& node, const InstanceId& instance) const;
  void DropToken(const TokenRecord* token, Change& change);

  // ---- what follows in turns (cluster_state_turns.cc) ----
  // Its elements end so, now as many as this turn has room for.  Nothing when
  // it is ending already, unless a person stops it.
  void EndArray(const JobId& array, ArrayEnd end, Change& change);
  void EndElements(Change& change);
  // False when some are left to be told.
  bool EndElementsOf(const JobId& array, Change& change);
  void EndElement(JobRecord& job, const ArrayEnd& end, Change& change);
  // The rows that are behind, in half a turn: the rest is for who starts.
  void WriteElements(Change& change);
  // False when some are left to be written.
  bool WriteElementsOf(const JobId& array, Change& change);
  // A job may have gone on to another phase by itself: then its row says so,
  // now or in a later turn.
  void TellPhase(const JobRecord& job, Change& change);
  void WritePhases(Change& change);
  // Attempts on a node that is dead are lost there, and those on one whose
  // drain has passed are moved; because of the event `cause`.
  void Empty(const NodeId& node, uint64_t cause, Change& change);
  void EmptyNodes(Change& change);
  // Unless one of the two still holds.
  void Spare(const NodeId& node);
  // False when some are left.
  bool EmptyNode(const NodeId& node, Change& change);
  bool TurnIsFull(const Change& change) const {
    return change.row_count() >= limits_.turn_rows_max;
  }
  bool TurnIsHalfFull(const Change& change) const {
    return 2 * change.row_count() >= limits_.turn_rows_max;
  }

  // ---- placing ----
  void PlaceWaiting(Change& change);
  void TryPlace(const AskId& ask, Change& change);
  void PlaceJob(JobRecord& job, const Plan& plan, Change& change);
  // ---- slots that wait (cluster_state_slots.cc) ----
  void FillSlots(JobRecord& job, int first, const Plan& plan, Change& change);
  // Replaces what the attempt asked for before.
  void AskForSlots(const JobRecord& job, const AttemptRecord& attempt);
  // The slots of a job that have a time.
  std::vector<int> BackingOff(const JobId& job) const;
  // Those of its slots that back off have a time, and no others.
  void BackOff(const JobRecord& job, const AttemptRecord& attempt,
               bool goes_on);
  // What the attempt asks for no more.
  void DropAsks(const JobRecord& job, const std::vector<SlotAsk>& asks);
  // For as many slots, beside those that live now.
  GangRequest RequestForSlots(const JobRecord& job,
                              const AttemptRecord& attempt, int count) const;
  // Jobs and slots whose time has come ask again.
  void AdmitDue(Change& change);
  // What slots of a job that runs wait for; empty: none does.
  std::string SlotsReason(const JobRecord& job) const;
  // The processes on the node that are not over hold what they were given.
  void Hold(const JobRecord& job, const AttemptRecord& attempt,
            const NodeId& node, const std::set<int>& slots);

  // ---- what nodes say ----
  absl::Status CheckRegistration(const Registration& registration) const;
  // Its row, under a new incarnation.
  void EnterNode(const Registration& registration, Change& change);
  // What it should do, and which checkpoints are committed.
  RegisteredNode AnswerTo(const NodeId& node, Change& change);
  void ApplyObserved(const NodeId& node, const v1::ObservedPlace& observed,
                     Change& change);
  // RunController::Observe; to a preflight that failed it adds which ranks
  // nobody heard of, as only the head can know.
  RunOutcome ObserveWithMissing(JobRecord& job, AttemptRecord& attempt,
                                const NodeId& node,
                                const v1::ObservedPlace& observed);
  void ApplyExchanges(const NodeId& node, const v1::ObservedPlace& observed,
                      const AttemptRecord& attempt, Change& change);
  void ApplyUnwanted(const NodeId& node, const v1::ObservedPlace& observed,
                     Change& change);
  // Last words in it are dealt with once `change` is stored.
  static void AcknowledgeWords(const NodeId& node,
                               const v1::ObservedPlace& observed,
                               Change& change);
  void ApplyAbsence(const NodeId& node, const v1::Observed& observed,
                    Change& change);
  void NodeSilent(const NodeId& node, Change& change);
  std::string WhySilent(const NodeId& node) const;

  // ---- nodes' health (cluster_state_nodes.cc) ----
  void TickNodes(Change& change);
  // A full one from now.
  void GrantLease(const NodeId& node);
  void Suspect(const NodeId& node, Change& change);
  void HearAgain(const NodeId& node, Change& change);
  void ApplyReadiness(const NodeId& node, const std::string& not_ready,
                      Change& change);
  // False when each is as it was.
  bool ApplyDevices(const NodeId& node,
                    const std::vector<v1::DeviceStatus>& devices,
                    Change& change);
  // The event that told of a fault of a device that the attempt has there; 0:
  // none.
  uint64_t FaultOf(const AttemptRecord& attempt, const NodeId& node) const;
  // Of its drain: nothing may begin or go on there.
  bool HasDeadlinePassed(const NodeId& node) const;
  void EvictFrom(const NodeId& node, Change& change);
  // Unless it is an orphan or ends.
  void Evict(const AttemptId& attempt, const NodeId& node, Change& change);
  absl::Status CheckOrphans(const NodeId& node,
                            const v1::Observed& observed) const;
  // What each process of it there holds, in words of its node or its job; of
  // which processes is for the caller to say.
  NodeTable::Held ClaimOf(const NodeId& node,
                          const v1::ObservedPlace& observed) const;
  // Which processes that it has there have no lease, and hold their room.
  void ApplyOrphans(const NodeId& node, const v1::ObservedPlace& observed,
                    Change& change);
  void AddOrphan(const NodeId& node, const v1::ObservedPlace& observed,
                 NodeTable::Held held, Change& change);
  void RemoveOrphan(const NodeId& node, const AttemptId& orphan,
                    Change& change);
  // What was to begin where an orphan leaves no room begins elsewhere.
  void DisplaceFor(const NodeId& node, const AttemptId& orphan, Change& change);
  void NoteReturn(const NodeId& node, Change& change);
  // Something there is over: a drained node may be empty now.
  void NoteLeft(const NodeId& node, Change& change);
  uint64_t AddNodeEvent(const NodeId& node, const char* kind, std::string text,
                        Change& change, uint64_t cause = 0);

  // A part is not there any more, or its node is dead.
  void ApplyMissing(const NodeId& node, const AttemptId& attempt,
                    Change& change);

  // ---- after a restore (cluster_state_orphans.cc) ----
  bool IsOrphan(const NodeId& node, const v1::ObservedPlace& observed) const;
  // False when `observed` is of an attempt to be dealt with as any other.
  bool TakeOrphan(const NodeId& node, const v1::ObservedPlace& observed,
                  Change& change);
  // What an orphan has there and no row holds is not free.
  void HoldOrphan(const NodeId& node, const v1::ObservedPlace& observed,
                  uint64_t told_by, Change& change);
  // The highest incarnation that nodes reported is the slot's.
  void TakeNewest(JobRecord& job, AttemptRecord& attempt,
                  const OrphanTable::Entry& entry, Change& change);
  // Ends one without a row.
  void EndRowless(const OrphanTable::Entry& orphan, Change& change);
  // Nothing is left on the node of what may be an orphan without a row.
  void OnOrphanGone(const NodeId& node, const AttemptId& orphan,
                    Change& change);
  bool WasEnded(const AttemptId& orphan) const;
  // From now on an attempt as any other: what was said of it is applied.
  void Claim(const AttemptId& attempt, Change& change);
  // Its two halves: what its nodes said meanwhile; that it is lost on those
  // which are dead or do not know it.
  OrphanTable::Entry ReplayReports(const AttemptId& attempt, Change& change);
  void LoseMissing(const OrphanTable::Entry& entry, Change& change);
  // The job waits again as any other, unless another attempt is an orphan.
  void Requeue(const JobId& job, Change& change);
  // Nodes that may know of more attempts were heard of, or are dead.
  void Settle(Change& change);

  // ---- what follows for jobs ----
  void ApplyOutcome(JobRecord& job, AttemptRecord& attempt,
                    const RunOutcome& outcome, Change& change);
  // Newer metrics are worth a row now: the first are, then one a period.
  // Others fall due.
  bool AreMetricsDue(const JobId& job);
  void PutMetrics(const JobId& job, Change& change);
  // Whether it made room.
  bool ApplyGoals(AttemptRecord& attempt, const RunOutcome& outcome,
                  Change& change);
  void ApplyAttemptState(JobRecord& job, const AttemptRecord& attempt,
                         const RunOutcome& outcome, Change& change);
  // `attempt`: the one that starts or moved it; nil for none.
  void MoveJob(JobRecord& job, JobState to, Change& change,
               const AttemptId& attempt = AttemptId());
  // " on a, b and 3 more".
  std::string NodesText(const AttemptId& attempt) const;

  // ---- the one way of a client's change ----
  // A request that was answered gets that answer again (RQ-1).  Otherwise
  // `decide` makes the change and gives the id to answer with, or an error and
  // has changed nothing; who waits is placed after it.
  template <typename Id, typename Decide>
  absl::StatusOr<Id> Mutate(const RequestKey& request, Transition& transition,
                            Decide decide) {
    COHORT_ASSIGN_OR_RETURN(
        const RequestRecord* earlier,
        requests_.Find(request.principal, request.request_id,
                       request.body_hash));
    if (earlier != nullptr) return Id::FromBytes(earlier->answer());
    Change change;
    change.principal = request.principal;
    change.request_id = request.request_id;
    COHORT_ASSIGN_OR_RETURN(const Id id, decide(change));
    RequestRecord& row = change.requests.emplace_back();
    row.set_principal(request.principal);
    row.set_request_id(request.request_id);
    row.set_body_hash(request.body_hash);
    row.set_answer(std::string(id.bytes()));
    row.set_at_us(absl::ToUnixMicros(clock_.Wall()));
    PlaceWaiting(change);
    Finish(change, transition);
    return id;
  }

  // ---- events and the end of a decision ----
  uint64_t AddEvent(EventRecord event, Change& change);
  void AddJobEvent(JobRecord& job, const AttemptId& attempt, const char* kind,
                   std::string text, Change& change);
  TableView view() const;
  void Finish(Change& change, Transition& transition);

  // Set in the constructor.
  const ClusterLimits limits_;
  const Clock& clock_;
  Random& random_;
  NodeLinks& links_;
  JobWatchers& watchers_;
  const RunController controller_;

  // Shared: the head's parts.
  const std::shared_ptr<const SecretBox> box_;

  // Rows.
  ClusterRecord cluster_;
  NodeTable nodes_;
  JobTable jobs_;
  AttemptTable attempts_;
  RequestTable requests_;
  PackageTable packages_;
  DriverTable drivers_;
  Fleet fleet_;
  TokenTable tokens_;
  MetricsTable metrics_;
  AuditTable audit_;

  // Computed again from rows and observed sets.
  WaitingLine line_;
  OrphanTable orphans_;
  Deadlines deadlines_;
  JobGates gates_;
  LaterStore later_store_;
  // Of this life of the state.
  const absl::Duration loaded_at_;
  uint64_t first_incarnation_ = 0;
  ExchangeTable exchanges_;
  // When the row of a job with its metrics was put, on the monotonic clock.
  std::map<JobId, absl::Duration> metrics_stored_at_;
  // Slots of running attempts that wait, by the first of each ask: how many.
  std::map<JobId, std::map<int, int>> slot_asks_;
  // Jobs whose phases changed in a turn that was full.
  std::set<JobId> untold_phases_;
  // Nodes on which attempts are to be lost or moved, by which event.
  std::map<NodeId, uint64_t> emptying_;
  // Attempts that began to run, on the monotonic clock.
  std::map<AttemptId, absl::Duration> running_since_;
  Counters counters_;
  History history_;
};

}  // namespace cohort::head
