#include "worker/device_monitor.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What a test says.
class ScriptedSource final : public DeviceSource {
 public:
  absl::StatusOr<std::vector<Device>> List() override {
    std::vector<Device> devices(2);
    devices[0].set_id("a");
    devices[1].set_id("b");
    return devices;
  }
  std::vector<DeviceAnswer> Sample() override {
    ++samples_taken;
    std::vector<DeviceAnswer> all = {{.id = "a"}, {.id = "b"}};
    for (DeviceAnswer& sample : all) {
      if (samples.contains(sample.id)) sample = samples.at(sample.id);
    }
    return all;
  }
  std::optional<std::vector<DeviceProcess>> Processes(
      const std::string& id) override {
    if (fails_processes) return std::nullopt;
    return processes[id];
  }
  std::optional<Xid> WaitXid(absl::Duration, bool* supported) override {
    ++waits;
    *supported = tells_xids;
    if (xids.empty()) return std::nullopt;
    const Xid xid = xids.front();
    xids.pop_front();
    return xid;
  }

  std::map<std::string, DeviceAnswer> samples;
  std::map<std::string, std::vector<DeviceProcess>> processes;
  bool fails_processes = false;  // none can be asked for
  std::deque<Xid> xids;
  bool tells_xids = true;
  int samples_taken = 0;
  int waits = 0;
};

class DeviceMonitorTest : public ::testing::Test {
 protected:
  using Question = absl::AnyInvocable<Task() &&>;

  DeviceMonitorTest() {
    const auto inspect = [this](Occupant& occupant) {
      if (marks_.contains(occupant.pid)) {
        occupant.process = marks_[occupant.pid];
      }
      occupant.untold = untold_.contains(occupant.pid);
      occupant.start_time = 1000 + static_cast<uint64_t>(occupant.pid);
      occupant.command = "python3";
    };
    monitor_.emplace(
        *source_->List(), source_, executor_,
        [this](Question question) { Ask(std::move(question)); },
        [this](Question question) { Ask(std::move(question)); }, clock_,
        DeviceMonitor::Events{
            .on_change = [this] { ++changes_; },
            .on_fault =
                [this](const std::string& id, const std::string&, bool lost) {
                  faults_.push_back(id + (lost ? " lost" : ""));
                }},
        inspect);
  }

  void Ask(Question question) {
    if (hangs_) {
      asked_.push_back(std::move(question));
      return;
    }
    executor_.Post([this, question = std::move(question)]() mutable {
      executor_.Post(std::move(question)());
    });
  }
  void Start() {
    monitor_->Start([this] { looked_ = true; });
    executor_.RunUntilIdle();
  }
  void Release(const std::string& process) {
    monitor_->Release(process,
                      [this, process] { released_.push_back(process); });
    executor_.RunUntilIdle();
  }
  // What was asked while the driver hung.
  void AnswerAll() {
    while (!asked_.empty()) {
      executor_.Post(std::move(asked_.front())());
      asked_.pop_front();
    }
  }
  const v1::DeviceStatus& A() const { return monitor_->statuses()[0]; }
  const v1::DeviceStatus& B() const { return monitor_->statuses()[1]; }

  const std::shared_ptr<ScriptedSource> source_ =
      std::make_shared<ScriptedSource>();
  ManualExecutor executor_;
  // Time in which nothing of this process runs may be added.
  struct PausedClock final : Clock {
    explicit PausedClock(const Clock& base) : base_(base) {}
    absl::Duration Monotonic() const override {
      return base_.Monotonic() + paused;
    }
    absl::Time Wall() const override { return base_.Wall() + paused; }
    const Clock& base_;
    absl::Duration paused;
  } clock_{executor_};
  std::map<int64_t, std::string> marks_;
  std::set<int64_t> untold_;
  bool hangs_ = false;
  std::deque<Question> asked_;
  bool looked_ = false;
  int changes_ = 0;
  std::vector<std::string> faults_;
  std::vector<std::string> released_;
  std::optional<DeviceMonitor> monitor_;
};

TEST_F(DeviceMonitorTest, LooksOnceASecondAndTellsChangesOnly) {
  source_->samples["a"] = {.id = "a"};
  source_->samples["a"].sample.set_temperature_celsius(40);
  Start();
  EXPECT_TRUE(looked_);
  EXPECT_EQ(A().sample().temperature_celsius(), 40);
  executor_.AdvanceBy(absl::Seconds(10));
  EXPECT_EQ(source_->samples_taken, 11);
  EXPECT_EQ(changes_, 0);
  source_->samples["b"] = {.id = "b"};
  source_->samples["b"].sample.set_ecc_volatile(1);
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
  EXPECT_EQ(B().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(B().reason(), HasSubstr("GPU b: 1 uncorrectable ECC"));
  EXPECT_THAT(faults_, ElementsAre("b"));
}

TEST_F(DeviceMonitorTest, XidsComeAtOnceToTheDevicesTheyAreOf) {
  Start();
  source_->xids.push_back({.ids = {"b"}, .code = 94});
  executor_.AdvanceBy(absl::Milliseconds(500));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
  EXPECT_THAT(B().reason(), HasSubstr("Xid 94"));
  EXPECT_EQ(B().sample().last_xid(), 94u);
  source_->xids.push_back({.ids = {"b"}, .code = 79});
  executor_.AdvanceBy(absl::Milliseconds(500));
  EXPECT_THAT(faults_, ElementsAre("b", "b lost"));
  // A driver that does not wait is not asked all the time.
  const int before = source_->waits;
  executor_.AdvanceBy(absl::Seconds(10));
  EXPECT_LE(source_->waits - before, 20);
  source_->tells_xids = false;
  executor_.AdvanceBy(absl::Seconds(1));
  const int last = source_->waits;
  executor_.AdvanceBy(absl::Seconds(10));
  EXPECT_EQ(source_->waits, last);
}

// DV-1
TEST_F(DeviceMonitorTest, ADriverThatHangsFencesAllAndNothingWaitsForIt) {
  hangs_ = true;
  Start();
  EXPECT_FALSE(looked_);
  executor_.AdvanceBy(absl::Seconds(10));
  EXPECT_TRUE(looked_);  // the worker joins without it
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED)
      << "who is on it is not known";
  monitor_->Hold("x", {"a"});
  Release("x");
  executor_.AdvanceBy(absl::Seconds(29));
  EXPECT_THAT(released_, IsEmpty());
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(released_, ElementsAre("x"));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_EQ(B().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(faults_, IsEmpty());
  // What it says in the end is heard.
  hangs_ = false;
  AnswerAll();
  executor_.AdvanceBy(absl::Seconds(70));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
}

TEST_F(DeviceMonitorTest, APauseOfOurOwnIsNotTheDriversSilence) {
  Start();
  executor_.AdvanceBy(absl::Seconds(5));
  hangs_ = true;
  executor_.AdvanceBy(absl::Seconds(2));
  clock_.paused += absl::Seconds(60);
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_SUSPECT) << "it does hang";
}

// DV-8: it could not be asked what the holder left, which is not nothing.
TEST_F(DeviceMonitorTest, ADriverThatHangsOverAnEndIsAskedAfterIt) {
  Start();
  monitor_->Hold("x", {"a", "b"});
  executor_.AdvanceBy(absl::Milliseconds(500));
  hangs_ = true;
  marks_[17] = "x";
  source_->processes["a"] = {{.pid = 17}};
  Release("x");
  executor_.AdvanceBy(absl::Seconds(30));
  EXPECT_THAT(released_, ElementsAre("x"));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(A().reason(),
              HasSubstr("not be asked since the end of process x"));
  monitor_->Forget("x");  // the head has recorded its end
  hangs_ = false;
  AnswerAll();
  executor_.AdvanceBy(absl::Seconds(70));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(A().reason(),
              AllOf(HasSubstr("process 17 (python3)"), HasSubstr("process x")));
  EXPECT_EQ(B().state(), v1::DEVICE_STATE_HEALTHY);
  source_->processes["a"].clear();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
  EXPECT_THAT(released_, ElementsAre("x"));
}

TEST_F(DeviceMonitorTest, AHolderWithoutMemoryIsReleasedAtOnce) {
  Start();
  Release("never held");
  monitor_->Hold("x", {"a", "b"});
  Release("x");
  EXPECT_THAT(released_, ElementsAre("never held", "x"));
}

// DV-8
TEST_F(DeviceMonitorTest, TheEndWaitsForTheMemory) {
  Start();
  monitor_->Hold("x", {"a"});
  executor_.RunUntilIdle();
  source_->processes["a"] = {{.pid = 17, .bytes = 4096}};
  Release("x");
  executor_.AdvanceBy(absl::Milliseconds(300));
  EXPECT_THAT(released_, IsEmpty());
  source_->processes["a"].clear();
  executor_.AdvanceBy(absl::Milliseconds(100));
  EXPECT_THAT(released_, ElementsAre("x"));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
}

// DV-8
TEST_F(DeviceMonitorTest, AProcessThatStaysFencesItsDeviceUntilItIsGone) {
  Start();
  monitor_->Hold("x", {"a", "b"});
  executor_.RunUntilIdle();
  source_->processes["a"] = {{.pid = 17, .bytes = int64_t{3} << 30}};
  Release("x");
  executor_.AdvanceBy(absl::Seconds(30));
  EXPECT_THAT(released_, ElementsAre("x"));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(A().reason(),
              AllOf(HasSubstr("GPU a"), HasSubstr("process 17 (python3)"),
                    HasSubstr("3GiB"), HasSubstr("process x")));
  EXPECT_EQ(B().state(), v1::DEVICE_STATE_HEALTHY);
  EXPECT_THAT(faults_, IsEmpty());  // the device has none
  // Another process is another's.
  source_->processes["a"] = {{.pid = 18, .bytes = 1}};
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
}

// DV-8
TEST_F(DeviceMonitorTest, ProcessesThatCannotBeAskedForAreNotNone) {
  Start();
  monitor_->Hold("x", {"a"});
  executor_.RunUntilIdle();
  source_->fails_processes = true;
  Release("x");
  executor_.AdvanceBy(absl::Seconds(2));
  EXPECT_THAT(released_, IsEmpty());
  source_->fails_processes = false;
  source_->processes["a"] = {{.pid = 17}};
  executor_.AdvanceBy(absl::Seconds(28));
  EXPECT_THAT(released_, ElementsAre("x"));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  source_->fails_processes = true;
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  source_->fails_processes = false;
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  source_->processes["a"].clear();
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
}

// What is lost is not offered anyway, and never says what was on it.
TEST_F(DeviceMonitorTest, TheEndDoesNotWaitForALostDevice) {
  Start();
  monitor_->Hold("x", {"a", "b"});
  executor_.RunUntilIdle();
  source_->samples["a"] = {.id = "a", .lost = "GPU is lost"};
  source_->fails_processes = true;
  Release("x");
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(A().reason(), HasSubstr("lost"));
  EXPECT_THAT(released_, IsEmpty()) << "of b it is not known";
  source_->samples["b"] = {.id = "b", .lost = "GPU is lost"};
  executor_.AdvanceBy(absl::Seconds(2));
  EXPECT_THAT(released_, ElementsAre("x"));
}

// DV-8
TEST_F(DeviceMonitorTest, ADaemonThatCannotAskAtItsStartFencesUntilItCan) {
  source_->fails_processes = true;
  Start();
  EXPECT_TRUE(looked_);
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  source_->fails_processes = false;
  marks_[17] = "gone";
  source_->processes["a"] = {{.pid = 17}};
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(A().reason(), HasSubstr("process 17"));
  EXPECT_EQ(B().state(), v1::DEVICE_STATE_HEALTHY);
}

// DV-8
TEST_F(DeviceMonitorTest, AFenceNamesThoseThatAreLeft) {
  Start();
  for (const std::string process : {"x", "y"}) {
    monitor_->Hold(process, {"a"});
  }
  executor_.RunUntilIdle();
  marks_ = {{17, "x"}, {18, "x"}, {19, "y"}};
  source_->processes["a"] = {{.pid = 17}, {.pid = 18}, {.pid = 19}};
  for (const std::string process : {"x", "y"}) Release(process);
  executor_.AdvanceBy(absl::Seconds(30));
  EXPECT_THAT(A().reason(),
              AllOf(HasSubstr("process 17 (python3), process 18 (python3) is "
                              "still on it after the end of process x"),
                    HasSubstr("process 19 (python3) is still on it after the "
                              "end of process y")));
  source_->processes["a"] = {{.pid = 18}};
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_EQ(A().reason(),
            "GPU a: process 18 (python3) is still on it after the end of "
            "process x");
}

// DV-8
TEST_F(DeviceMonitorTest, ADaemonThatWasRestartedFencesWhatEndedAttemptsLeft) {
  marks_ = {{17, "gone"}, {18, "kept"}};
  source_->processes["a"] = {{.pid = 1}, {.pid = 17}, {.pid = 18}};
  source_->processes["b"] = {{.pid = 1}, {.pid = 18}};
  monitor_->Adopt("kept", {"a", "b"});
  monitor_->Start([this] {
    looked_ = true;
    EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED)
        << "before the head hears of it";
  });
  executor_.RunUntilIdle();
  EXPECT_TRUE(looked_);
  EXPECT_EQ(A().reason(),
            "GPU a: process 17 (python3) is still on it after the end of "
            "process gone");
  EXPECT_EQ(B().state(), v1::DEVICE_STATE_HEALTHY);
  source_->processes["a"] = {{.pid = 1}, {.pid = 18}};
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
}

// DV-8
TEST_F(DeviceMonitorTest, ADaemonThatWasRestartedFencesWhatTellsNothing) {
  untold_ = {17};
  source_->processes["a"] = {{.pid = 1}, {.pid = 17}};
  source_->processes["b"] = {{.pid = 1}};
  Start();
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_EQ(A().reason(),
            "GPU a: process 17 (python3) was on it when the worker started, "
            "and does not tell whose it is");
  EXPECT_EQ(B().state(), v1::DEVICE_STATE_HEALTHY);
  source_->processes["a"] = {{.pid = 1}};
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
  // What comes later is none that was left.
  source_->processes["a"] = {{.pid = 1}, {.pid = 17}};
  executor_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
}

// DV-8
TEST_F(DeviceMonitorTest, WhatTellsNothingOnAnAdoptedDeviceMayBeItsHolders) {
  untold_ = {17};
  source_->processes["a"] = {{.pid = 1}, {.pid = 17}};
  monitor_->Adopt("kept", {"a"});
  Start();
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY)
      << "it may be a rank that runs";
  Release("kept");
  executor_.AdvanceBy(absl::Seconds(29));
  EXPECT_THAT(released_, IsEmpty());
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(released_, ElementsAre("kept"));
  EXPECT_THAT(A().reason(),
              AllOf(HasSubstr("process 17"), HasSubstr("process kept")));
  source_->processes["a"] = {{.pid = 1}};
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(A().state(), v1::DEVICE_STATE_HEALTHY);
}

TEST_F(DeviceMonitorTest, WhatTellsNothingAndWasThereBeforeIsNotTheHolders) {
  Start();
  untold_ = {17};
  source_->processes["a"] = {{.pid = 17}};
  monitor_->Hold("x", {"a"});
  executor_.RunUntilIdle();
  Release("x");
  EXPECT_THAT(released_, ElementsAre("x"));
}

TEST_F(DeviceMonitorTest, OthersOnTheDeviceAreNotTheHoldersMemory) {
  Start();
  marks_[5] = "y";
  source_->processes["a"] = {{.pid = 1}, {.pid = 5}};  // there before it
  monitor_->Hold("x", {"a"});
  executor_.RunUntilIdle();
  marks_[6] = "y";  // of one that shares it, and came later
  marks_[17] = "x";
  source_->processes["a"] = {{.pid = 1}, {.pid = 5}, {.pid = 6}, {.pid = 17}};
  Release("x");
  EXPECT_THAT(released_, IsEmpty());
  source_->processes["a"].pop_back();
  executor_.AdvanceBy(absl::Milliseconds(100));
  EXPECT_THAT(released_, ElementsAre("x"));
}

TEST_F(DeviceMonitorTest, ADaemonThatWasRestartedTellsRanksByTheirMark) {
  Start();
  marks_[17] = "x";
  source_->processes["a"] = {{.pid = 1}, {.pid = 17}};
  monitor_->Adopt("x", {"a"});
  executor_.RunUntilIdle();
  Release("x");
  EXPECT_THAT(released_, IsEmpty());
  source_->processes["a"] = {{.pid = 1}};
  executor_.AdvanceBy(absl::Milliseconds(100));
  EXPECT_THAT(released_, ElementsAre("x"));
}

}  // namespace
}  // namespace cohort::worker
