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
#include "common/strong_id.h"
#include "worker/attempt_host.h"
#include "worker/device_faults.h"
#include "worker/exchange.h"

namespace cohort::worker {

// The attempts of this node: what the head wants of them, what is, and what
// follows.
//
// The heart of the worker.  HeadLink brings the desired set and takes the
// observed one; RunService asks for the ranks; AttemptHost does what is decided
// here.  Thread-compatible: the node strand owns it.  Lives as long as Worker.
//
// RC-1: ranks are ended by an explicit goal (STOP, FORGET), by TakeAlong or by
//       the loss of their device (DV-9), never because an attempt is absent
//       from a desired set.
// RC-3: an attempt's report is kept until FORGET, and its failed rank's last
//       words until the head has recorded them too.
// PF-1: that a rank came through its preflight is on disk before
//       ReportPreflight answers; one that ends before failed in it.
// CK-2: a checkpoint record is on disk before CommitCheckpoint answers, and is
//       repeated in the observed set until it is acknowledged.
// DV-9: an attempt whose device was lost, or of which a rank failed by itself,
//       first or not, while its device had a fault, ends by that fault.
class NodeState {
 public:
  using JoinResult = absl::StatusOr<v1::JoinRunResponse>;

  struct Events {
    // There is something for TakeDelta; may be told again before that.
    absl::AnyInvocable<void()> on_change;
    // An attempt could not begin, by the fault of this node, before anything is
    // said of that attempt.
    absl::AnyInvocable<void(const absl::Status&)> on_fault;
    // A keeper has taken an attempt: this node can begin them.
    absl::AnyInvocable<void()> on_begun;
  };
  // `message_bytes`: of one message but for its last attempt, far below the
  // largest.
  NodeState(AttemptHost& host, Events events, size_t message_bytes = 1 << 20);

  // ---- start ----

  // Takes up what the journal holds and adopts its keepers; `done` when all
  // phases are known, so that the first observed set is the full truth.
  // REQUIRES: before anything else.
  void Restore(std::vector<JournalEntry> entries,
               absl::AnyInvocable<void() &&> done);

  // ---- from and to the head ----

  // The store generation of the head that is followed: attempts that begin now
  // are its; those of another stay as they are (RC-1).
  void Follow(const std::string& generation);

  // Attempts that are not in `desired` stay as they are, full set or not
  // (RC-1).
  void Apply(const v1::Desired& desired);
  void Acknowledge(const v1::Acknowledge& acknowledge);
  // The state of everything here, in chunks of a message.  A new head has heard
  // nothing yet: last words that it has not recorded, and exchanges, are in the
  // deltas that follow.
  std::vector<v1::Observed> FullObserved();
  // What changed since the last call of either, as much of it as one message
  // takes; empty when nothing did.
  v1::Observed TakeDelta();

  // Ends every rank here with SIGTERM, then SIGKILL after `grace`, and reports
  // it as the daemon's doing; what the head still places here ends at once in
  // the same way.  `ended` when no process is left, then `forgotten` once the
  // head has recorded all ends (it has ordered FORGET), perhaps never.
  void TakeAlong(absl::Duration grace, absl::AnyInvocable<void() &&> ended,
                 absl::AnyInvocable<void() &&> forgotten);

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

  // ---- from the ranks ----

  // NotFound: unknown here; FailedPrecondition: not running, or another epoch.
  absl::StatusOr<const v1::DesiredAttempt*> FindRunning(
      const AttemptId& attempt, int rank, int64_t epoch) const;

  // `done` gets the blobs in rank order once all ranks of the attempt gave
  // theirs; Aborted when the attempt ends first.  Errors as Exchange::Give.
  void GiveBlob(const AttemptId& attempt, int rank, int64_t epoch,
                const std::string& tag, const std::string& blob,
                Exchange::Done done);

  // CK-2.  Errors as FindRunning.  The path was checked by the caller.
  void CommitCheckpoint(const AttemptId& attempt, int rank, int64_t epoch,
                        const v1::Checkpoint& checkpoint,
                        AttemptHost::Done done);

  // PF-1.  A first failure stays, whatever is said after it.  Errors as
  // FindRunning; FailedPrecondition too where the job has no preflight, and
  // from a rank that came through it before.  The report's bounds were checked
  // by the caller.
  void ReportPreflight(const AttemptId& attempt, int rank, int64_t epoch,
                       const v1::PreflightReport& report,
                       AttemptHost::Done done);

  // The highest level stays.  Errors as FindRunning.  The bounds were checked
  // by the caller.
  void ReportGpuEnd(const AttemptId& attempt, int rank, int64_t epoch,
                    const v1::GpuEnd& end, AttemptHost::Done done);

  size_t size() const { return attempts_.size(); }

 private:
  struct Attempt {
    AttemptId id;
    v1::DesiredAttempt desired;
    v1::ObservedAttempt observed;
    bool preparing = false;   // host_.Prepare is under way
    bool starting = false;    // host_.Start is under way
    bool forgetting = false;  // host_.Forget is under way
    bool ordered = false;     // STOP, FORGET or TakeAlong reached the ranks
    bool killed = false;      // FORGET did
    bool taken_along = false;
    bool time_is_up = false;      // ranks were ended by their time limit
    bool keeper_stopped = false;  // ranks were, from outside the cluster
    std::string lost_device;      // why its ranks were ended, if that
    // The end waits for the failed rank's last words, which it reports.
    bool reading_tail = false;
    std::optional<std::pair<v1::EndCause, std::string>> end_waiting;
    // Its last words (stderr_tail): the head is to be told them, has them.
    bool words_due = false;
    bool words_recorded = false;
    int exchanges_told = 0;  // on this stream
    int exits = 0;
    Exchange exchange;
    std::set<std::string> removing;  // retired checkpoints under way
  };

  void ApplyOne(const v1::DesiredAttempt& desired);
  void ApplyExchange(const v1::Exchange& exchange);
  static bool HasUnrecordedWords(const Attempt& attempt) {
    return !attempt.observed.stderr_tail().empty() && !attempt.words_recorded;
  }
  // Without last words and exchanges.
  static v1::ObservedAttempt StateOf(Attempt& attempt);
  // False when there is more to tell than one message takes.
  bool TellDelta(Attempt& attempt, v1::ObservedAttempt& report);
  void Drive(Attempt& attempt);
  void Prepare(Attempt& attempt);
  void OnPrepared(const AttemptId& id, absl::StatusOr<int> port);
  void Start(Attempt& attempt);
  void OnStarted(const AttemptId& id, absl::Status status);
  void Stop(Attempt& attempt);
  static void LogVoidLease(const char* event, const Attempt& attempt);
  void Forget(Attempt& attempt);
  void End(Attempt& attempt, v1::EndCause cause, const std::string& detail);
  // It could not be prepared or started.
  void EndUnbegun(Attempt& attempt, const absl::Status& why);
  void EndAllDone(Attempt& attempt);
  void EndByKeeper(Attempt& attempt, const std::string& why);
  void EndByLoss(Attempt& attempt, const std::string& reason);
  void EndAfterTail(Attempt& attempt, v1::EndCause cause,
                    const std::string& detail);
  void OnEvent(const AttemptId& id, const KeeperEvent& event);
  void OnRankStarted(Attempt& attempt, const RankStarted& event);
  void OnRankExited(Attempt& attempt, const RankExited& event);
  // Journals the attempt, then tells the head.
  void SaveAndTell(const AttemptId& attempt, AttemptHost::Done done);
  void OnMetrics(const AttemptId& id, int rank, uint64_t count,
                 std::string json);
  void OnAdopted(const AttemptId& id, absl::StatusOr<AdoptedAttempt> adopted);
  void RemoveRetired(Attempt& attempt);
  void ReadTail(Attempt& attempt, int rank);
  void Changed(Attempt& attempt);
  void Save(Attempt& attempt);
  void MaybeAllEnded();
  Attempt* Find(const AttemptId& id);
  v1::ObservedRank* FindRank(Attempt& attempt, int rank);

  AttemptHost& host_;
  Events events_;
  const size_t message_bytes_;
  std::map<AttemptId, Attempt> attempts_;
  std::set<AttemptId> dirty_;
  DeviceFaults device_faults_;
  std::string generation_;  // empty before the first head
  int adopting_ = 0;
  absl::AnyInvocable<void() &&> on_restored_;
  bool leaving_ = false;  // TakeAlong was called
  absl::AnyInvocable<void() &&> on_all_ended_;
  absl::AnyInvocable<void() &&> on_all_forgotten_;
};

}  // namespace cohort::worker
