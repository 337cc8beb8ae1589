// NodeState and the devices of its processes: DV-9.

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
  // Slot 0 has GPU a, slot 1 GPU b.
  v1::DesiredPlace WantGpus(v1::Goal goal,
                            v1::RestartPolicy policy = v1::RESTART_POLICY_ALL) {
    v1::DesiredPlace desired = Want(goal);
    desired.set_restart(policy);
    desired.mutable_processes(0)->add_gpu_ids("a");
    desired.mutable_processes(1)->add_gpu_ids("b");
    return desired;
  }
  void RunWithGpus(v1::RestartPolicy policy = v1::RESTART_POLICY_ALL) {
    Run(WantGpus(v1::GOAL_RUN, policy));
    host_.calls.clear();
  }
  void TellStopped(int slot) {
    TellExited(slot, Status(0, 15, ExitCause::kStopped));
  }
};

TEST_F(NodeStateDeviceTest, ALostDeviceEndsWhatRunsOnIt) {
  RunWithGpus();
  state_->NoteDeviceFault("c", "GPU c: it is lost", true);
  state_->NoteDeviceFault("b", "GPU b: Xid 95", false);  // it may go on
  EXPECT_THAT(host_.calls, IsEmpty());
  state_->NoteDeviceFault("b", "GPU b: Xid 79", true);
  state_->NoteDeviceFault("b", "GPU b: Xid 79", true);
  EXPECT_THAT(host_.calls, ElementsAre("revoke", "stop 0.1 5s", "stop 1.2 5s"));
  for (const int slot : {0, 1}) TellStopped(slot);
  TellAllEnded();
  for (const int slot : {0, 1}) {
    EXPECT_EQ(Seen(slot).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
    EXPECT_EQ(Seen(slot).detail(), "GPU b: Xid 79");
  }
}

TEST_F(NodeStateDeviceTest, SlotsThatGoOnByThemselvesLoseTheirOwnDevices) {
  RunWithGpus(v1::RESTART_POLICY_ONE);
  state_->NoteDeviceFault("b", "GPU b: Xid 79", true);
  EXPECT_THAT(host_.calls, ElementsAre("stop 1.2 5s"));
  TellStopped(1);
  TellEnded(1);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
}

TEST_F(NodeStateDeviceTest, ARankThatFailsOnADeviceWithAFaultFailsByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("a", "GPU a: Xid 94", false);
  TellExited(0, 1);
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen(0).detail(), "GPU a: Xid 94");
  TellStopped(1);
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen(0).detail(), "GPU a: Xid 94");
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_EXITED);
}

TEST_F(NodeStateDeviceTest, OneThatFailsOnAnotherDeviceFailsByItself) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  TellExited(0, 1);
  TellStopped(1);
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_EXITED);
}

// The rank that was healthy may be the first to notice: its collective is
// revoked while the other still hangs in its kernel.
TEST_F(NodeStateDeviceTest, ARankThatFailsAfterAnotherMayHaveBeenTheCause) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  TellExited(0, 1);
  TellExited(1, 1);
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen(1).detail(), "GPU b: Xid 94");
}

// The driver may tell of it a moment after the process is gone.
TEST_F(NodeStateDeviceTest, AFaultThatIsToldBeforeTheEndCounts) {
  RunWithGpus();
  TellExited(0, 1);
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  state_->NoteDeviceFault("a", "GPU a: Xid 94", false);
  TellEnded(0);
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen(0).detail(), "GPU a: Xid 94");
}

TEST_F(NodeStateDeviceTest, OfSeveralOnSickDevicesTheFirstThatFailsIsTold) {
  RunWithGpus();
  state_->NoteDeviceFault("a", "GPU a: Xid 74", false);
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  TellExited(1, 1);
  TellExited(0, 1);
  TellAllEnded();
  EXPECT_EQ(Seen(1).detail(), "GPU b: Xid 94");
  EXPECT_EQ(Seen(1).exit_order(), 1);
  EXPECT_EQ(Seen(0).detail(), "GPU a: Xid 74");
}

TEST_F(NodeStateDeviceTest, OneThatSucceededOnASickDeviceDidNotFailByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  TellExited(1, 0);
  TellExited(0, 1);
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_EXITED);
}

TEST_F(NodeStateDeviceTest, ARankThatDoesNotDieOfALostDeviceEndsByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: it is lost", true);
  ExitReport lost = Status(0, 9, ExitCause::kKeeperLost);
  lost.message = "processes do not die: 17";
  TellExited(1, lost);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen(1).detail(), "GPU b: it is lost; processes do not die: 17");
}

TEST_F(NodeStateDeviceTest, WhatWasAdoptedOnADeviceThatIsGoneIsEnded) {
  RunWithGpus();
  for (const bool is_there : {true, false}) {
    Restart();
    std::move(host_.adopted)(AllKnown());
    host_.calls.clear();
    state_->NoteDevicesThere(is_there ? std::set<std::string>{"a", "b", "c"}
                                      : std::set<std::string>{"a"});
    if (is_there) {
      EXPECT_THAT(host_.calls, IsEmpty());
      continue;
    }
    EXPECT_THAT(host_.calls,
                ElementsAre("revoke", "stop 0.1 5s", "stop 1.2 5s"));
    for (const int slot : {0, 1}) TellStopped(slot);
    TellAllEnded();
    EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
    EXPECT_EQ(Seen(1).detail(), "GPU b: it is not there any more");
  }
}

TEST_F(NodeStateDeviceTest, NothingBeginsOnADeviceWithAFault) {
  state_->NoteDeviceFault("b", "GPU b: Xid 48", false);
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  for (const int slot : {0, 1}) {
    EXPECT_EQ(Seen(slot).end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  }
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  EXPECT_THAT(faults_, IsEmpty());  // the node is well
  Apply(Want(v1::GOAL_FORGET));
  state_->NoteDeviceFault("b", "", false);
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_STARTING);
}

TEST_F(NodeStateDeviceTest, OneThatIsLostWhileItStartsEndsWhatStarted) {
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  state_->NoteDeviceFault("a", "GPU a: it is lost", true);
  host_.calls.clear();
  std::move(host_.begun)(absl::OkStatus());
  EXPECT_THAT(host_.calls, ElementsAre("stop 0.1 5s", "stop 1.2 5s"));
}

}  // namespace
}  // namespace cohort::worker
