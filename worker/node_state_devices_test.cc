// NodeState and the devices of its ranks: DV-9.

#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/testing/node_state_fixture.h"

namespace cohort::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class NodeStateDeviceTest : public NodeStateTest {
 protected:
  // Rank 0 has GPU a, rank 1 GPU b.
  v1::DesiredAttempt WantGpus(v1::Goal goal) {
    v1::DesiredAttempt desired = Want(goal);
    desired.mutable_ranks(0)->add_gpu_ids("a");
    desired.mutable_ranks(1)->add_gpu_ids("b");
    return desired;
  }
  void RunWithGpus() {
    Apply(WantGpus(v1::GOAL_RUN));
    std::move(host_.prepared)(4711);
    std::move(host_.started)(absl::OkStatus());
    for (const int rank : {0, 1}) host_.Tell(id_, RankStarted{rank, 100});
    host_.calls.clear();
  }
};

TEST_F(NodeStateDeviceTest, ALostDeviceEndsWhatRunsOnIt) {
  RunWithGpus();
  state_->NoteDeviceFault("c", "GPU c: it is lost", true);
  state_->NoteDeviceFault("b", "GPU b: Xid 95", false);  // it may go on
  EXPECT_THAT(host_.calls, IsEmpty());
  state_->NoteDeviceFault("b", "GPU b: Xid 79", true);
  state_->NoteDeviceFault("b", "GPU b: Xid 79", true);
  EXPECT_THAT(host_.calls, ElementsAre("revoke", "stop 5s"));
  for (const int rank : {0, 1}) {
    host_.Tell(id_, Exited(rank, 0, 15, ExitStatus::Cause::kStopped));
  }
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen().detail(), "GPU b: Xid 79");
}

TEST_F(NodeStateDeviceTest, ARankThatFailsOnADeviceWithAFaultFailsByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("a", "GPU a: Xid 94", false);
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, Exited(1, 0, 15, ExitStatus::Cause::kStopped));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen().detail(), "GPU a: Xid 94");
}

TEST_F(NodeStateDeviceTest, OneThatFailsOnAnotherDeviceFailsByItself) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, Exited(1, 0, 15, ExitStatus::Cause::kStopped));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
}

// The rank that was healthy may be the first to notice: its collective is
// revoked while the other still hangs in its kernel.
TEST_F(NodeStateDeviceTest, ARankThatFailsAfterAnotherMayHaveBeenTheCause) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, Exited(1, 1));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen().detail(), "GPU b: Xid 94");
}

TEST_F(NodeStateDeviceTest, OfSeveralOnSickDevicesTheFirstThatFailsIsTold) {
  RunWithGpus();
  state_->NoteDeviceFault("a", "GPU a: Xid 74", false);
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  host_.Tell(id_, Exited(1, 1));
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().detail(), "GPU b: Xid 94");
}

TEST_F(NodeStateDeviceTest, OneThatSucceededOnASickDeviceDidNotFailByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  host_.Tell(id_, Exited(1, 0));
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
}

TEST_F(NodeStateDeviceTest, ARankThatDoesNotDieOfALostDeviceEndsByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: it is lost", true);
  host_.Tell(id_, KeeperLost{.message = "processes do not die: 17"});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen().detail(), "GPU b: it is lost; processes do not die: 17");
}

TEST_F(NodeStateDeviceTest, WhatWasAdoptedOnADeviceThatIsGoneIsEnded) {
  RunWithGpus();
  const JournalEntry kept = host_.journal.at(id_);
  for (const bool is_there : {true, false}) {
    RecordingHost host;
    NodeState state(host, {.on_change = [] {},
                           .on_fault = [](const absl::Status&) {},
                           .on_begun = [] {}});
    state.Restore({kept}, [] {});
    AdoptedAttempt adopted;
    adopted.phase = AttemptPhase::kRunning;
    std::move(host.adopted)(std::move(adopted));
    host.calls.clear();
    state.NoteDevicesThere(is_there ? std::set<std::string>{"a", "b", "c"}
                                    : std::set<std::string>{"a"});
    if (is_there) {
      EXPECT_THAT(host.calls, IsEmpty());
      continue;
    }
    EXPECT_THAT(host.calls, ElementsAre("revoke", "stop 5s"));
    for (const int rank : {0, 1}) {
      host.Tell(id_, Exited(rank, 0, 15, ExitStatus::Cause::kStopped));
    }
    host.Tell(id_, AllDone{});
    const v1::ObservedAttempt seen = state.FullObserved().front().attempts(0);
    EXPECT_EQ(seen.end_cause(), v1::END_CAUSE_DEVICE_FAULT);
    EXPECT_EQ(seen.detail(), "GPU b: it is not there any more");
  }
}

TEST_F(NodeStateDeviceTest, NothingBeginsOnADeviceWithAFault) {
  state_->NoteDeviceFault("b", "GPU b: Xid 48", false);
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  EXPECT_THAT(faults_, IsEmpty());  // the node is well
  Apply(WantGpus(v1::GOAL_FORGET));
  state_->NoteDeviceFault("b", "", false);
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  EXPECT_EQ(Seen().phase(), v1::PHASE_STARTING);
}

TEST_F(NodeStateDeviceTest, OneThatIsLostWhileItStartsEndsWhatStarted) {
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  state_->NoteDeviceFault("a", "GPU a: it is lost", true);
  host_.calls.clear();
  std::move(host_.started)(absl::OkStatus());
  EXPECT_THAT(host_.calls, ElementsAre("stop 5s"));
}

}  // namespace
}  // namespace cohort::worker
