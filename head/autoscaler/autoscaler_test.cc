// A head with a provider that has faults: everything but programs and threads.

#include "head/autoscaler/autoscaler.h"

#include <algorithm>
#include <cstdlib>
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

#include "common/testing/temp_dir.h"
#include "head/testing/head_core_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

constexpr char kFile[] = R"(
provider: cloud
max_nodes: 6
idle_timeout: 30s
launch_timeout: 2m
node_types:
  cpu: {resources: {CPU: 4}, max: 4}
  large: {resources: {CPU: 16}, max: 2, cost: 10}
)";

// From the submission of a gang until its nodes are gone.
constexpr int kWritesOfAGang = 42;

// A machine of the provider, and the worker on it.
struct Machine {
  std::string id;
  InstanceId key;
  std::string type;
  int cpus = 4;
  absl::Duration boots_at;
  NodeId node;
  std::unique_ptr<FakeWorker> worker;
  size_t read = 0;  // messages of the head
  // What it has, and when it ends by itself.
  struct Place {
    v1::DesiredPlace desired;
    Stage stage = Stage::kPrepared;
    absl::Duration ends_at;
  };
  std::map<std::string, Place> places;
  std::vector<std::unique_ptr<rpc::TypedStream<v1::LogMessage>>> calls;

  bool Runs() const {
    for (const auto& [attempt, place] : places) {
      if (place.stage != Stage::kEnded) return true;
    }
    return false;
  }
};

class AutoscalerTest : public HeadCoreTest, public Provider {
 protected:
  AutoscalerTest() {
    Crash();
    provider_ = this;
    Start();
  }
  ~AutoscalerTest() override {
    machines_.clear();
    ended_.clear();
    Crash();
    Run();
  }

  // ---- Provider ----

  absl::Status Check(const std::string& program) const override {
    if (program == "cloud" || program == "other") return absl::OkStatus();
    return absl::InvalidArgumentError("no such provider");
  }
  void Launch(const std::string&, const LaunchOrder& order,
              Launched done) override {
    ++launches_;
    absl::StatusOr<std::string> answer = absl::AbortedError("no capacity");
    if (launches_to_fail_ > 0) {
      --launches_to_fail_;
    } else {
      Machine* machine = OfKey(order.instance);
      if (machine == nullptr) machine = &Make(order);
      answer = machine->id;
      if (Chance(lost_answers_)) answer = absl::DeadlineExceededError("lost");
    }
    Later([done = std::move(done), answer]() mutable {
      std::move(done)(std::move(answer));
    });
  }
  void Terminate(const std::string&, const ClusterId&, const std::string& id,
                 Done done) override {
    if (terminates_fail_) {
      return Later([done = std::move(done)]() mutable {
        std::move(done)(absl::UnavailableError("not now"));
      });
    }
    const auto found = machines_.find(id);
    if (found != machines_.end()) {
      EXPECT_FALSE(found->second->Runs() && may_not_end_running_)
          << "SC-8: " << id;
      ended_.push_back(std::move(found->second));
      machines_.erase(found);
    }
    Later([done = std::move(done)]() mutable {
      std::move(done)(absl::OkStatus());
    });
  }
  void List(const std::string&, const ClusterId&, Listed done) override {
    std::vector<ProvidedInstance> all;
    for (const auto& [id, machine] : machines_) {
      ProvidedInstance& each = all.emplace_back();
      each.id = id;
      each.instance = machine->key;
      each.failed = failed_.contains(id);
      each.reason = reason_;
      if (notices_.contains(id)) each.notice = notices_.at(id);
    }
    Later([done = std::move(done), all = std::move(all)]() mutable {
      std::move(done)(std::move(all));
    });
  }

  void Watch(const std::string&, const ClusterId&, Watched on_event) override {
    watched_ = std::move(on_event);
  }

  Machine* OfKey(const InstanceId& key) {
    for (const auto& [id, machine] : machines_) {
      if (machine->key == key) return machine.get();
    }
    return nullptr;
  }
  Machine& Make(const LaunchOrder& order) {
    auto machine = std::make_unique<Machine>();
    machine->id = absl::StrCat("m", ++made_);
    machine->key = order.instance;
    machine->type = order.type.name();
    machine->cpus = short_of_cpus_ ? 1 : machine->type == "cpu" ? 4 : 16;
    machine->boots_at = time_.Monotonic() + boot_time_;
    machine->node = NodeId::New(random_);
    Machine& made = *machine;
    machines_[made.id] = std::move(machine);
    most_ = std::max(most_, machines_.size());
    return made;
  }

  // ---- what time brings ----

  int Below(int n) {
    return static_cast<int>(random_.Uint64() % static_cast<uint64_t>(n));
  }
  bool Chance(int percent) { return Below(100) < percent; }
  void Later(Task task) {
    time_.PostAfter(absl::Milliseconds(10 + Below(200)), std::move(task));
  }

  void Register(Machine& machine) {
    v1::WorkerMessage first = Registration(machine.node, machine.cpus);
    v1::Register& body = *first.mutable_register_();
    body.set_name(machine.id);
    (*body.mutable_labels())["instance"] = machine.key.ToHex();
    (*body.mutable_labels())["node-type"] = machine.type;
    for (const auto& [id, place] : machine.places) {
      *body.mutable_observed()->add_places() = Observed(place);
    }
    machine.worker = Open(first, machine.id);
    machine.read = 0;
  }
  v1::ObservedPlace Observed(const Machine::Place& place) {
    return place.stage == Stage::kEnded ? Exited(place.desired, 0)
                                        : At(place.desired, place.stage);
  }
  void Live(Machine& machine) {
    if (time_.Monotonic() < machine.boots_at || core_ == nullptr) return;
    if (machine.worker == nullptr || machine.worker->closed.has_value()) {
      Register(machine);
    }
    Heartbeat(machine);
    while (machine.read < machine.worker->messages.size()) {
      const v1::HeadMessage message = machine.worker->messages[machine.read++];
      for (const v1::DesiredPlace& desired : message.desired().places()) {
        Obey(machine, desired);
      }
      if (message.has_send_log() && !Chance(mute_)) Answer(machine, message);
    }
    for (auto& [id, place] : machine.places) {
      if (place.stage == Stage::kRunning &&
          time_.Monotonic() >= place.ends_at) {
        place.stage = Stage::kEnded;
        Tell(machine, Observed(place));
      }
    }
  }
  // A head that has just died does not hear it: the next one is told all.
  void Tell(Machine& machine, const v1::ObservedPlace& place) {
    v1::WorkerMessage message;
    message.set_incarnation(machine.worker->incarnation);
    *message.mutable_observed()->add_places() = place;
    (void)machine.worker->stream->Write(message);
    Run();
  }
  void Heartbeat(Machine& machine) {
    v1::WorkerMessage message;
    message.set_incarnation(machine.worker->incarnation);
    message.mutable_heartbeat();
    (void)machine.worker->stream->Write(message);
  }
  // Its logs are of 7 bytes, of which the first 3 are gone.
  void Answer(Machine& machine, const v1::HeadMessage& asked) {
    v1::LogMessage read;
    *read.mutable_read()->mutable_stamp() = asked.stamp();
    read.mutable_read()->set_node_id(IdBytes(machine.node));
    read.mutable_read()->set_read_id(asked.send_log().read_id());
    v1::LogMessage message;
    v1::LogPiece& piece = *message.mutable_piece();
    piece.set_known(true);
    piece.set_end(true);
    if (asked.send_log().list()) {
      if (has_results_) piece.add_files()->set_path("model.pt");
    } else {
      piece.set_offset(3);
      piece.set_data("last");
    }
    machine.calls.push_back(rpc::OpenStream<v1::LogMessage, v1::NextLogPiece>(
        *machine.worker->channel, rpc::kSendLog,
        {.deadline = absl::InfiniteDuration()}, time_,
        {.on_message = [](const v1::NextLogPiece&) {},
         .on_closed = [](absl::Status, auto) {}}));
    (void)machine.calls.back()->Write(read);
    (void)machine.calls.back()->Write(message);
  }
  void Obey(Machine& machine, const v1::DesiredPlace& desired) {
    if (desired.goal() == v1::GOAL_FORGET) {
      machine.places.erase(desired.attempt_id());
      return;
    }
    const auto found = machine.places.find(desired.attempt_id());
    if (found == machine.places.end()) {
      Machine::Place& place = machine.places[desired.attempt_id()];
      place.desired = desired;
      Tell(machine, Observed(place));
      return;
    }
    Machine::Place& place = found->second;
    bool runs = false;
    bool stops = false;
    for (const v1::DesiredProcess& process : desired.processes()) {
      runs |= process.goal() == v1::GOAL_RUN;
      stops |= process.goal() == v1::GOAL_STOP;
    }
    if (stops && place.stage != Stage::kEnded) {
      place.stage = Stage::kEnded;
      Tell(machine, Observed(place));
    } else if (runs && place.stage == Stage::kPrepared) {
      place.desired = desired;
      place.stage = Stage::kRunning;
      place.ends_at = time_.Monotonic() + job_time_;
      Tell(machine, Observed(place));
    }
  }
  virtual void AfterStep() {}
  void Pass(absl::Duration span) {
    for (const absl::Duration end = time_.Monotonic() + span;
         time_.Monotonic() < end;) {
      Run(absl::Milliseconds(200));
      ended_.clear();
      // A step may end machines.
      std::vector<std::string> ids;
      for (const auto& [id, machine] : machines_) ids.push_back(id);
      for (const std::string& id : ids) {
        const auto found = machines_.find(id);
        if (found != machines_.end()) Live(*found->second);
      }
      AfterStep();
    }
  }

  // ---- people ----

  absl::Status Apply(const std::string& text) {
    v1::ApplyClusterFileRequest request;
    request.set_text(text);
    return Call(rpc::kApplyClusterFile, request).status();
  }
  std::string SubmitGang(const std::string& name, int workers) {
    const auto job = Call(rpc::kSubmitJob, Submission(name, workers));
    EXPECT_TRUE(job.ok());
    return job.ok() ? job->job_id() : "";
  }
  std::string Scaling(const std::string& job) {
    v1::ExplainJobRequest request;
    request.set_job_id(job);
    return Call(rpc::kExplainJob, request)->scaling();
  }
  v1::Autoscaling Shown() {
    return *Call(rpc::kGetAutoscaler, v1::GetAutoscalerRequest());
  }
  std::vector<v1::Token> Tokens() {
    const auto listed = Call(rpc::kListTokens, v1::ListTokensRequest());
    return {listed->tokens().begin(), listed->tokens().end()};
  }
  v1::JobState StateOf(const std::string& job) { return Get(job).state(); }

  std::map<std::string, std::unique_ptr<Machine>> machines_;
  // Which may be in the middle of a word.
  std::vector<std::unique_ptr<Machine>> ended_;
  std::set<std::string> failed_;
  std::map<std::string, absl::Duration> notices_;
  std::string reason_;  // why none runs yet
  Watched watched_;
  int made_ = 0;
  int launches_ = 0;
  size_t most_ = 0;
  int launches_to_fail_ = 0;
  int lost_answers_ = 0;  // percent
  bool short_of_cpus_ = false;
  bool terminates_fail_ = false;
  bool has_results_ = false;
  int mute_ = 0;  // percent of what is asked before they go
  bool may_not_end_running_ = true;
  absl::Duration boot_time_ = absl::Seconds(3);
  absl::Duration job_time_ = absl::Seconds(10);
};

TEST_F(AutoscalerTest, AMachineIsLetInByATokenOfItsOwnUntilItIsGone) {
  COHORT_ASSERT_OK(Apply(kFile));
  SubmitGang("a", 1);
  Pass(absl::Seconds(1));
  ASSERT_EQ(machines_.size(), 1u);
  const Machine& machine = *machines_.begin()->second;
  const std::string id = LaunchTokenId(machine.key);
  ASSERT_EQ(Tokens().size(), 1u);
  EXPECT_EQ(Tokens()[0].token_id(), id);
  EXPECT_EQ(Tokens()[0].role(), v1::ROLE_JOIN);

  v1::JoinRequest join;
  join.set_node_id(IdBytes(machine.node));
  join.set_nonce("12345678");
  COHORT_ASSERT_OK(Call(rpc::kJoin, join, absl::Seconds(5),
                        rpc::Credential::OfToken(credential_, id)));
  Pass(absl::Seconds(10));
  // It is here, so nobody joins by that any more.
  ASSERT_EQ(Tokens().size(), 1u);
  EXPECT_EQ(Tokens()[0].role(), v1::ROLE_WORKER);
  EXPECT_EQ(Call(rpc::kJoin, join, absl::Seconds(5),
                 rpc::Credential::OfToken(credential_, id))
                .status()
                .code(),
            absl::StatusCode::kUnauthenticated);
  Pass(absl::Minutes(10));
  ASSERT_TRUE(machines_.empty());
  EXPECT_TRUE(Tokens().empty());
}

TEST_F(AutoscalerTest, GrowsForAJobRunsItAndShrinks) {
  COHORT_ASSERT_OK(Apply(kFile));
  const std::string job = SubmitGang("train", 8);
  Pass(absl::Seconds(2));
  EXPECT_THAT(machines_, SizeIs(2));
  EXPECT_EQ(Scaling(job),
            "2 cpu nodes are being launched for it, requested 2s ago");
  Pass(absl::Seconds(20));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(machines_, SizeIs(2));
  // Which took some seconds.
  EXPECT_GT(Shown().node_types(0).usual_launch_us(), 3'000'000);
  const std::string next = SubmitGang("next", 12);
  Pass(absl::Seconds(1));
  EXPECT_THAT(Scaling(next),
              MatchesRegex("1 cpu node is being launched for it, requested 1s "
                           "ago, usually [34]s"));
  Pass(absl::Seconds(60));
  EXPECT_THAT(machines_, IsEmpty());
  EXPECT_THAT(Shown().instances(), IsEmpty());
  // And nobody has to undrain what is gone.
  EXPECT_EQ(core_->state()->nodes().DrainedCount(), 0u);
}

// SC-9.
TEST_F(AutoscalerTest, ResultsHoldANodeAndItsLogsOutliveIt) {
  const TempDir temp;
  LastLogs kept(temp.path(), {}, time_, time_);
  last_logs_ = &kept;
  Crash();
  Start();
  COHORT_ASSERT_OK(Apply(absl::StrCat(kFile, "data_timeout: 2m\n")));
  has_results_ = true;
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(60));
  ASSERT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  ASSERT_THAT(machines_, SizeIs(1));
  ASSERT_THAT(Shown().next(), SizeIs(1));
  EXPECT_THAT(std::string(Shown().next(0)),
              HasSubstr("with what 1 job wrote only there"));
  const auto lost = [&] {
    const auto events = Call(rpc::kListEvents, v1::ListEventsRequest());
    return std::count_if(
        events->events().begin(), events->events().end(),
        [](const v1::Event& each) { return each.kind() == "results_lost"; });
  };
  EXPECT_EQ(lost(), 0);
  const AttemptRecord attempt =
      *core_->state()->attempts().LastOf(IdOf<JobId>(job));
  Pass(absl::Minutes(2));
  EXPECT_THAT(machines_, IsEmpty());
  EXPECT_EQ(lost(), 1);
  for (const Process& process : attempt.processes) {
    std::optional<absl::StatusOr<LastLogs::Found>> found;
    kept.Read({.attempt = attempt.id,
               .slot = process.slot,
               .incarnation = process.incarnation,
               .stream = v1::LOG_STREAM_STDERR},
              0, [&](auto answer) { found = std::move(answer); });
    Run();
    COHORT_ASSERT_OK(*found);
    EXPECT_EQ((*found)->node_name, "m1");
    EXPECT_EQ((*found)->piece.data(), "last");
  }
  Crash();
}

TEST_F(AutoscalerTest, WaitsForWhatATimeLimitFreesSooner) {
  COHORT_ASSERT_OK(Apply(kFile));
  boot_time_ = job_time_ = absl::Seconds(25);
  v1::SubmitJobRequest request = Submission("first", 4);
  request.mutable_spec()->mutable_run()->set_time_limit_us(29'000'000);
  request.mutable_spec()->mutable_run()->set_grace_us(0);
  COHORT_ASSERT_OK(Call(rpc::kSubmitJob, request));
  Pass(absl::Seconds(40));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string next = SubmitGang("next", 4);
  Pass(absl::Seconds(2));
  EXPECT_THAT(Scaling(next),
              HasSubstr("the time limit of job job makes room for it on node "
                        "m1 within "));
  EXPECT_THAT(std::string(Shown().next(0)), HasSubstr("without a launch"));
  Pass(absl::Seconds(40));
  EXPECT_EQ(StateOf(next), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(made_, 1);
}

TEST_F(AutoscalerTest, SaysWhenNothingCanHoldAJob) {
  COHORT_ASSERT_OK(Apply(kFile));
  v1::SubmitJobRequest request = Submission("huge");
  *request.mutable_spec()->mutable_scaling()->mutable_resources_per_worker() =
      rpc::ToWire(*ParseResources("CPU=64"));
  const auto job = Call(rpc::kSubmitJob, request);
  Pass(absl::Seconds(2));
  EXPECT_EQ(Scaling(job->job_id()),
            "no node is launched for it: no node type of the cluster file "
            "holds it");
  EXPECT_EQ(launches_, 0);
}

TEST_F(AutoscalerTest, ATypeThatFailsBacksOffAndAnotherOneIsTried) {
  COHORT_ASSERT_OK(Apply(kFile));
  launches_to_fail_ = 3;
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(30));
  ASSERT_THAT(machines_, SizeIs(1));
  EXPECT_EQ(machines_.begin()->second->type, "large");
  EXPECT_THAT(std::string(Shown().node_types(0).failure()),
              HasSubstr("no capacity"));
  Pass(absl::Seconds(20));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, ANodeWithLessThanPromisedGoesAgain) {
  COHORT_ASSERT_OK(Apply(kFile));
  short_of_cpus_ = true;
  SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  short_of_cpus_ = false;
  Pass(absl::Seconds(60));
  EXPECT_GE(made_, 2);
  for (const auto& [id, machine] : machines_) EXPECT_GT(machine->cpus, 1);
}

TEST_F(AutoscalerTest, OneThatNeverJoinsIsEnded) {
  COHORT_ASSERT_OK(Apply(kFile));
  boot_time_ = absl::Hours(1);
  SubmitGang("train", 4);
  Pass(absl::Seconds(5));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  Pass(absl::Minutes(3));
  EXPECT_FALSE(machines_.contains(first));
  EXPECT_THAT(std::string(Shown().node_types(0).failure()),
              HasSubstr("not joined within 2m"));
}

TEST_F(AutoscalerTest, WhyOneWaitedIsGoneOnceItHasJoined) {
  COHORT_ASSERT_OK(Apply(kFile));
  boot_time_ = absl::Seconds(25);
  reason_ = "Resources";
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(20));
  EXPECT_THAT(Scaling(job), HasSubstr("the provider says: Resources"));
  Pass(absl::Seconds(15));
  ASSERT_THAT(Shown().instances(), SizeIs(1));
  EXPECT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_JOINED);
  EXPECT_EQ(Shown().instances(0).reason(), "");
}

// SC-8: its launch was given up, but the machine is there and takes work.
TEST_F(AutoscalerTest, OneThatJoinsAfterAllIsKept) {
  COHORT_ASSERT_OK(Apply(kFile));
  launches_to_fail_ = 2;
  lost_answers_ = 100;
  boot_time_ = absl::Milliseconds(500);
  job_time_ = absl::Minutes(1);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Minutes(2));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get(job).attempt(), 1);
}

// SC-8: what is being ended takes nothing.
TEST_F(AutoscalerTest, OneThatJoinsTooLateGetsNoWork) {
  COHORT_ASSERT_OK(Apply(kFile));
  boot_time_ = absl::Hours(1);
  job_time_ = absl::Minutes(1);
  terminates_fail_ = true;
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(125));
  ASSERT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_TERMINATING);
  for (const auto& [id, machine] : machines_) {
    if (machine->key == IdOf<InstanceId>(Shown().instances(0).instance_id())) {
      machine->boots_at = time_.Monotonic();
    }
  }
  Pass(absl::Seconds(5));
  boot_time_ = absl::ZeroDuration();
  terminates_fail_ = false;
  Pass(absl::Minutes(11));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, RequestedRoomComesStaysAndGoes) {
  COHORT_ASSERT_OK(Apply(kFile));
  v1::RequestCapacityRequest request;
  request.mutable_request()->set_name("mine");
  auto& bundle = *request.mutable_request()->add_bundles();
  *bundle.mutable_resources() = rpc::ToWire(*ParseResources("CPU=4"));
  bundle.set_count(2);
  request.set_ttl_us(absl::ToInt64Microseconds(absl::Minutes(5)));
  COHORT_ASSERT_OK(Call(rpc::kRequestCapacity, request));
  Pass(absl::Minutes(4));
  EXPECT_THAT(machines_, SizeIs(2));
  Pass(absl::Minutes(3));
  EXPECT_THAT(machines_, IsEmpty());
}

TEST_F(AutoscalerTest, ANoticeDrainsAndAnotherNodeComes) {
  COHORT_ASSERT_OK(Apply(kFile));
  job_time_ = absl::Minutes(2);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  notices_[first] = absl::Seconds(20);
  Pass(absl::Seconds(60));
  EXPECT_FALSE(machines_.contains(first));
  EXPECT_THAT(machines_, SizeIs(1));
  Pass(absl::Minutes(4));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, WhatTheProviderLosesIsReplaced) {
  COHORT_ASSERT_OK(Apply(kFile));
  job_time_ = absl::Minutes(1);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  machines_.clear();
  Pass(absl::Minutes(3));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(made_, 2);
}

TEST_F(AutoscalerTest, WhatTheProviderTellsIsActedOnAtOnce) {
  COHORT_ASSERT_OK(Apply(kFile));
  job_time_ = absl::Minutes(2);
  const std::string job = SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  watched_({.id = "m99", .notice = absl::ZeroDuration()});
  watched_({.id = "m99"});
  watched_({.id = first, .notice = absl::Seconds(20), .reason = "spot"});
  Pass(absl::Seconds(1));
  EXPECT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_DRAINING);
  EXPECT_THAT(std::string(Shown().instances(0).reason()),
              HasSubstr("takes it in 20s: spot"));
  Pass(absl::Seconds(60));
  EXPECT_FALSE(machines_.contains(first));
  EXPECT_THAT(machines_, SizeIs(1));
  Pass(absl::Minutes(4));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(AutoscalerTest, WhatTheProviderSaysIsGoneIsBelievedWithItsListOnly) {
  COHORT_ASSERT_OK(Apply(kFile));
  job_time_ = absl::Minutes(2);
  SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  ASSERT_THAT(machines_, SizeIs(1));
  const std::string first = machines_.begin()->first;
  watched_({.id = first});
  Pass(absl::Seconds(2));
  EXPECT_EQ(Shown().instances(0).state(), v1::INSTANCE_STATE_JOINED);
  machines_.clear();
  watched_({.id = first, .reason = "evicted"});
  // Long before its node is silent for too long.
  Pass(absl::Seconds(2));
  EXPECT_THAT(Shown().instances(), IsEmpty());
}

TEST_F(AutoscalerTest, AnotherProviderWaitsForTheInstancesOfThisOne) {
  COHORT_ASSERT_OK(Apply(kFile));
  SubmitGang("train", 4);
  Pass(absl::Seconds(10));
  EXPECT_EQ(Apply("provider: other\nnode_types: {}").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Apply("provider: nimbus\nnode_types: {}").code(),
            absl::StatusCode::kInvalidArgument);
  COHORT_ASSERT_OK(Apply("provider: cloud\nnode_types: {}"));
  Pass(absl::Minutes(1));
  EXPECT_THAT(machines_, IsEmpty());
  COHORT_EXPECT_OK(Apply("provider: other\nnode_types: {}"));
}

TEST_F(AutoscalerTest, ADryRunOnlySays) {
  Crash();
  options_.autoscaler.dry_run = true;
  Start();
  COHORT_ASSERT_OK(Apply(kFile));
  SubmitGang("train", 8);
  Pass(absl::Seconds(5));
  EXPECT_EQ(launches_, 0);
  EXPECT_THAT(Shown().next(),
              ElementsAre(HasSubstr("would launch 2 cpu: 8 x {CPU 1}")));
}

TEST_F(AutoscalerTest, AStrayIsEndedAndOneWithANodeIsTakenIn) {
  COHORT_ASSERT_OK(Apply(kFile));
  Pass(absl::Seconds(2));
  LaunchOrder order{.instance = InstanceId::New(random_)};
  order.type.set_name("cpu");
  boot_time_ = absl::Hours(1);
  const std::string orphan = Make(order).id;
  boot_time_ = absl::ZeroDuration();
  order.instance = InstanceId::New(random_);
  const std::string node = Make(order).id;
  Pass(absl::Seconds(20));
  EXPECT_THAT(Shown().instances(), SizeIs(1));
  Pass(absl::Minutes(2));
  EXPECT_FALSE(machines_.contains(orphan));
  // It was idle for long enough, as any other.
  EXPECT_FALSE(machines_.contains(node));
}

// Whatever fails, and however often the head dies, at any write and between
// two: no more instances than there may be, none that runs something ended,
// every job done, nothing left.
class AutoscalerFaultsTest : public AutoscalerTest,
                             public ::testing::WithParamInterface<int> {
 protected:
  void AfterStep() override {
    EXPECT_LE(machines_.size(), 6u);
    if (disk_.faults_fired() > faults_seen_) Restart();
  }
  // As SIGKILL, or with the whole machine.
  void Restart() {
    faults_seen_ = disk_.faults_fired();
    Crash();
    if (Chance(30)) disk_.PowerOff(random_);
    const bool kills = std::exchange(kills_, false);
    Start();
    kills_ = kills;
  }
  // Each write of the head is its last one with that chance.
  void KillAtWrites(int percent) {
    kills_ = true;
    disk_.SetFate([this, percent](const Batch&) -> std::optional<AppendFault> {
      if (!kills_ || !Chance(percent)) return std::nullopt;
      constexpr AppendFault kFaults[] = {AppendFault::kLanded,
                                         AppendFault::kNotLanded,
                                         AppendFault::kUnsynced};
      return kFaults[Below(3)];
    });
  }
  // Asks again, as the client does.
  std::string SubmitThroughKills(const std::string& name, int workers) {
    while (true) {
      const auto job = Call(rpc::kSubmitJob, Submission(name, workers));
      if (job.ok()) return job->job_id();
      AfterStep();
    }
  }
  void FinishAndLeaveNothing(const std::vector<std::string>& jobs) {
    kills_ = false;
    lost_answers_ = launches_to_fail_ = 0;
    Pass(absl::Minutes(15));
    for (const std::string& job : jobs) {
      EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
    }
    Pass(absl::Minutes(3));
    EXPECT_THAT(machines_, IsEmpty());
    EXPECT_THAT(core_->state()->fleet().instances(), IsEmpty());
  }

  bool kills_ = false;
  int faults_seen_ = 0;
};

TEST_P(AutoscalerFaultsTest, Converges) {
  for (int i = 0; i < GetParam(); ++i) (void)random_.Uint64();
  COHORT_ASSERT_OK(Apply(kFile));
  std::vector<std::string> jobs;
  lost_answers_ = 30;
  KillAtWrites(3);
  for (int round = 0; round < 25; ++round) {
    if (Chance(40)) {
      jobs.push_back(
          SubmitThroughKills(absl::StrCat("j", round), 1 + Below(12)));
    }
    if (Chance(20)) launches_to_fail_ = Below(3);
    boot_time_ = absl::Seconds(Below(30));
    job_time_ = absl::Seconds(1 + Below(30));
    mute_ = Chance(30) ? 50 : 0;
    if (Chance(30)) {
      // At any time between two writes.
      time_.AdvanceBy(absl::Milliseconds(Below(400)));
      Restart();
    }
    if (!machines_.empty() && Chance(10)) {
      notices_[machines_.begin()->first] = absl::Seconds(Below(20));
    }
    Pass(absl::Seconds(Below(20)));
  }
  FinishAndLeaveNothing(jobs);
}

// COHORT_SEEDS in the environment: so many.
int SeedCount() {
  const char* const count = std::getenv("COHORT_SEEDS");
  return count == nullptr ? 100 : std::max(1, std::atoi(count));
}
INSTANTIATE_TEST_SUITE_P(Seeds, AutoscalerFaultsTest,
                         ::testing::Range(1, SeedCount() + 1));

// One gang comes, runs and goes; the head is killed at each of its writes, once
// before it has landed and once after.
class AutoscalerWritesTest : public AutoscalerFaultsTest {};

TEST_P(AutoscalerWritesTest, AnyMayBeTheHeadsLast) {
  COHORT_ASSERT_OK(Apply(kFile));
  disk_.FailAfter(GetParam() / 2, GetParam() % 2 == 0 ? AppendFault::kNotLanded
                                                      : AppendFault::kLanded);
  job_time_ = absl::Seconds(5);
  const std::string job = SubmitThroughKills("train", 12);
  Pass(absl::Minutes(2));
  EXPECT_LE(made_, 3);  // SC-7
  FinishAndLeaveNothing({job});
}

INSTANTIATE_TEST_SUITE_P(Writes, AutoscalerWritesTest,
                         ::testing::Range(0, 2 * kWritesOfAGang));

TEST_F(AutoscalerTest, AGangTakesNoMoreWritesThanAreKilled) {
  COHORT_ASSERT_OK(Apply(kFile));
  const int before = disk_.appends();
  job_time_ = absl::Seconds(5);
  SubmitGang("train", 12);
  Pass(absl::Minutes(2));
  EXPECT_THAT(Shown().instances(), IsEmpty());
  EXPECT_LE(disk_.appends() - before, kWritesOfAGang);
  EXPECT_GE(disk_.appends() - before, kWritesOfAGang / 2);
}

}  // namespace
}  // namespace cohort::head
