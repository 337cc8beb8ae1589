#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "worker/node_state.h"

namespace cohort::worker {

// Records what it is asked to do; the test answers when it likes.
class RecordingHost : public ProcessHost {
 public:
  void SetListener(Listener listener) override {
    listener_ = std::move(listener);
  }
  void Save(const AttemptId& attempt, PlaceEntry entry, Durability durability,
            Done done) override {
    if (save_status.ok()) {
      places[attempt] = std::move(entry);
      place_durability = durability;
    }
    std::move(done)(save_status);
  }
  void Save(const ProcessId& process, ProcessEntry entry, Durability durability,
            Done done) override {
    if (save_status.ok()) {
      processes[process] = std::move(entry);
      process_durability = durability;
    }
    std::move(done)(save_status);
  }
  void Prepare(const v1::DesiredPlace&,
               absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) override {
    calls.push_back("prepare");
    prepared = std::move(done);
  }
  void Begin(const v1::DesiredPlace& place, std::vector<ProcessId> which,
             Done done) override {
    launched = place.launch();
    std::string call = "begin";
    for (const ProcessId& each : which)
      absl::StrAppend(&call, " ", Short(each));
    calls.push_back(std::move(call));
    begun = std::move(done);
  }
  void Adopt(const v1::DesiredPlace&, KeeperHost::AdoptCallback done) override {
    calls.push_back("adopt");
    adopted = std::move(done);
  }
  void Revoke(const AttemptId&) override { calls.push_back("revoke"); }
  void Stop(const ProcessId& process, absl::Duration grace) override {
    calls.push_back(absl::StrCat("stop ", Short(process), " ",
                                 absl::FormatDuration(grace)));
  }
  void Kill(const ProcessId& process) override {
    calls.push_back("kill " + Short(process));
  }
  void Forget(const ProcessId& process, Done done) override {
    calls.push_back("forget " + Short(process));
    processes.erase(process);
    std::move(done)(absl::OkStatus());
  }
  void Forget(const AttemptId& attempt, Done done) override {
    calls.push_back("forget");
    places.erase(attempt);
    std::erase_if(processes, [&](const auto& each) {
      return each.first.attempt == attempt;
    });
    if (hold_forget) {
      forgotten = std::move(done);
    } else {
      std::move(done)(absl::OkStatus());
    }
  }
  void RemoveCheckpoint(const v1::DesiredPlace&, const std::string& path,
                        Done done) override {
    calls.push_back("remove " + path);
    std::move(done)(absl::OkStatus());
  }
  void ReadStderrTail(const ProcessId& process,
                      absl::AnyInvocable<void(std::string) &&> done) override {
    tails_read.push_back(Short(process));
    if (hold_tail) {
      tail = std::move(done);
    } else {
      std::move(done)("the tail");
    }
  }

  void Tell(const KeeperEvent& event) { listener_.on_event(event); }
  void TellMetrics(const ProcessId& process, uint64_t count, std::string json) {
    listener_.on_metrics(process, count, std::move(json));
  }
  void Warn(const AttemptId& attempt, const std::string& text) {
    listener_.on_warning(attempt, text);
  }
  JournalEntries Journal() const {
    JournalEntries entries;
    for (const auto& [id, entry] : places) entries.places.push_back(entry);
    for (const auto& [id, entry] : processes) {
      entries.processes.push_back(entry);
    }
    return entries;
  }

  v1::Launch launched;  // by the last Begin
  std::vector<std::string> calls;
  std::vector<std::string> tails_read;
  std::map<AttemptId, PlaceEntry> places;
  std::map<ProcessId, ProcessEntry> processes;
  Durability place_durability = Durability::kDaemon;    // of the last save
  Durability process_durability = Durability::kDaemon;  // the same
  absl::Status save_status;
  bool hold_forget = false;
  bool hold_tail = false;
  absl::AnyInvocable<void(std::string) &&> tail;
  absl::AnyInvocable<void(absl::StatusOr<int>) &&> prepared;
  Done begun;
  Done forgotten;
  KeeperHost::AdoptCallback adopted;

 private:
  // "<slot>.<incarnation>": tests have one attempt.
  static std::string Short(const ProcessId& process) {
    return absl::StrCat(process.slot, ".", process.incarnation);
  }

  Listener listener_;
};

// With one attempt, of two processes: slot 0 in incarnation 1, slot 1 in 2.
class NodeStateTest : public testing::Test {
 protected:
  NodeStateTest() : id_(AttemptId::New(random_)) {
    state_.emplace(host_, clock_, Events());
    state_->Restore({}, [this] { restored_ = true; });
  }

  NodeState::Events Events() {
    return {.on_change = [this] { ++changes_; },
            .on_fault =
                [this](const absl::Status& why) {
                  const v1::ObservedPlace seen = Seen();
                  EXPECT_NE(seen.phase(), v1::PHASE_FAILED) << "told first";
                  for (const v1::ObservedProcess& each : seen.processes()) {
                    EXPECT_NE(each.state(), v1::PROCESS_STATE_ENDED)
                        << "told first";
                  }
                  faults_.emplace_back(why.message());
                },
            .on_begun = [this] { ++begun_; }};
  }
  ProcessId Id(int slot) const {
    return {.attempt = id_,
            .slot = slot,
            .incarnation = static_cast<uint64_t>(slot) + 1};
  }
  // The place, with that goal for its processes; FORGET is of the place itself.
  v1::DesiredPlace Want(v1::Goal goal) {
    v1::DesiredPlace desired;
    desired.set_attempt_id(std::string(id_.bytes()));
    desired.set_goal(goal == v1::GOAL_FORGET ? goal : v1::GOAL_PREPARE);
    if (goal == v1::GOAL_FORGET) return desired;
    desired.set_epoch(7);
    desired.set_world_size(2);
    desired.set_local_world_size(2);
    for (int slot : {0, 1}) {
      desired.add_members(Id(slot).incarnation);
      AddProcess(desired, Id(slot), goal);
    }
    return desired;
  }
  v1::DesiredProcess& AddProcess(v1::DesiredPlace& desired, const ProcessId& id,
                                 v1::Goal goal) {
    v1::DesiredProcess& process = *desired.add_processes();
    process.set_slot(id.slot);
    process.set_incarnation(id.incarnation);
    process.set_goal(goal);
    process.set_rank(id.slot);
    process.set_local_rank(id.slot);
    process.mutable_grace()->set_seconds(3);
    return process;
  }
  void Apply(const v1::DesiredPlace& place) {
    v1::Desired desired;
    *desired.add_places() = place;
    state_->Apply(desired);
  }
  void Begin(const v1::DesiredPlace& want) {
    Apply(want);
    std::move(host_.prepared)(4711);
    std::move(host_.begun)(absl::OkStatus());
  }
  void RunToRunning() { Run(Want(v1::GOAL_RUN)); }
  void Run(const v1::DesiredPlace& want) {
    Begin(want);
    for (const v1::DesiredProcess& each : want.processes()) {
      host_.Tell(ProcessStarted{KeyOf(IdOf(want, each)), 100 + each.slot()});
    }
  }
  void RunWithPreflight() {
    v1::DesiredPlace want = Want(v1::GOAL_RUN);
    want.set_preflight(true);
    Begin(want);
  }
  // Slots of an attempt that go on by themselves.
  v1::DesiredPlace WantEach(v1::RestartPolicy policy) {
    v1::DesiredPlace want = Want(v1::GOAL_RUN);
    want.set_restart(policy);
    return want;
  }

  void TellStarted(int slot) {
    host_.Tell(ProcessStarted{KeyOf(Id(slot)), 100 + slot});
  }
  static ExitReport Status(int code, int signal = 0,
                           ExitCause cause = ExitCause::kItself) {
    ExitReport status;
    status.exit_code = signal == 0 ? code : -1;
    status.signal = signal;
    status.cause = cause;
    return status;
  }
  void TellExited(int slot, ExitReport exit) {
    exit.process = KeyOf(Id(slot));
    host_.Tell(exit);
  }
  void TellExited(int slot, int code) { TellExited(slot, Status(code)); }
  void TellEnded(int slot) { host_.Tell(ProcessEnded{KeyOf(Id(slot))}); }
  void TellAllEnded() {
    for (int slot : {0, 1}) TellEnded(slot);
  }

  // As a head has it that hears of the node for the first time.
  v1::ObservedPlace Seen() {
    const std::vector<v1::Observed> chunks = state_->FullObserved();
    if (chunks.size() != 1 || chunks[0].places_size() != 1) return {};
    v1::ObservedPlace seen = chunks[0].places(0);
    const v1::Observed delta = state_->TakeDelta();
    for (const v1::ObservedPlace& after : delta.places()) {
      for (int i = 0; i < after.processes_size(); ++i) {
        seen.mutable_processes(i)->set_stderr_tail(
            after.processes(i).stderr_tail());
      }
      *seen.mutable_exchanges() = after.exchanges();
    }
    return seen;
  }
  v1::ObservedProcess Seen(int slot) {
    const v1::ObservedPlace seen = Seen();
    for (const v1::ObservedProcess& each : seen.processes()) {
      if (each.slot() == slot) return each;
    }
    ADD_FAILURE() << "slot " << slot << " is not there";
    return {};
  }
  // The daemon dies and comes back with what is on disk.
  void Restart() {
    restored_ = false;
    host_.calls.clear();
    state_.emplace(host_, clock_, Events());
    state_->Restore(host_.Journal(), [this] { restored_ = true; });
  }
  // Its keeper has records of all.
  AdoptedKeeper AllKnown() const {
    return {.known = {KeyOf(Id(0)), KeyOf(Id(1))}, .message = ""};
  }

  SeededRandom random_{1};
  const AttemptId id_;
  ManualExecutor clock_;
  RecordingHost host_;
  std::optional<NodeState> state_;
  int changes_ = 0;
  std::vector<std::string> faults_;
  int begun_ = 0;
  bool restored_ = false;
};

}  // namespace cohort::worker
