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
#include "common/testing/status_matchers.h"
#include "worker/node_state.h"

namespace cohort::worker {

// Records what it is asked to do; the test answers when it likes.
class RecordingHost : public AttemptHost {
 public:
  void SetListener(Listener listener) override {
    listener_ = std::move(listener);
  }
  void Save(const AttemptId& attempt, JournalEntry entry, Done done) override {
    journal[attempt] = std::move(entry);
    std::move(done)(save_status);
  }
  void Prepare(const v1::DesiredAttempt&,
               absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) override {
    calls.push_back("prepare");
    prepared = std::move(done);
  }
  void Start(const v1::DesiredAttempt&, Done done) override {
    calls.push_back("start");
    started = std::move(done);
  }
  void Adopt(const v1::DesiredAttempt&,
             KeeperHost::AdoptCallback done) override {
    calls.push_back("adopt");
    adopted = std::move(done);
  }
  void Revoke(const AttemptId&) override { calls.push_back("revoke"); }
  void Stop(const AttemptId&, absl::Duration grace) override {
    calls.push_back("stop " + absl::FormatDuration(grace));
  }
  void Kill(const AttemptId&) override { calls.push_back("kill"); }
  void Forget(const AttemptId& attempt, Done done) override {
    calls.push_back("forget");
    journal.erase(attempt);
    if (!hold_forget) std::move(done)(absl::OkStatus());
  }
  void RemoveCheckpoint(const v1::DesiredAttempt&, const std::string& path,
                        Done done) override {
    calls.push_back("remove " + path);
    std::move(done)(absl::OkStatus());
  }
  void ReadStderrTail(const AttemptId&, int,
                      absl::AnyInvocable<void(std::string) &&> done) override {
    if (hold_tail) {
      tail = std::move(done);
    } else {
      std::move(done)("the tail");
    }
  }

  void Tell(const AttemptId& attempt, const KeeperEvent& event) {
    listener_.on_event(attempt, event);
  }
  void TellMetrics(const AttemptId& attempt, int rank, uint64_t count,
                   std::string json) {
    listener_.on_metrics(attempt, rank, count, std::move(json));
  }

  std::vector<std::string> calls;
  std::map<AttemptId, JournalEntry> journal;
  absl::Status save_status;
  bool hold_forget = false;
  bool hold_tail = false;
  absl::AnyInvocable<void(std::string) &&> tail;
  absl::AnyInvocable<void(absl::StatusOr<int>) &&> prepared;
  Done started;
  KeeperHost::AdoptCallback adopted;

 private:
  Listener listener_;
};

inline RankExited Exited(int rank, int code, int signal = 0,
                         ExitStatus::Cause cause = ExitStatus::Cause::kItself) {
  ExitStatus status;
  status.exit_code = signal == 0 ? code : -1;
  status.signal = signal;
  status.cause = cause;
  return {rank, status};
}

class NodeStateTest : public testing::Test {
 protected:
  NodeStateTest() : id_(AttemptId::New(random_)) {
    state_.emplace(host_, Events());
    state_->Restore({}, [this] { restored_ = true; });
  }

  NodeState::Events Events() {
    return {.on_change = [this] { ++changes_; },
            .on_fault =
                [this](const absl::Status& why) {
                  EXPECT_NE(Seen().phase(), v1::PHASE_ENDED) << "told first";
                  faults_.emplace_back(why.message());
                },
            .on_begun = [this] { ++begun_; }};
  }
  v1::DesiredAttempt Want(v1::Goal goal) {
    v1::DesiredAttempt desired;
    desired.set_attempt_id(std::string(id_.bytes()));
    desired.set_epoch(7);
    desired.set_goal(goal);
    desired.set_world_size(2);
    for (int rank : {0, 1}) desired.add_ranks()->set_rank(rank);
    desired.mutable_grace()->set_seconds(3);
    return desired;
  }
  void Apply(const v1::DesiredAttempt& attempt) {
    v1::Desired desired;
    *desired.add_attempts() = attempt;
    state_->Apply(desired);
  }
  void RunToRunning() {
    Apply(Want(v1::GOAL_RUN));
    std::move(host_.prepared)(4711);
    std::move(host_.started)(absl::OkStatus());
    for (int rank : {0, 1}) host_.Tell(id_, RankStarted{rank, 100 + rank});
  }
  void RunWithPreflight() {
    v1::DesiredAttempt want = Want(v1::GOAL_RUN);
    want.set_preflight(true);
    Apply(want);
    std::move(host_.prepared)(0);
    std::move(host_.started)(absl::OkStatus());
  }
  // As a head has it that hears of the node for the first time.
  v1::ObservedAttempt Seen() {
    const std::vector<v1::Observed> chunks = state_->FullObserved();
    if (chunks.size() != 1 || chunks[0].attempts_size() != 1) return {};
    v1::ObservedAttempt seen = chunks[0].attempts(0);
    const v1::Observed delta = state_->TakeDelta();
    for (const v1::ObservedAttempt& after : delta.attempts()) {
      seen.set_stderr_tail(after.stderr_tail());
      *seen.mutable_exchanges() = after.exchanges();
    }
    return seen;
  }
  // The daemon dies and comes back with what is on disk.
  void Restart() {
    std::vector<JournalEntry> entries;
    for (const auto& [id, entry] : host_.journal) entries.push_back(entry);
    restored_ = false;
    host_.calls.clear();
    state_.emplace(host_, Events());
    state_->Restore(std::move(entries), [this] { restored_ = true; });
  }

  SeededRandom random_{1};
  const AttemptId id_;
  RecordingHost host_;
  std::optional<NodeState> state_;
  int changes_ = 0;
  std::vector<std::string> faults_;
  int begun_ = 0;
  bool restored_ = false;
};

}  // namespace cohort::worker
