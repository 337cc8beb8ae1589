// Nodes that say how their devices are.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class NodeDevicesTest : public ClusterStateTest {
 protected:
  Registration GpuNode(const NodeId& node, int gpus) {
    Registration registration = Node(node, 8);
    SetResource(registration.node, kGpu, Amount::FromUnits(gpus));
    for (int i = 0; i < gpus; ++i) {
      AddDevice(registration.node,
                {.id = Gpu(node, i), .kind = "gpu", .model = "m"});
    }
    return registration;
  }
  static std::string Gpu(const NodeId& node, int index) {
    return absl::StrCat("g", index, "-", node.ToHex().substr(0, 4));
  }
  v1::DeviceStatus Device(int index, DeviceState state, std::string why = "") {
    v1::DeviceStatus status;
    status.set_id(Gpu(a_, index));
    status.set_state(state);
    status.set_reason(std::move(why));
    return status;
  }
  void SayDevices(const std::vector<v1::DeviceStatus>& devices) {
    Transition transition;
    state_->NoteDevices(a_, incarnations_[a_], devices, transition);
    Submit(std::move(transition));
  }
  void Fence(int index, const std::string& why) {
    SayDevices({Device(index, v1::DEVICE_STATE_FENCED, why)});
  }
  JobSpec GpuSpec(int workers, double gpus) {
    JobSpec spec = Spec(workers, 1);
    SetResource(spec, kGpu,
                Amount::FromTenThousandths(
                    static_cast<int64_t>(gpus * Amount::kScale)));
    return spec;
  }
  const head::Device& Row(int index) {
    return *FindDevice(*state_->nodes().Find(a_), Gpu(a_, index));
  }
};

// DV-5, DV-6
TEST_F(NodeDevicesTest, AFencedDeviceIsGivenToNobodyUntilItIsNot) {
  Join(GpuNode(a_, 2));
  Fence(0, "GPU g0: Xid 48 (double-bit ECC error)");
  EXPECT_EQ(state_->nodes().AvailableOn(a_).Get(kGpu), Amount::FromUnits(1));
  const JobId job = SubmitJob(GpuSpec(1, 1));
  EXPECT_THAT(Attempt(job).processes[0].devices,
              ElementsAre(Pair(Gpu(a_, 1), Amount::FromUnits(1))));
  const JobId waits = SubmitJob(GpuSpec(1, 1));
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_PENDING);
  EXPECT_FALSE(state_->NeverFits(Job(waits)));
  EXPECT_THAT(state_->ReasonOf(Job(waits)), HasSubstr("1 with fenced GPUs"));
  ASSERT_EQ(NodeEvents("device_fenced").size(), 1u);
  EXPECT_THAT(NodeEvents("device_fenced")[0].text(), HasSubstr("Xid 48"));
  EXPECT_EQ(Row(0).state(), v1::DEVICE_STATE_FENCED);
  // The same again, and in other words.
  Fence(0, "GPU g0: Xid 48 (double-bit ECC error)");
  Fence(0, "GPU g0: 2 uncorrectable ECC errors");
  EXPECT_EQ(NodeEvents("device_fenced").size(), 1u);
  EXPECT_THAT(Row(0).reason(), HasSubstr("2 uncorrectable"));

  SayDevices({Device(0, v1::DEVICE_STATE_HEALTHY)});
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_STARTING);
  ASSERT_EQ(NodeEvents("device_healthy").size(), 1u);
  EXPECT_EQ(NodeEvents("device_healthy")[0].cause(),
            NodeEvents("device_fenced")[0].number());
}

// DV-5
TEST_F(NodeDevicesTest, SuspectDevicesAreTakenLast) {
  Join(GpuNode(a_, 3));
  SayDevices({Device(0, v1::DEVICE_STATE_SUSPECT, "GPU g0: Xid 154")});
  EXPECT_EQ(NodeEvents("device_suspect").size(), 1u);
  const JobId parts = SubmitJob(GpuSpec(1, 0.5));
  EXPECT_EQ(Attempt(parts).processes[0].devices.begin()->first, Gpu(a_, 1));
  const JobId whole = SubmitJob(GpuSpec(1, 1));
  EXPECT_EQ(Attempt(whole).processes[0].devices.begin()->first, Gpu(a_, 2));
  const JobId last = SubmitJob(GpuSpec(1, 1));
  EXPECT_EQ(Attempt(last).processes[0].devices.begin()->first, Gpu(a_, 0));
}

TEST_F(NodeDevicesTest, UnderARankNothingLeaksAndNothingDoubles) {
  Join(GpuNode(a_, 1));
  const JobId job = SubmitJob(GpuSpec(1, 0.5));
  Run(job);
  Fence(0, "GPU g0: Xid 94");
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(state_->nodes().AvailableOn(a_).Get(kGpu), Amount());
  const JobId waits = SubmitJob(GpuSpec(1, 0.5));
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_PENDING);
  Say(a_, Exited(job, a_, 0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_PENDING);
  SayDevices({Device(0, v1::DEVICE_STATE_HEALTHY)});
  EXPECT_EQ(state_->nodes().AvailableOn(a_).Get(kGpu),
            Amount::FromTenThousandths(5'000));
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_STARTING);
}

// DV-6
TEST_F(NodeDevicesTest, ItIsRestatedWithEachRegistrationAndToldOnce) {
  Registration registration = GpuNode(a_, 2);
  registration.devices = {
      Device(0, v1::DEVICE_STATE_FENCED, "GPU g0: it is lost")};
  Join(registration);
  const JobId job = SubmitJob(GpuSpec(1, 2));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  Join(registration);
  Reload();
  EXPECT_EQ(Row(0).state(),
            v1::DEVICE_STATE_FENCED);  // also of one that is away
  Join(registration);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_EQ(NodeEvents("device_fenced").size(), 1u);
  // What it does not name is healthy.
  registration.devices.clear();
  Join(registration);
  EXPECT_EQ(NodeEvents("device_healthy").size(), 1u);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

// DV-9
TEST_F(NodeDevicesTest, AnAttemptThatItsDeviceEndedIsInfraByThatFault) {
  Join(GpuNode(a_, 1));
  JobSpec spec = GpuSpec(1, 1);
  spec.mutable_run()->set_max_failures(0);
  const JobId job = SubmitJob(spec);
  Run(job);
  Fence(0, "GPU g0: Xid 79");
  const v1::ObservedPlace ended =
      EndedBy(Exited(job, a_, 1), v1::END_CAUSE_DEVICE_FAULT, "GPU g0: Xid 79");
  // The failed rank is heard of first.
  v1::ObservedPlace failed = Exited(job, a_, 1);
  failed.mutable_processes(0)->set_state(v1::PROCESS_STATE_EXITED);
  Say(a_, failed);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  Say(a_, ended);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);  // again, uncharged
  EXPECT_EQ(Job(job).row.failure_class(), v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(Job(job).row.failures(), 0);
  EXPECT_THAT(Job(job).row.causes()[0], HasSubstr("Xid 79"));
}

// DV-7
TEST_F(NodeDevicesTest, OfSamplesThereIsTheLatestAndNoneOnDisk) {
  Join(GpuNode(a_, 1));
  v1::DeviceStatus device = Device(0, v1::DEVICE_STATE_HEALTHY);
  device.mutable_sample()->set_temperature_celsius(40);
  Transition transition;
  state_->NoteDevices(a_, incarnations_[a_], {device}, transition);
  EXPECT_TRUE(transition.empty());
  device.mutable_sample()->set_temperature_celsius(41);
  SayDevices({device});
  EXPECT_EQ(state_->nodes().SampleOf(a_, Gpu(a_, 0))->temperature_celsius(),
            41);
  EXPECT_EQ(state_->nodes().SampleOf(a_, "other"), nullptr);
  Pass(limits_.node_timeout + absl::Seconds(1));
  EXPECT_EQ(state_->nodes().SampleOf(a_, Gpu(a_, 0)), nullptr);
}

TEST_F(NodeDevicesTest, StaleWordsAndStrangeDevicesChangeNothing) {
  Join(GpuNode(a_, 1));
  Transition transition;
  state_->NoteDevices(a_, incarnations_[a_] - 1,
                      {Device(0, v1::DEVICE_STATE_FENCED, "x")}, transition);
  state_->NoteDevices(b_, 1, {Device(0, v1::DEVICE_STATE_FENCED, "x")},
                      transition);
  v1::DeviceStatus others = Device(0, v1::DEVICE_STATE_FENCED, "x");
  others.set_id("another's");
  state_->NoteDevices(a_, incarnations_[a_], {others}, transition);
  EXPECT_TRUE(transition.empty());
  EXPECT_EQ(Row(0).state(), v1::DEVICE_STATE_HEALTHY);
}

}  // namespace
}  // namespace cohort::head
