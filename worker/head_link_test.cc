#include "worker/head_link.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"

namespace cohort::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A host that prepares whatever it is asked for; no place gets further here.
class IdleHost : public ProcessHost {
 public:
  void SetListener(Listener) override {}
  void Save(const AttemptId&, PlaceEntry, Durability, Done done) override {
    std::move(done)(absl::OkStatus());
  }
  void Save(const ProcessId&, ProcessEntry, Durability, Done done) override {
    std::move(done)(absl::OkStatus());
  }
  void Prepare(const v1::DesiredPlace&,
               absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) override {
    if (!prepares.ok()) return std::move(done)(prepares);
    std::move(done)(0);
  }
  void Begin(const v1::DesiredPlace&, std::vector<ProcessId>, Done) override {}
  void Adopt(const v1::DesiredPlace&, KeeperHost::AdoptCallback) override {}
  void Revoke(const AttemptId&) override {}
  void Stop(const ProcessId&, absl::Duration) override {}
  void Kill(const ProcessId&) override {}
  void Forget(const ProcessId&, Done done) override {
    std::move(done)(absl::OkStatus());
  }
  void Forget(const AttemptId&, Done done) override {
    std::move(done)(absl::OkStatus());
  }
  void RemoveCheckpoint(const v1::DesiredPlace&, const std::string&,
                        Done) override {}
  void ReadStderrTail(const ProcessId&,
                      absl::AnyInvocable<void(std::string) &&>) override {}

  absl::Status prepares;
};

class MemoryBinding : public ClusterBinding {
 public:
  std::optional<v1::Stamp> Current() const override { return stamp_; }
  void Save(const v1::Stamp& stamp,
            absl::AnyInvocable<void(absl::Status) &&> done) override {
    pending_ = stamp;
    done_ = std::move(done);
  }
  void Land(const absl::Status& status = absl::OkStatus()) {
    if (status.ok()) stamp_ = pending_;
    std::move(done_)(status);
  }
  std::optional<v1::Stamp> stamp_;

 private:
  v1::Stamp pending_;
  absl::AnyInvocable<void(absl::Status) &&> done_;
};

// A head whose part the test plays.
class HandChannel : public rpc::Channel {
 public:
  struct Stream {
    rpc::StreamEvents events;
    std::vector<v1::WorkerMessage> written;
    bool open = true;
    size_t queued = 0;  // and not taken
  };

  rpc::CallHandle StartUnary(absl::string_view, std::string, rpc::CallOptions,
                             Executor&, Done) override {
    ADD_FAILURE() << "the link makes no unary calls";
    return {};
  }
  std::unique_ptr<rpc::ClientStream> OpenStream(
      absl::string_view, rpc::CallOptions, Executor&,
      rpc::StreamEvents events) override {
    streams.push_back(std::make_shared<Stream>());
    streams.back()->events = std::move(events);
    return std::make_unique<End>(streams.back(), write_status, is_slow);
  }
  const std::string& address() const override { return address_; }

  Stream& last() { return *streams.back(); }
  void Drain() {
    last().queued = 0;
    last().events.on_drained();
  }
  void Say(const v1::HeadMessage& message) {
    ASSERT_THAT(last().events.on_message(message.SerializeAsString()), IsOk());
  }

  std::vector<std::shared_ptr<Stream>> streams;
  absl::Status write_status;
  bool is_slow = false;  // takes nothing before it is drained

 private:
  class End : public rpc::ClientStream {
   public:
    End(std::shared_ptr<Stream> stream, const absl::Status& status,
        const bool& is_slow)
        : stream_(std::move(stream)), status_(status), is_slow_(is_slow) {}
    ~End() override { stream_->open = false; }
    absl::Status Write(std::string message) override {
      if (!status_.ok()) return status_;
      if (is_slow_) stream_->queued += message.size();
      stream_->written.emplace_back();
      stream_->written.back().ParseFromString(message);
      return absl::OkStatus();
    }
    void HalfClose() override {}
    void Cancel() override {}
    size_t QueuedBytes() const override { return stream_->queued; }

   private:
    const std::shared_ptr<Stream> stream_;
    const absl::Status& status_;
    const bool& is_slow_;
  };

  const std::string address_ = "head:7710";
};

class HeadLinkTest : public testing::Test {
 protected:
  HeadLinkTest() {
    node_.Restore({}, [] {});
  }

  v1::HeadMessage From(const std::string& cluster, uint64_t term) {
    v1::HeadMessage message;
    message.mutable_stamp()->set_cluster_id(cluster);
    message.mutable_stamp()->set_generation("g");
    message.mutable_stamp()->set_term(term);
    return message;
  }
  // As Registered, of the store that was restored.
  v1::HeadMessage Restored(const std::string& generation, uint64_t term) {
    v1::HeadMessage message = Registered("c", term);
    message.mutable_stamp()->set_generation(generation);
    return message;
  }
  v1::HeadMessage Registered(const std::string& cluster = "c",
                             uint64_t term = 1) {
    v1::HeadMessage message = From(cluster, term);
    message.mutable_registered()->set_version(1);
    message.mutable_registered()->set_incarnation(5);
    message.mutable_registered()->mutable_heartbeat_interval()->set_seconds(2);
    return message;
  }
  v1::HeadMessage Prepare(const std::string& cluster = "c", uint64_t term = 1) {
    v1::HeadMessage message = From(cluster, term);
    v1::DesiredPlace* place = message.mutable_desired()->add_places();
    place->set_attempt_id(std::string(16, 'a'));
    place->set_goal(v1::GOAL_PREPARE);
    AddProcess(*place);
    return message;
  }
  static void AddProcess(v1::DesiredPlace& place) {
    place.add_processes()->set_incarnation(1);
    place.mutable_processes(0)->set_goal(v1::GOAL_PREPARE);
  }
  // Places that could not be prepared, each with a long story.
  void FillNode(int attempts) {
    host_.prepares = absl::UnknownError(std::string(64 << 10, 'x'));
    v1::Desired desired;
    for (int i = 0; i < attempts; ++i) {
      v1::DesiredPlace* const added = desired.add_places();
      added->set_attempt_id(std::string(AttemptId::New(random_).bytes()));
      added->set_goal(v1::GOAL_PREPARE);
      AddProcess(*added);
    }
    node_.Apply(desired);
  }
  void JoinNow() {
    link_.Start();
    channel_.Say(Registered());
    binding_.Land();
  }

  ManualExecutor executor_;
  SeededRandom random_{1};
  IdleHost host_;
  HeadLink* noted_ = nullptr;
  NodeState node_{host_,
                  executor_,
                  {.on_change =
                       [this] {
                         if (noted_ != nullptr) noted_->NoteChange();
                       },
                   .on_fault = [](const absl::Status&) {},
                   .on_begun = [] {}}};
  MemoryBinding binding_;
  HandChannel channel_;
  int joined_ = 0;
  std::vector<absl::Status> refused_;
  std::vector<std::pair<v1::Stamp, v1::SendLog>> logs_;
  std::vector<v1::DeviceStatus> devices_;
  HeadLink link_{
      {},
      channel_,
      node_,
      binding_,
      executor_,
      random_,
      {.on_joined = [this] { ++joined_; },
       .on_send_log =
           [this](const v1::Stamp& head, const v1::SendLog& order) {
             logs_.emplace_back(head, order);
           },
       .on_refused =
           [this](const absl::Status& status) { refused_.push_back(status); },
       .devices = [this] { return devices_; }}};
};

TEST_F(HeadLinkTest, RegistersFirstAndJoinsOnceTheBindingIsOnDisk) {
  link_.Start();
  ASSERT_THAT(channel_.last().written, SizeIs(1));
  EXPECT_TRUE(channel_.last().written[0].has_register_());
  EXPECT_TRUE(channel_.last().written[0].register_().observed().full());
  channel_.Say(Registered());
  EXPECT_EQ(joined_, 0);
  binding_.Land();
  EXPECT_EQ(joined_, 1);
  EXPECT_EQ(binding_.stamp_->cluster_id(), "c");
}

// HL-1: terms order generations.
TEST_F(HeadLinkTest, FollowsARestoredStoreAndKeepsWhatItHas) {
  JoinNow();
  channel_.Say(Prepare());
  executor_.RunUntilIdle();
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("away"),
                                              {});
  executor_.AdvanceBy(absl::Seconds(1));
  channel_.Say(Restored("h", 1000));
  binding_.Land();
  executor_.RunUntilIdle();
  EXPECT_EQ(joined_, 2);
  EXPECT_EQ(binding_.stamp_->generation(), "h");
  EXPECT_EQ(node_.size(), 1u);
  // It said what the attempt of before holds.
  const v1::Observed& told =
      channel_.last().written.front().register_().observed();
  ASSERT_EQ(told.places_size(), 1);
  EXPECT_EQ(told.places(0).generation(), "g");
  EXPECT_TRUE(told.places(0).has_resources_per_process());
}

TEST_F(HeadLinkTest, AnOlderStoreThanTheRestoredOneIsRefused) {
  link_.Start();
  channel_.Say(Restored("h", 1000));
  binding_.Land();
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              {});
  for (const uint64_t term : {uint64_t{7}, uint64_t{1000}}) {
    executor_.AdvanceBy(absl::Seconds(2));
    channel_.Say(Restored("g", term));
    ASSERT_FALSE(refused_.empty());
    EXPECT_THAT(refused_.back(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("restored from a backup later")));
    EXPECT_EQ(binding_.stamp_->generation(), "h");
    refused_.clear();
  }
}

// DV-4
TEST_F(HeadLinkTest, HowDevicesAreIsSaidFirstAndWithEachSignOfLife) {
  devices_.emplace_back().set_id("a");
  JoinNow();
  const auto& written = channel_.last().written;
  ASSERT_EQ(written[0].register_().device_states_size(), 1);
  executor_.AdvanceBy(absl::Seconds(2));
  EXPECT_EQ(written.back().heartbeat().devices_size(), 1);
  channel_.Say(Prepare());
  noted_ = &link_;
  devices_[0].set_state(v1::DEVICE_STATE_FENCED);
  const size_t before = written.size();
  link_.NoteChange();
  link_.NoteDevices();
  executor_.RunUntilIdle();
  ASSERT_GT(written.size(), before + 1);
  EXPECT_EQ(written[before].heartbeat().devices(0).state(),
            v1::DEVICE_STATE_FENCED);
  EXPECT_TRUE(written[before + 1].has_observed());
}

// HL-2
TEST_F(HeadLinkTest, ADesiredSetWaitsForTheBinding) {
  link_.Start();
  channel_.Say(Registered());
  channel_.Say(Prepare());
  EXPECT_EQ(node_.size(), 0u);
  binding_.Land();
  EXPECT_EQ(node_.size(), 1u);
}

// HL-1
TEST_F(HeadLinkTest, RefusesAHeadOfAnotherClusterAndKeepsWhatItHas) {
  JoinNow();
  channel_.Say(Prepare());
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              std::nullopt);
  executor_.AdvanceBy(absl::Seconds(2));
  ASSERT_THAT(channel_.streams, SizeIs(2));
  channel_.Say(Registered("other"));
  ASSERT_THAT(refused_, SizeIs(1));
  EXPECT_THAT(refused_[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("its ranks go on")));
  EXPECT_EQ(node_.size(), 1u);
  EXPECT_EQ(binding_.stamp_->cluster_id(), "c");
}

// HL-1, TM-1
TEST_F(HeadLinkTest, RefusesALowerTermAndFollowsAHigherOne) {
  JoinNow();
  channel_.Say(Prepare("c", 0));
  EXPECT_EQ(node_.size(), 0u);
  EXPECT_THAT(refused_, SizeIs(1));
  executor_.AdvanceBy(absl::Seconds(2));
  channel_.Say(Registered("c", 2));
  binding_.Land();
  EXPECT_EQ(binding_.stamp_->term(), 2u);
}

// HD-1: a copy of the store takes the same term.
TEST_F(HeadLinkTest, RefusesAnotherLifeOfTheSameTerm) {
  JoinNow();
  channel_.Say(Prepare());
  EXPECT_EQ(node_.size(), 1u);
  v1::HeadMessage copy = Registered();
  copy.mutable_stamp()->set_nonce(77);
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              {});
  executor_.AdvanceBy(absl::Seconds(2));
  channel_.Say(copy);
  ASSERT_FALSE(refused_.empty());
  EXPECT_THAT(refused_.back(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("on a copy of its store")));
  EXPECT_EQ(binding_.stamp_->nonce(), 0u);
  EXPECT_EQ(node_.size(), 1u);
  // Whether a higher term knows the life of before, its head says.
  copy.mutable_stamp()->set_term(2);
  executor_.AdvanceBy(absl::Seconds(2));
  channel_.Say(copy);
  binding_.Land();
  EXPECT_EQ(binding_.stamp_->nonce(), 77u);
  EXPECT_EQ(channel_.last().written.front().stamp().nonce(), 0u);
}

TEST_F(HeadLinkTest, RefusesAVersionThatItDoesNotSpeak) {
  link_.Start();
  v1::HeadMessage message = Registered();
  message.mutable_registered()->set_version(9);
  channel_.Say(message);
  ASSERT_THAT(refused_, SizeIs(1));
  EXPECT_THAT(refused_[0].ToString(), HasSubstr("version 9"));
}

TEST_F(HeadLinkTest, BeatsAtTheIntervalThatTheHeadChose) {
  JoinNow();
  const size_t before = channel_.last().written.size();
  executor_.AdvanceBy(absl::Seconds(6));
  EXPECT_EQ(channel_.last().written.size(), before + 3);
  EXPECT_TRUE(channel_.last().written.back().has_heartbeat());
  EXPECT_EQ(channel_.last().written.back().incarnation(), 5u);
}

TEST_F(HeadLinkTest, JoinsAgainAfterTheStreamEnded) {
  JoinNow();
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              std::nullopt);
  EXPECT_FALSE(link_.joined());
  executor_.AdvanceBy(absl::Milliseconds(100));
  EXPECT_THAT(channel_.streams, SizeIs(2));
  EXPECT_FALSE(channel_.streams[0]->open);
}

TEST_F(HeadLinkTest, AsksAgainWhenTheHeadDoesNotAnswer) {
  link_.Start();
  executor_.AdvanceBy(absl::Seconds(12));
  EXPECT_THAT(channel_.streams, SizeIs(2));
}

TEST_F(HeadLinkTest, BacksOffBetweenTries) {
  link_.Start();
  for (int i = 0; i < 20; ++i) {
    std::move(channel_.last().events.on_closed)(
        absl::UnavailableError("refused"), std::nullopt);
    executor_.AdvanceBy(absl::Seconds(1));
  }
  EXPECT_THAT(channel_.streams, SizeIs(21));
  EXPECT_THAT(refused_, IsEmpty()) << "being away is not a refusal";
}

// HL-3
TEST_F(HeadLinkTest, SendsChangesOfOneTurnTogetherAndOnlyWhileJoined) {
  JoinNow();
  noted_ = &link_;
  const size_t before = channel_.last().written.size();
  channel_.Say(Prepare());
  executor_.RunUntilIdle();
  ASSERT_EQ(channel_.last().written.size(), before + 1);
  const v1::Observed& observed = channel_.last().written.back().observed();
  ASSERT_EQ(observed.places_size(), 1);
  EXPECT_EQ(observed.places(0).phase(), v1::PHASE_PREPARED);
}

// HL-3; found by the simulation.
TEST_F(HeadLinkTest, SendsWhatChangedWhileTheHeadAnsweredTheRegistration) {
  JoinNow();
  noted_ = &link_;
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              std::nullopt);
  executor_.AdvanceBy(absl::Seconds(1));  // registered again, not answered
  v1::Desired desired;
  *desired.add_places() = Prepare().desired().places(0);
  node_.Apply(desired);
  executor_.RunUntilIdle();
  channel_.Say(Registered());
  executor_.RunUntilIdle();
  EXPECT_EQ(channel_.last().written.back().observed().places_size(), 1);
}

// HL-3
TEST_F(HeadLinkTest, AQueueThatIsFullStartsOverWithEverything) {
  JoinNow();
  noted_ = &link_;
  channel_.write_status = absl::ResourceExhaustedError("queue full");
  channel_.Say(Prepare());
  executor_.RunUntilIdle();
  EXPECT_FALSE(link_.joined());
  channel_.write_status = absl::OkStatus();
  executor_.AdvanceBy(absl::Seconds(1));
  const auto& written = channel_.last().written;
  ASSERT_THAT(written, SizeIs(1));
  EXPECT_EQ(written[0].register_().observed().places_size(), 1);
}

TEST_F(HeadLinkTest, SaysThatItLeavesAtOnceAndWithEachRegistration) {
  JoinNow();
  link_.AnnounceLeaving();
  EXPECT_TRUE(channel_.last().written.back().heartbeat().leaving());
  const size_t before = channel_.last().written.size();
  executor_.AdvanceBy(absl::Seconds(6));
  EXPECT_EQ(channel_.last().written.size(), before + 3) << "the lease goes on";
  EXPECT_TRUE(channel_.last().written.back().heartbeat().leaving());
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              std::nullopt);
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_TRUE(channel_.last().written[0].register_().leaving());
}

TEST_F(HeadLinkTest, SaysThatItIsNotReadyAtOnceAndWithEachSignOfLife) {
  JoinNow();
  const size_t before = channel_.last().written.size();
  link_.SetNotReady("full");
  EXPECT_EQ(channel_.last().written.size(), before + 1);
  EXPECT_EQ(channel_.last().written.back().heartbeat().not_ready(), "full");
  executor_.AdvanceBy(absl::Seconds(2));
  EXPECT_EQ(channel_.last().written.size(), before + 2);
  EXPECT_EQ(channel_.last().written.back().heartbeat().not_ready(), "full");
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              std::nullopt);
  link_.SetNotReady("fuller");
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(channel_.last().written[0].register_().not_ready(), "fuller");
  channel_.Say(Registered());
  link_.SetNotReady("");
  EXPECT_EQ(channel_.last().written.back().heartbeat().not_ready(), "");
}

// HL-2: a full disk costs neither the lease nor an order.
TEST_F(HeadLinkTest, OrdersWaitForABindingThatCannotBeWritten) {
  link_.Start();
  channel_.Say(Registered());
  channel_.Say(Prepare());
  binding_.Land(absl::ResourceExhaustedError("full"));
  EXPECT_TRUE(link_.joined());
  EXPECT_THAT(refused_, IsEmpty()) << "the head did nothing wrong";
  EXPECT_EQ(node_.size(), 0u);
  executor_.AdvanceBy(absl::Seconds(3));
  EXPECT_THAT(channel_.streams, SizeIs(1));
  binding_.Land();
  EXPECT_EQ(node_.size(), 1u);
  EXPECT_EQ(joined_, 1);
}

// HL-2: nor does it cost the node's memory.
TEST_F(HeadLinkTest, OrdersBeyondABoundAreAskedForAgainOnceItIsWritten) {
  link_.Start();
  channel_.Say(Registered());
  binding_.Land(absl::ResourceExhaustedError("full"));
  v1::HeadMessage large = Prepare();
  large.mutable_desired()->mutable_places(0)->mutable_launch()->add_command(
      std::string(1 << 20, 'x'));
  for (int i = 0; i < 100; ++i) channel_.Say(large);
  executor_.AdvanceBy(absl::Seconds(3));
  EXPECT_TRUE(link_.joined()) << "the lease goes on";
  binding_.Land();
  EXPECT_EQ(node_.size(), 0u);
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(channel_.streams, SizeIs(2));
  EXPECT_EQ(channel_.last().written[0].register_().not_ready(), "");
}

// HL-2
TEST_F(HeadLinkTest, IsNotReadyForAsLongAsTheBindingCannotBeWritten) {
  link_.Start();
  channel_.Say(Registered());
  binding_.Land(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(channel_.last().written.back().heartbeat().not_ready(), "full");
  const size_t before = channel_.last().written.size();
  executor_.AdvanceBy(absl::Seconds(1));
  binding_.Land(absl::ResourceExhaustedError("still full"));
  EXPECT_THAT(channel_.last().written, SizeIs(before)) << "nothing has changed";
  link_.SetNotReady("no port");
  link_.SetNotReady("");
  EXPECT_EQ(channel_.last().written.back().heartbeat().not_ready(), "full");
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              std::nullopt);
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(channel_.last().written[0].register_().not_ready(), "full");
  channel_.Say(Registered());
  binding_.Land();
  ASSERT_TRUE(channel_.last().written.back().has_heartbeat());
  EXPECT_EQ(channel_.last().written.back().heartbeat().not_ready(), "");
}

TEST_F(HeadLinkTest, AStoppedLinkStaysAway) {
  JoinNow();
  link_.Stop();
  executor_.AdvanceBy(absl::Seconds(60));
  EXPECT_THAT(channel_.streams, SizeIs(1));
  EXPECT_FALSE(channel_.last().open);
}

TEST_F(HeadLinkTest, PassesOrdersForLogsOnWithTheStampThatTheyCameWith) {
  link_.Start();
  channel_.Say(
      Registered());  // the binding is not on disk, as where it is full
  v1::HeadMessage message = From("c", 1);
  message.mutable_send_log()->set_read_id(3);
  channel_.Say(message);
  ASSERT_THAT(logs_, SizeIs(1));
  EXPECT_EQ(logs_[0].first.term(), 1u);
  EXPECT_EQ(logs_[0].second.read_id(), 3u);
}

// HL-4
TEST_F(HeadLinkTest, ALargeSetIsWrittenAsTheHeadTakesIt) {
  FillNode(200);
  channel_.is_slow = true;
  link_.Start();
  const auto& written = channel_.last().written;
  ASSERT_TRUE(written[0].has_register_());
  EXPECT_TRUE(written[0].register_().observed().more());
  int attempts = written[0].register_().observed().places_size();
  size_t read = 1;
  for (bool more = true; more;) {
    EXPECT_LT(channel_.last().queued, size_t{4} << 20);
    for (; read < written.size(); ++read) {
      ASSERT_TRUE(written[read].observed().full());
      attempts += written[read].observed().places_size();
      more = written[read].observed().more();
    }
    // It takes long, but goes on.
    executor_.AdvanceBy(absl::Seconds(8));
    channel_.Drain();
  }
  EXPECT_EQ(attempts, 200);
  EXPECT_THAT(channel_.streams, SizeIs(1));
  executor_.AdvanceBy(absl::Seconds(30));
  EXPECT_GT(channel_.streams.size(), 1u) << "it was not answered";
}

// HL-3, HL-4
TEST_F(HeadLinkTest, ManyChangesAreWrittenAsTheHeadTakesThem) {
  JoinNow();
  noted_ = &link_;
  channel_.is_slow = true;
  const auto& written = channel_.last().written;
  size_t read = written.size();
  FillNode(200);
  executor_.RunUntilIdle();
  int attempts = 0;
  for (int rounds = 0; rounds < 100 && attempts < 200; ++rounds) {
    EXPECT_LT(channel_.last().queued, size_t{4} << 20);
    for (; read < written.size(); ++read) {
      attempts += written[read].observed().places_size();
    }
    channel_.Drain();
  }
  EXPECT_EQ(attempts, 200);
}

TEST_F(HeadLinkTest, AStreamThatBreaksInTheMiddleOfTheSetStartsOver) {
  FillNode(200);
  channel_.is_slow = true;
  link_.Start();
  std::move(channel_.last().events.on_closed)(absl::UnavailableError("gone"),
                                              std::nullopt);
  channel_.is_slow = false;
  executor_.AdvanceBy(absl::Seconds(1));
  int attempts = 0;
  for (const v1::WorkerMessage& message : channel_.last().written) {
    attempts += message.register_().observed().places_size() +
                message.observed().places_size();
  }
  EXPECT_EQ(attempts, 200);
  EXPECT_FALSE(channel_.last().written.back().observed().more());
}

// A set that breaks the stream each time would be tried ten times a second.
TEST_F(HeadLinkTest, OnlyACompleteSetEndsTheBackOff) {
  v1::HeadMessage part = Prepare();
  part.mutable_desired()->set_full(true);
  part.mutable_desired()->set_more(true);
  const auto lose = [&] {
    std::move(channel_.last().events.on_closed)(absl::UnavailableError("full"),
                                                std::nullopt);
  };
  JoinNow();
  channel_.Say(part);
  for (int i = 0; i < 10; ++i) {
    lose();
    executor_.AdvanceBy(absl::Seconds(1));
    channel_.Say(Registered());
    binding_.Land();
    channel_.Say(part);
  }
  const size_t before = channel_.streams.size();
  lose();
  executor_.AdvanceBy(absl::Milliseconds(400));
  EXPECT_THAT(channel_.streams, SizeIs(before));
  executor_.AdvanceBy(absl::Milliseconds(600));
  EXPECT_THAT(channel_.streams, SizeIs(before + 1));

  channel_.Say(Registered());
  binding_.Land();
  part.mutable_desired()->set_more(false);
  channel_.Say(part);
  lose();
  executor_.AdvanceBy(absl::Milliseconds(100));
  EXPECT_THAT(channel_.streams, SizeIs(before + 2));
}

}  // namespace
}  // namespace cohort::worker
