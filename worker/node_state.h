#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "cohort/v1/run.pb.h"
#include "common/clock.h"
#include "common/process_id.h"
#include "worker/device_faults.h"
#include "worker/exchange.h"
#include "worker/process_host.h"

namespace cohort::worker {

// The attempts of this node: what the head wants of them, what is, and what
// follows.  Each has a place here, and processes in it.
//
//   place:    UNSPECIFIED -> PREPARING -> PREPARED | FAILED -> forgotten
//   process:  PENDING -> STARTING -> RUNNING -> EXITED -> ENDED -> forgotten
//
// The heart of the worker.  HeadLink brings the desired set and takes the
// observed one; RunService asks for the processes; ProcessHost does what is
// decided here.  Thread-compatible: the node strand owns it.  Lives as long as
// Worker.
//
// RC-1: processes are ended by an explicit goal (STOP, FORGET), by DrainRanks
//       or by the loss of their device (DV-9), never because they or their
//       place are absent from a desired set.
// RC-3: a process's report is kept until FORGET, and its last words until the
//       head has recorded them too.
// PR-1: a process begins once those before it in its slot have ended here.
// PR-2: an incarnation that is or was here is never begun again.
// PR-3: a process is heard only while its slot has no newer incarnation, and
//       only in the epoch of its place.
// PF-1: that a process came through its preflight is on disk before
//       ReportPreflight answers; one that ends before failed in it.
// CK-2: a checkpoint record is on disk before CommitCheckpoint answers, and is
//       repeated in the observed set until it is acknowledged.
// DV-9: a process whose device was lost, or that failed by itself while a
//       device of it had a fault, ends by that fault; under restart policy ALL
//       a lost device ends all processes of the place.
class NodeState {
 public:
  struct Events {
    // There is something for TakeDelta; may be told again before that.
    absl::AnyInvocable<void()> on_change;
    // A place could not be prepared or a process not begin, by the fault of
    // this node, before anything is said of it.
    absl::AnyInvocable<void(const absl::Status&)> on_fault;
    // A keeper has taken processes: this node can begin them.
    absl::AnyInvocable<void()> on_begun;
  };
  // A process that runs here.  Valid until NodeState is called.
  struct Running {
    const v1::DesiredPlace* place;  // with the newest membership
    const v1::DesiredPlace* begun;  // the membership that it was begun with
    int rank;                       // in the newest
  };
  // `message_bytes`: of one message but for its last place, far below the
  // largest.  It has 256 places at most.
  NodeState(ProcessHost& host, const Clock& clock, Events events,
            size_t message_bytes = 1 << 20);

  // ---- start ----

  // Takes up what the journal holds and adopts its keepers; `done` when all
  // states are known, so that the first observed set is the full truth.
  // REQUIRES: before anything else.
  void Restore(JournalEntries entries, absl::AnyInvocable<void() &&> done);

  // ---- from and to the head ----

  // The store generation of the head that is followed: places that begin now
  // are its; those of another stay as they are (RC-1).
  void Follow(const std::string& generation);

  // What is not in `desired` stays as it is, full set or not (RC-1).
  void Apply(const v1::Desired& desired);
  void Acknowledge(const v1::Acknowledge& acknowledge);
  // The state of everything here, in chunks of a message.  A new head has heard
  // nothing yet: last words that it has not recorded, and exchanges, are in the
  // deltas that follow.
  std::vector<v1::Observed> FullObserved();
  // What changed since the last call of either, as much of it as one message
  // takes; empty when nothing did.
  v1::Observed TakeDelta();

  // Ends every process here with SIGTERM, then SIGKILL after `grace`, and
  // reports it as the daemon's doing; what the head still places here ends at
  // once in the same way.  `ended` when no process is left, then `forgotten`
  // once the head has recorded all ends (it has ordered FORGET), perhaps never.
  // During a Restore it waits for that.
  void DrainRanks(absl::Duration grace, absl::AnyInvocable<void() &&> ended,
                  absl::AnyInvocable<void() &&> forgotten);
  // Ends what DrainRanks is ending without any grace left.
  void Hurry();
  // Nothing of any attempt is here, nor anything that the head is to be told.
  bool IsEmpty() const { return restoring_ == 0 && places_.empty(); }

  // ---- from the devices ----

  // A device has a fault, or, with an empty reason, has none any more.  What is
  // about to begin on it does not, what fails on it fails by it, and with
  // `lost` what runs on it is ended (DV-9).
  void NoteDeviceFault(const std::string& device, const std::string& reason,
                       bool lost);

  // The devices that this machine has: what runs on others is ended as if they
  // were lost, since nothing will be heard of them.  REQUIRES: after Restore is
  // done.
  void NoteDevicesThere(const std::set<std::string>& there);

  // ---- from the processes ----

  // NotFound: unknown here; FailedPrecondition: it does not run, a newer
  // incarnation has its slot, or it is another epoch.
  absl::StatusOr<Running> FindRunning(const ProcessId& process,
                                      int64_t epoch) const;

  // Where the process stands, without directories and host.  NotFound: unknown
  // here; FailedPrecondition: it has ended, or was not begun.
  absl::StatusOr<v1::WatchResponse> Standing(const ProcessId& process) const;
  // `watcher` is told of each process whose Standing is another one.
  void SetWatcher(absl::AnyInvocable<void(const ProcessId&)> watcher);

  // Where the process serves calls; the head hears of it.  Errors as Standing.
  absl::Status NoteAddresses(const ProcessId& process,
                             std::vector<std::string> addresses);

  // `done` gets the blobs in rank order once all ranks of the epoch gave
  // theirs; Aborted when the process or the epoch ends first.  Errors as
  // FindRunning and Exchange::Give.
  void GiveBlob(const ProcessId& process, int64_t epoch, const std::string& tag,
                const std::string& blob, Exchange::Done done);

  // CK-2.  Errors as FindRunning.  The path was checked by the caller.
  void CommitCheckpoint(const ProcessId& process, int64_t epoch,
                        const v1::Checkpoint& checkpoint,
                        ProcessHost::Done done);

  // PF-1.  A first failure stays, whatever is said after it.  Errors as
  // FindRunning; FailedPrecondition too where the job has no preflight, and
  // from a process that came through it before.  The report's bounds were
  // checked by the caller.
  void ReportPreflight(const ProcessId& process, int64_t epoch,
                       const v1::PreflightReport& report,
                       ProcessHost::Done done);

  // The highest level stays.  Errors as FindRunning.  The bounds were checked
  // by the caller.
  void ReportGpuEnd(const ProcessId& process, int64_t epoch,
                    const v1::GpuEnd& end, ProcessHost::Done done);

  size_t size() const { return places_.size(); }

 private:
  using Incarnation = std::pair<int, uint64_t>;  // and its slot

  struct Process {
    ProcessId id;
    v1::DesiredProcess desired;
    v1::DesiredPlace begun;  // as in ProcessEntry
    v1::ObservedProcess observed;
    bool beginning = false;   // host_.Begin is under way
    bool taken = false;       // a keeper has it, or had
    bool forgetting = false;  // host_.Forget is under way
    bool ordered = false;     // STOP, FORGET or DrainRanks reached it
    bool killed = false;      // FORGET did
    bool taken_along = false;
    std::string lost_device;  // why it was ended, if that
    // Its end waits for its last words, which it reports.
    bool reading_tail = false;
    bool end_waiting = false;
    // Its last words: the head is to be told them, has them.
    bool words_due = false;
    bool words_recorded = false;
    v1::Notice stop_notice;        // with a reason once it is being stopped
    absl::Duration stop_deadline;  // on clock_
  };
  struct Place {
    AttemptId id;
    v1::DesiredPlace desired;    // without processes
    v1::ObservedPlace observed;  // without processes
    std::map<Incarnation, Process> processes;
    std::map<int, uint64_t> begun;  // by slot, the newest incarnation that was
    bool preparing = false;         // host_.Prepare is under way
    bool forgetting = false;        // host_.Forget is under way
    // What is wanted here once this is forgotten: the node was lost to the
    // head, and has the attempt again.
    std::optional<v1::DesiredPlace> next;
    bool revoked = false;
    bool tail_taken = false;  // under ALL: of the first that failed
    absl::Time first_raised = absl::InfiniteFuture();
    int exits = 0;
    Exchange exchange;
    int exchanges_told = 0;          // on this stream
    std::set<std::string> removing;  // retired checkpoints under way
    absl::Duration notice_deadline;  // on clock_
  };

  // ---- places: node_state.cc ----
  void ApplyPlace(const v1::DesiredPlace& desired);
  Place& AddPlace(const AttemptId& id, const v1::DesiredPlace& desired);
  void Update(Place& place, const v1::DesiredPlace& desired);
  void ApplyExchange(const v1::Exchange& exchange);
  void Drive(const AttemptId& id);
  void Prepare(Place& place);
  void OnPrepared(const AttemptId& id, absl::StatusOr<int> port);
  void FailPlace(Place& place, v1::EndCause cause, const std::string& detail);
  // What ended before it began comes of this, which the node is told of.
  v1::EndCause CauseOf(const absl::Status& why);
  void ForgetPlace(Place& place);
  void OnWarning(const AttemptId& id, const std::string& text);
  void RemoveRetired(Place& place);
  Process& RestoreProcess(Place& place, ProcessEntry entry);
  void Adopt(Place& place);
  void OnAdopted(const AttemptId& id, absl::StatusOr<AdoptedKeeper> adopted);
  // One thing fewer to wait for.
  void Restored();
  void EndAll();
  void MaybeAllEnded();

  // ---- processes: node_state_processes.cc ----
  void ApplyProcess(Place& place, const v1::DesiredProcess& desired);
  Process& AddProcess(Place& place, const v1::DesiredProcess& desired);
  // The newest incarnation of the slot that is here, or was begun here.
  static uint64_t NewestOf(const Place& place, int slot);
  static bool MayBegin(const Place& place, const Process& process);
  void BeginReady(Place& place);
  void OnBegun(const AttemptId& id, const std::vector<ProcessId>& which,
               const absl::Status& status);
  void Stop(Place& place, Process& process);
  // Tells the process and the machine.
  void Order(Place& place, Process& process, absl::Duration grace,
             const std::string& reason);
  void Forget(Place& place, Process& process);
  // Whether the record may go; what runs is killed first.
  bool MayForget(Place& place, Process& process);
  static void LogLostLease(const char* event, const Place& place,
                           const Process& process);
  // Nothing of it runs, nor will.
  void End(Place& place, Process& process, v1::EndCause cause,
           const std::string& detail);
  void OnEvent(const KeeperEvent& event);
  void OnProcess(Place& place, Process& process, const ProcessStarted& event);
  void OnProcess(Place& place, Process& process, const ProcessExited& event);
  void OnProcess(Place& place, Process& process, const ProcessEnded& event);
  void SetCause(Process& process, const ExitReport& exit, bool keeper_stopped);
  void ReadTailIfWanted(Place& place, Process& process);
  void OnMetrics(const ProcessId& id, uint64_t count, std::string json);
  void EndByLoss(Place& place, Process& process, const std::string& reason);
  void Revoke(Place& place);

  // ---- what processes say: node_state_run.cc ----
  // In the newest membership; that of its beginning where it is in it no more.
  static int RankOf(const Place& place, const Process& process);
  // Journals it, then tells the head.
  void SaveAndTell(const ProcessId& id, ProcessHost::Done done);
  void SaveAndTell(const AttemptId& id, ProcessHost::Done done);

  // ---- what the head hears: node_state_reports.cc ----
  static bool HasUnrecordedWords(const Process& process) {
    return !process.observed.stderr_tail().empty() && !process.words_recorded;
  }
  // Without last words and exchanges.
  static v1::ObservedPlace StateOf(Place& place);
  // `message`, of that many bytes, takes no other place.
  bool IsFull(const v1::Observed& message, size_t bytes) const;
  // False when there is more to tell than one message takes.
  bool TellDelta(Place& place, v1::ObservedPlace& report);
  void Changed(const Place& place);
  // The standing of the process, or of all here, is another one.
  void TellWatcher(const ProcessId& process);
  void TellWatcher(const Place& place);
  void Save(Place& place, Durability durability);
  void Save(Place& place, Process& process, Durability durability);
  static PlaceEntry EntryOf(const Place& place);
  Place* Find(const AttemptId& id);
  Process* Find(const ProcessId& id);
  const Process* Find(const ProcessId& id) const;

  ProcessHost& host_;
  const Clock& clock_;
  Events events_;
  const size_t message_bytes_;
  std::map<AttemptId, Place> places_;
  std::set<AttemptId> dirty_;
  // Of places that are forgotten, with warnings that the head has not heard.
  std::vector<v1::ObservedPlace> last_reports_;
  DeviceFaults device_faults_;
  std::string generation_;  // empty before the first head
  int restoring_ = 1;       // Restore itself, and places that it adopts
  absl::AnyInvocable<void() &&> on_restored_;
  absl::AnyInvocable<void(const ProcessId&)> watcher_;
  bool leaving_ = false;  // DrainRanks was called
  absl::Duration take_along_grace_;
  absl::AnyInvocable<void() &&> on_all_ended_;
  absl::AnyInvocable<void() &&> on_all_forgotten_;
};

}  // namespace cohort::worker
