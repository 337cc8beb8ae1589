// Workers at the head: who is taken in, refused, superseded, drained, and lost.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/testing/head_core_fixture.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(HeadCoreTest, RefusesAWorkerWithoutACommonProtocolVersion) {
  v1::WorkerMessage message = Registration(node_);
  message.mutable_register_()->mutable_protocol()->set_min_version(5);
  message.mutable_register_()->mutable_protocol()->set_max_version(6);
  auto worker = Open(message);
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_THAT(*worker->closed,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("speaks 1 to 1, the worker (build ")));
  EXPECT_THAT(worker->closed->message(), HasSubstr(") 5 to 6"));
  EXPECT_EQ(GetReason(*worker->closed), "protocol_version");
}

TEST_F(HeadCoreTest, RefusesAWorkerOfAnotherCluster) {
  v1::WorkerMessage message = Registration(node_);
  *message.mutable_stamp() = Stamp();
  message.mutable_stamp()->set_cluster_id(std::string(16, 'x'));
  auto worker = Open(message);
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_EQ(GetReason(*worker->closed), "foreign_cluster");
  EXPECT_THAT(core_->state()->nodes().records(), IsEmpty());

  *message.mutable_stamp() = Stamp();
  message.mutable_stamp()->set_generation(std::string(16, 'x'));
  worker = Open(message);
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_EQ(GetReason(*worker->closed), "stale_generation");
  EXPECT_FALSE(fatal_.has_value());
}

void AddGpu(v1::WorkerMessage& message, const std::string& id) {
  v1::Register& body = *message.mutable_register_();
  v1::Device& device = *body.add_devices();
  device.set_id(id);
  device.set_kind("gpu");
  ResourceSet resources = *rpc::FromWire(body.resources());
  resources.Set(kGpu, Amount::FromUnits(body.devices_size()));
  *body.mutable_resources() = rpc::ToWire(resources);
}

// They are more than one answer holds.
TEST_F(HeadCoreTest, ListsAllNodesInPages) {
  constexpr int kNodes = 60;
  std::vector<std::unique_ptr<FakeWorker>> workers;
  std::set<std::string> there;
  for (int i = 0; i < kNodes; ++i) {
    const NodeId node = NodeId::New(random_);
    v1::WorkerMessage message = Registration(node);
    for (int gpu = 0; gpu < 512; ++gpu) {
      AddGpu(message, absl::StrCat(i, "-", gpu, std::string(200, 'x')));
    }
    workers.push_back(Open(message));
    there.insert(std::string(node.bytes()));
  }
  v1::ListNodesRequest request;
  std::set<std::string> listed;
  int pages = 0;
  do {
    const auto page = Call(rpc::kListNodes, request);
    COHORT_ASSERT_OK(page);
    for (const v1::Node& node : page->nodes()) {
      EXPECT_TRUE(listed.insert(node.node_id()).second) << "twice";
    }
    request.set_page_token(page->next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, there);
  EXPECT_GT(pages, 1);
  request.set_page_token("x");
  EXPECT_THAT(Call(rpc::kListNodes, request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("page token is unknown")));
}

TEST_F(HeadCoreTest, ADeviceIsHeardOnceAMessage) {
  v1::WorkerMessage message = Registration(node_);
  AddGpu(message, "g0");
  for (const v1::DeviceState state :
       {v1::DEVICE_STATE_FENCED, v1::DEVICE_STATE_SUSPECT}) {
    v1::DeviceStatus& status =
        *message.mutable_register_()->add_device_states();
    status.set_id("g0");
    status.set_state(state);
    status.set_reason("GPU g0: Xid 79");
  }
  auto worker = Open(message);
  const NodeRecord* node = core_->state()->nodes().Find(node_);
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->node.devices(0).state(), v1::DEVICE_STATE_FENCED);
}

// A name of any length is not kept, and not told.
TEST_F(HeadCoreTest, ANodeThatCouldNotRegisterTellsNothingOfALaterStore) {
  v1::WorkerMessage ahead = Registration(node_);
  *ahead.mutable_stamp() = Stamp();
  ahead.mutable_stamp()->set_generation(std::string(16, 'x'));
  ahead.mutable_stamp()->set_term(77);
  ahead.mutable_register_()->set_name(std::string(1 << 20, 'n'));
  EXPECT_EQ(GetReason(*Open(ahead)->closed), "stale_generation");
  EXPECT_THAT(Status().later_store_node_names(), IsEmpty());
}

// Who asks the head learns it too, not only who reads the worker's log.
TEST_F(HeadCoreTest, TellsThatNodesFollowAStoreThatWasRestoredLater) {
  auto worker = Open(Registration(node_));
  worker->stream.reset();
  Run(absl::Seconds(6));
  v1::WorkerMessage ahead = Registration(node_);
  *ahead.mutable_stamp() = Stamp();
  ahead.mutable_stamp()->set_generation(std::string(16, 'x'));
  ahead.mutable_stamp()->set_term(77);
  EXPECT_EQ(GetReason(*Open(ahead)->closed), "stale_generation");

  EXPECT_THAT(Status().later_store_node_names(), ElementsAre("node"));
  EXPECT_EQ(Status().later_store_term(), 77u);
  const std::string what_to_do =
      "start the head on that one, or restore this one again";
  EXPECT_THAT(Status().later_store_why(), HasSubstr(what_to_do));
  v1::ExplainJobRequest explain;
  explain.set_job_id(*Submit("r"));
  const auto why = Call(rpc::kExplainJob, explain);
  COHORT_ASSERT_OK(why);
  EXPECT_EQ(why->blockers(0).kind(), "later_store");
  EXPECT_THAT(why->blockers(0).text(), HasSubstr(what_to_do));
  EXPECT_EQ(why->changes(0).kind(), "LATER_STORE");
  for (const v1::Remedy& change : why->changes()) {
    EXPECT_NE(change.kind(), "NODE_RETURNS");
  }
  // It follows this one after all.
  Open(Registration(node_));
  EXPECT_THAT(Status().later_store_node_names(), IsEmpty());
}

// Whether what it has still runs is for a restore to find out.
TEST_F(HeadCoreTest, ANodeThatFollowsALaterStoreIsNotDead) {
  auto worker = Open(Registration(node_));
  worker->stream.reset();
  v1::WorkerMessage ahead = Registration(node_);
  *ahead.mutable_stamp() = Stamp();
  ahead.mutable_stamp()->set_generation(std::string(16, 'x'));
  ahead.mutable_stamp()->set_term(77);
  for (int i = 0; i < 6; ++i) {
    Run(absl::Seconds(5));
    Open(ahead);
  }
  EXPECT_NE(core_->state()->nodes().Find(node_)->state, v1::NODE_STATE_DEAD);
  Run(absl::Seconds(80));
  EXPECT_EQ(core_->state()->nodes().Find(node_)->state, v1::NODE_STATE_DEAD);
}

// HD-1: a copy of the store takes the term that its head after the copy took.
TEST_F(HeadCoreTest, ACopyOfTheStoreThatIsPutBackEndsNothing) {
  Open(Registration(node_));
  Crash();
  Run();
  const Batch copy = CopyStore();
  Start();
  auto worker = Open(Registration(node_));
  COHORT_ASSERT_OK(Submit("r"));
  const v1::DesiredPlace desired = RunJob(*worker);
  v1::WorkerMessage message = Registration(node_);
  *message.mutable_stamp() = Stamp();
  *message.mutable_register_()->mutable_observed()->add_places() =
      At(desired, Stage::kRunning);
  Crash();
  Run();
  PutBack(copy);
  // Also once its term is higher.
  for (uint64_t term = 2; term < 4; ++term) {
    Start();
    ASSERT_EQ(core_->state()->cluster().term(), term);
    worker = Open(message);
    ASSERT_TRUE(worker->closed.has_value());
    EXPECT_EQ(GetReason(*worker->closed), "unknown_life");
    EXPECT_THAT(worker->messages, IsEmpty());
    EXPECT_THAT(Status().later_store_node_names(), ElementsAre("node"));
    EXPECT_EQ(Status().later_store_term(), 2u);
    EXPECT_FALSE(fatal_.has_value());
    Crash();
    Run();
  }
  // One that follows nobody, or a life that is in the copy, is taken in.
  Start();
  auto fresh = Open(Registration(NodeId::New(random_)), "other");
  EXPECT_FALSE(fresh->closed.has_value());
}

TEST_F(HeadCoreTest, AWorkerFollowsEachNextLifeOfAHead) {
  for (uint64_t term = 1; term < 4; ++term) {
    v1::WorkerMessage message = Registration(node_);
    *message.mutable_stamp() = Stamp();
    Crash();
    Run();
    Start();
    auto worker = Open(message);
    EXPECT_FALSE(worker->closed.has_value());
    ASSERT_FALSE(worker->messages.empty());
    EXPECT_EQ(worker->messages[0].stamp().nonce(), Stamp().nonce());
    EXPECT_NE(worker->messages[0].stamp().nonce(), message.stamp().nonce());
  }
}

// Terms order generations: this head's store was restored after the worker was
// here last.
TEST_F(HeadCoreTest, TakesAWorkerFromBeforeTheStoreWasRestored) {
  v1::WorkerMessage message = Registration(node_);
  *message.mutable_stamp() = Stamp();
  message.mutable_stamp()->set_generation(std::string(16, 'x'));
  message.mutable_stamp()->set_term(0);
  auto worker = Open(message);
  EXPECT_FALSE(worker->closed.has_value());
  EXPECT_EQ(core_->state()->nodes().records().size(), 1u);
}

// TM-1.
TEST_F(HeadCoreTest, EndsWhenAWorkerFollowsAHeadOfAHigherTerm) {
  v1::WorkerMessage message = Registration(node_);
  *message.mutable_stamp() = Stamp();
  message.mutable_stamp()->set_term(9);
  auto worker = Open(message);
  ASSERT_TRUE(fatal_.has_value());
  EXPECT_THAT(*fatal_, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("term 9")));
}

TEST_F(HeadCoreTest, ClosesAStreamThatDoesNotBeginWithRegister) {
  v1::WorkerMessage message;
  message.mutable_heartbeat();
  auto worker = Open(message);
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_THAT(*worker->closed, StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(HeadCoreTest, ClosesOnlyTheStreamThatSpeaksGarbage) {
  auto worker = Open(Registration(node_));
  auto other = Open(Registration(NodeId::New(random_)), "other");
  v1::WorkerMessage garbage;
  garbage.set_incarnation(worker->incarnation);
  garbage.mutable_observed()->add_places()->set_attempt_id("short");
  COHORT_EXPECT_OK(worker->stream->Write(garbage));
  Run();
  EXPECT_TRUE(worker->closed.has_value());
  EXPECT_FALSE(other->closed.has_value());
}

TEST_F(HeadCoreTest, TellsASecondDaemonWithOneStateDirectory) {
  auto worker = Open(Registration(node_));
  v1::WorkerMessage copy = Registration(node_);
  copy.mutable_register_()->set_daemon_nonce(8);
  auto second = Open(copy, "other");
  ASSERT_TRUE(second->closed.has_value());
  EXPECT_THAT(*second->closed, StatusIs(absl::StatusCode::kAlreadyExists,
                                        HasSubstr("state directory")));
  EXPECT_FALSE(worker->closed.has_value());
  // Once the first is silent for half its lease the second is believed.
  Run(absl::Seconds(6));
  second = Open(copy, "other");
  EXPECT_FALSE(second->closed.has_value());
  EXPECT_TRUE(worker->closed.has_value());
}

// NS-1: an image that was started twice.
TEST_F(HeadCoreTest, DoesNotLetTwoCopiesOfANodeTakeTurns) {
  auto worker = Open(Registration(node_));
  v1::WorkerMessage copy = Registration(node_);
  copy.mutable_register_()->set_daemon_nonce(8);
  copy.mutable_register_()->set_host("10.0.0.2");
  worker->stream.reset();  // the first one's connection breaks
  Run();
  auto second = Open(copy, "other");
  ASSERT_TRUE(second->closed.has_value());
  EXPECT_EQ(GetReason(*second->closed), "duplicate_node");
  EXPECT_THAT(second->closed->message(), HasSubstr("node on 10.0.0.1"));
  EXPECT_THAT(second->closed->message(), HasSubstr("remove node_id"));
  // The first one is back in time; one that is not has moved.
  worker = Open(Registration(node_));
  EXPECT_FALSE(worker->closed.has_value());
  worker->stream.reset();
  Run(absl::Seconds(6));
  second = Open(copy, "other");
  EXPECT_FALSE(second->closed.has_value());
  // A daemon that was started again where it was does not wait.
  second->stream.reset();
  Run();
  copy.mutable_register_()->set_daemon_nonce(9);
  second = Open(copy, "other");
  EXPECT_FALSE(second->closed.has_value());
}

TEST_F(HeadCoreTest, DrainsAndUndrainsANodeForAPerson) {
  auto worker = Open(Registration(node_));
  v1::DrainNodeRequest drain;
  drain.set_request_id("d");
  drain.set_node("node");
  drain.set_reason("fan");
  drain.mutable_deadline()->set_seconds(60);
  const auto drained = Call(rpc::kDrainNode, drain);
  COHORT_ASSERT_OK(drained);
  EXPECT_EQ(drained->node().state(), v1::NODE_STATE_DRAINED);
  EXPECT_EQ(drained->node().drain().reason(), "fan");
  EXPECT_EQ(drained->node().drain().deadline().seconds() -
                drained->node().drain().asked_at().seconds(),
            60);
  EXPECT_EQ(Status().nodes_by_state().at("DRAINED"), 1);
  const auto job = Submit("r");
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_PENDING);
  v1::UndrainNodeRequest undrain;
  undrain.set_request_id("u");
  undrain.set_node(node_.ToHex().substr(0, 6));
  COHORT_ASSERT_OK(Call(rpc::kUndrainNode, undrain));
  v1::GetNodeRequest get;
  get.set_node(node_.ToHex());
  const auto whole = Call(rpc::kGetNode, get);
  COHORT_ASSERT_OK(whole);
  EXPECT_EQ(whole->node().state(), v1::NODE_STATE_ALIVE);
  EXPECT_FALSE(whole->node().has_drain());
  ASSERT_EQ(whole->held_size(), 1);
  EXPECT_EQ(whole->held(0).job_id(), *job);
  EXPECT_EQ(whole->held(0).state(), "PREPARING");
  EXPECT_EQ(whole->held(0).ranks_size(), 1);

  drain.set_node("nobody");
  EXPECT_THAT(Call(rpc::kDrainNode, drain),
              StatusIs(absl::StatusCode::kAlreadyExists));
  drain.set_request_id("d2");
  EXPECT_THAT(Call(rpc::kDrainNode, drain),
              StatusIs(absl::StatusCode::kNotFound));
  drain.mutable_deadline()->set_seconds(-1);
  EXPECT_THAT(Call(rpc::kDrainNode, drain),
              StatusIs(absl::StatusCode::kInvalidArgument));
  get.set_node("nobody");
  EXPECT_THAT(Call(rpc::kGetNode, get), StatusIs(absl::StatusCode::kNotFound));
}

// NS-1.
TEST_F(HeadCoreTest, SupersedesAnOlderStreamOfTheSameDaemon) {
  auto worker = Open(Registration(node_));
  auto second = Open(Registration(node_));
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_EQ(GetReason(*worker->closed), "superseded");
  EXPECT_FALSE(second->closed.has_value());
  EXPECT_TRUE(core_->state()->nodes().IsOffered(node_));
}

TEST_F(HeadCoreTest, LetsANodeDieThatDoesNotBeatAndKeepsOneThatDoes) {
  auto worker = Open(Registration(node_));
  const NodeId silent = NodeId::New(random_);
  auto other = Open(Registration(silent), "other");
  for (int i = 0; i < 12; ++i) {
    v1::WorkerMessage beat;
    beat.set_incarnation(worker->incarnation);
    beat.mutable_heartbeat();
    COHORT_EXPECT_OK(worker->stream->Write(beat));
    Run(absl::Seconds(1));
  }
  EXPECT_EQ(Status().nodes_by_state().at("ALIVE"), 1);
  EXPECT_EQ(Status().nodes_by_state().at("DEAD"), 1);
  EXPECT_EQ(core_->state()->nodes().Find(silent)->state, v1::NODE_STATE_DEAD);
  ASSERT_TRUE(other->closed.has_value());
  EXPECT_EQ(GetReason(*other->closed), "node_dead");
}

TEST_F(HeadCoreTest, WithdrawsANodeWhoseStreamBreaks) {
  auto worker = Open(Registration(node_));
  EXPECT_TRUE(core_->state()->nodes().IsOffered(node_));
  worker->stream.reset();
  Run();
  EXPECT_FALSE(core_->state()->nodes().IsOffered(node_));
  EXPECT_EQ(core_->state()->nodes().Find(node_)->state, v1::NODE_STATE_ALIVE);
}

}  // namespace
}  // namespace cohort::head
