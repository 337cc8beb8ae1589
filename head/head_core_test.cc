// The head without its machine: services, state, commit and rebuild over the
// loopback transport and the memory store, with workers and clients that this
// test speaks for.

#include "head/head_core.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/hash.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/services/testing/memory_package_store.h"
#include "head/store/memory_store.h"
#include "rpc/loopback.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kHead[] = "head";

// One worker's stream, spoken for by the test.
struct FakeWorker {
  std::unique_ptr<rpc::Channel> channel;
  std::unique_ptr<rpc::TypedStream<v1::WorkerMessage>> stream;
  std::vector<v1::HeadMessage> messages;
  std::optional<absl::Status> closed;
  uint64_t incarnation = 0;

  std::vector<v1::DesiredAttempt> Desired() const {
    std::vector<v1::DesiredAttempt> all;
    for (const v1::HeadMessage& message : messages) {
      all.insert(all.end(), message.desired().attempts().begin(),
                 message.desired().attempts().end());
    }
    return all;
  }
};

class HeadCoreTest : public ::testing::Test {
 protected:
  HeadCoreTest() {
    options_.limits.node_timeout = absl::Seconds(10);
    options_.pid = 42;
    Start();
  }
  ~HeadCoreTest() override {
    clients_.clear();
    Crash();
    Run();
  }

  // ---- the head ----

  void Start() {
    router_ = std::make_unique<rpc::Router>(
        rpc::RouterOptions(), rpc::Authenticator(credential_), time_);
    core_ = std::make_unique<HeadCore>(
        options_,
        HeadSeams{.strand = time_,
                  .store_executor = time_,
                  .clock = time_,
                  .random = random_,
                  .packages = packages_,
                  .backups = backups_},
        [this](StoreAccess access) -> absl::StatusOr<std::unique_ptr<Store>> {
          if (access == StoreAccess::kReadWrite && !opens_.ok()) return opens_;
          return std::make_unique<MemoryStore>(disk_);
        },
        [this](const absl::Status& status) { fatal_ = status; });
    core_->RegisterOn(*router_);
    std::optional<absl::Status> started;
    core_->Start([&](const absl::Status& status) { started = status; });
    time_.RunUntilIdle();
    ASSERT_TRUE(started.has_value());
    COHORT_ASSERT_OK(*started);
    network_.Listen(kHead, router_.get());
  }
  // As SIGKILL.
  void Crash() {
    network_.Kill(kHead);
    core_.reset();
  }
  void Run(absl::Duration span = absl::Milliseconds(300)) {
    time_.AdvanceBy(span);
  }

  // ---- clients ----

  template <typename Req, typename Resp>
  absl::StatusOr<Resp> Call(const rpc::UnaryMethod<Req, Resp>& method,
                            const Req& request,
                            absl::Duration deadline = absl::Seconds(5),
                            std::optional<rpc::Credential> as = {}) {
    auto channel = network_.Connect("client", kHead, as.value_or(credential_));
    std::optional<absl::StatusOr<Resp>> answer;
    rpc::Call<Req, Resp>(
        *channel, method, request, {.deadline = deadline}, time_,
        [&](absl::StatusOr<Resp> response) { answer = std::move(response); });
    for (int i = 0; i < 1000 && !answer.has_value(); ++i) {
      Run(absl::Milliseconds(50));
    }
    EXPECT_TRUE(answer.has_value());
    clients_.push_back(std::move(channel));
    return answer.has_value() ? *std::move(answer)
                              : absl::InternalError("no answer");
  }

  static v1::SubmitJobRequest Submission(const std::string& request_id,
                                         int workers = 1) {
    v1::SubmitJobRequest request;
    request.set_request_id(request_id);
    v1::JobSpec* spec = request.mutable_spec();
    spec->set_name("job");
    spec->add_command("train");
    (*spec->mutable_environment())["A"] = "1";
    (*spec->mutable_environment())["B"] = "2";
    spec->mutable_scaling()->set_num_workers(workers);
    ResourceSet cpu;
    cpu.Set(kCpu, Amount::FromUnits(1));
    *spec->mutable_scaling()->mutable_resources_per_worker() = rpc::ToWire(cpu);
    return request;
  }
  absl::StatusOr<std::string> Submit(const std::string& request_id) {
    const auto response = Call(rpc::kSubmitJob, Submission(request_id));
    if (!response.ok()) return response.status();
    return response->job_id();
  }
  v1::Job Get(const std::string& job) {
    v1::GetJobRequest request;
    request.set_job_id(job);
    const auto response = Call(rpc::kGetJob, request);
    EXPECT_THAT(response, IsOk());
    return response.ok() ? response->job() : v1::Job();
  }
  v1::GetStatusResponse Status() {
    return *Call(rpc::kGetStatus, v1::GetStatusRequest());
  }

  // ---- workers ----

  v1::WorkerMessage Registration(const NodeId& node, int cpus = 2) {
    v1::WorkerMessage message;
    v1::Register* body = message.mutable_register_();
    body->mutable_protocol()->set_min_version(1);
    body->mutable_protocol()->set_max_version(1);
    body->set_node_id(std::string(node.bytes()));
    body->set_name("node");
    body->set_host("10.0.0.1");
    body->set_daemon_nonce(7);
    ResourceSet cpu;
    cpu.Set(kCpu, Amount::FromUnits(cpus));
    *body->mutable_resources() = rpc::ToWire(cpu);
    body->mutable_observed()->set_full(true);
    return message;
  }

  std::unique_ptr<FakeWorker> Open(const v1::WorkerMessage& first,
                                   const std::string& name = "worker") {
    auto worker = std::make_unique<FakeWorker>();
    worker->channel = network_.Connect(name, kHead, credential_);
    FakeWorker* raw = worker.get();
    worker->stream = rpc::OpenStream<v1::WorkerMessage, v1::HeadMessage>(
        *worker->channel, rpc::kConnect, {.deadline = absl::InfiniteDuration()},
        time_,
        {.on_message =
             [raw](const v1::HeadMessage& message) {
               if (message.has_registered()) {
                 raw->incarnation = message.registered().incarnation();
               }
               raw->messages.push_back(message);
             },
         .on_closed = [raw](absl::Status status,
                            auto) { raw->closed = std::move(status); },
         .on_drained = nullptr});
    COHORT_EXPECT_OK(worker->stream->Write(first));
    Run();
    return worker;
  }
  void Say(FakeWorker& worker, const v1::ObservedAttempt& attempt) {
    v1::WorkerMessage message;
    message.set_incarnation(worker.incarnation);
    *message.mutable_observed()->add_attempts() = attempt;
    COHORT_EXPECT_OK(worker.stream->Write(message));
    Run();
  }
  static v1::ObservedAttempt At(const v1::DesiredAttempt& desired,
                                v1::Phase phase) {
    v1::ObservedAttempt observed;
    observed.set_attempt_id(desired.attempt_id());
    observed.set_job_id(desired.job_id());
    observed.set_epoch(desired.epoch());
    observed.set_phase(phase);
    observed.set_master_port(29500);
    return observed;
  }
  static v1::ObservedAttempt Exited(const v1::DesiredAttempt& desired,
                                    int code) {
    v1::ObservedAttempt observed = At(desired, v1::PHASE_ENDED);
    observed.set_end_cause(v1::END_CAUSE_EXITED);
    for (const v1::DesiredRank& rank : desired.ranks()) {
      v1::ObservedRank* out = observed.add_ranks();
      out->set_rank(rank.rank());
      out->set_state(v1::RANK_STATE_EXITED);
      out->set_pid(99);
      out->mutable_exit()->set_code(code);
      out->set_exit_order(1);
    }
    return observed;
  }
  v1::DesiredAttempt RunJob(FakeWorker& worker) {
    const v1::DesiredAttempt desired = worker.Desired().back();
    Say(worker, At(desired, v1::PHASE_PREPARED));
    Say(worker, At(desired, v1::PHASE_RUNNING));
    return desired;
  }
  v1::Stamp Stamp() {
    const ClusterRecord& cluster = core_->state()->cluster();
    v1::Stamp stamp;
    stamp.set_cluster_id(std::string(cluster.cluster.bytes()));
    stamp.set_generation(std::string(cluster.generation.bytes()));
    stamp.set_term(cluster.term);
    return stamp;
  }

  HeadCoreOptions options_;
  ManualExecutor time_;
  SeededRandom random_{11};
  const NodeId node_ = NodeId::New(random_);
  const rpc::Credential credential_ =
      *rpc::Credential::FromBytes(std::string(32, 'c'));
  rpc::LoopbackNetwork network_{{}, time_, time_, random_};
  MemoryDisk disk_;
  absl::Status opens_;  // what opening the store to write says
  MemoryPackageStore packages_{time_};
  Backups* backups_ = nullptr;
  std::unique_ptr<rpc::Router> router_;
  std::unique_ptr<HeadCore> core_;
  std::optional<absl::Status> fatal_;
  std::vector<std::unique_ptr<rpc::Channel>> clients_;
};

TEST_F(HeadCoreTest, TakesAJobFromSubmitToItsEnd) {
  const auto job = Submit("r");
  COHORT_ASSERT_OK(job);
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(Get(*job).reason(), Not(IsEmpty()));
  auto worker = Open(Registration(node_));
  ASSERT_THAT(worker->Desired(), SizeIs(1));
  EXPECT_EQ(worker->Desired()[0].goal(), v1::GOAL_PREPARE);
  EXPECT_TRUE(worker->messages[1].desired().full());
  EXPECT_EQ(worker->messages[0].stamp().term(), 1);
  const v1::DesiredAttempt desired = RunJob(*worker);
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_RUNNING);
  Say(*worker, Exited(desired, 0));
  const v1::Job ended = Get(*job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(ended.has_exit());
  ASSERT_EQ(ended.ranks_size(), 1);
  EXPECT_EQ(ended.ranks(0).node_name(), "node");
  EXPECT_EQ(ended.ranks(0).state(), v1::RANK_STATE_EXITED);
  EXPECT_EQ(worker->Desired().back().goal(), v1::GOAL_FORGET);
}

// RQ-1 and CM-3: whatever a failed append left behind, one request is one job.
TEST_F(HeadCoreTest, MakesOneJobOfARequestThroughFailedAppends) {
  for (const AppendFault fault :
       {AppendFault::kLanded, AppendFault::kNotLanded}) {
    const std::string id = absl::StrCat("r", static_cast<int>(fault));
    const size_t before = core_->state()->jobs().size();
    disk_.FailAfter(0, fault);
    const auto failed = Submit(id);
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(GetReason(failed.status()), "outcome_unknown");
    Run();
    EXPECT_FALSE(core_->read_only());
    const auto again = Submit(id);
    COHORT_ASSERT_OK(again);
    EXPECT_THAT(Submit(id), IsOkAndHolds(*again));
    EXPECT_EQ(core_->state()->jobs().size(), before + 1);
  }
  EXPECT_EQ(disk_.faults_fired(), 2);
}

// RQ-1: the requests have the same fields.
TEST_F(HeadCoreTest, TellsRequestsOfDifferentMethodsApart) {
  const auto job = Submit("s");
  COHORT_ASSERT_OK(job);
  v1::HoldJobRequest hold;
  hold.set_request_id("r");
  hold.set_job_id(*job);
  COHORT_EXPECT_OK(Call(rpc::kHoldJob, hold));
  COHORT_EXPECT_OK(Call(rpc::kHoldJob, hold));
  v1::StopJobRequest stop;
  stop.set_request_id("r");
  stop.set_job_id(*job);
  EXPECT_THAT(Call(rpc::kStopJob, stop),
              StatusIs(absl::StatusCode::kAlreadyExists));
  v1::ReleaseJobRequest release;
  release.set_request_id("r");
  release.set_job_id(*job);
  EXPECT_THAT(Call(rpc::kReleaseJob, release),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_TRUE(Get(*job).held());
}

TEST_F(HeadCoreTest, SaysOfAnArrayWhetherItIsHeld) {
  v1::SubmitJobRequest request = Submission("a");
  request.mutable_spec()->set_array("0-3");
  request.mutable_spec()->set_hold(true);
  const auto submitted = Call(rpc::kSubmitJob, request);
  COHORT_ASSERT_OK(submitted);
  const v1::Job held = Get(submitted->job_id());
  EXPECT_TRUE(held.held());
  EXPECT_FALSE(held.held_by().empty());
  v1::ReleaseJobRequest release;
  release.set_request_id("r");
  release.set_job_id(JobId::FromBytes(submitted->job_id())->Element(2).bytes());
  COHORT_EXPECT_OK(Call(rpc::kReleaseJob, release));
  EXPECT_FALSE(Get(submitted->job_id()).held());
}

TEST_F(HeadCoreTest, AnswersReadsAndRefusesWritesWhileTheDiskIsFull) {
  const auto job = Submit("before");
  COHORT_ASSERT_OK(job);
  disk_.Refuse();
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  Run();
  EXPECT_TRUE(core_->read_only());
  const auto refused = Submit("during");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(refused.status()), "read_only");
  // People are told what the disk said, not only that it refuses.
  EXPECT_THAT(refused.status().message(),
              HasSubstr("injected: the append failed"));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_PENDING);
  EXPECT_TRUE(Status().read_only());
  disk_.Heal();
  Run(absl::Seconds(2));
  COHORT_EXPECT_OK(Submit("during"));
  EXPECT_FALSE(Status().read_only());
}

TEST_F(HeadCoreTest, AnswersReadsWhileTheStoreCannotEvenBeOpened) {
  const auto job = Submit("before");
  COHORT_ASSERT_OK(job);
  const uint64_t term = core_->state()->cluster().term;
  disk_.FailAfter(0, AppendFault::kNotLanded);
  opens_ = absl::UnavailableError("injected: no room for a manifest");
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  Run(absl::Seconds(3));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_PENDING);
  EXPECT_TRUE(Status().read_only());
  EXPECT_EQ(core_->state()->cluster().term, term);
  EXPECT_THAT(Submit("during").status().message(),
              HasSubstr("no room for a manifest"));
  opens_ = absl::OkStatus();
  Run(absl::Seconds(2));
  COHORT_EXPECT_OK(Submit("during"));
  EXPECT_EQ(core_->state()->cluster().term, term + 1);
}

TEST_F(HeadCoreTest, MakesWorkersRegisterAgainAfterAFailedAppend) {
  auto worker = Open(Registration(node_));
  disk_.FailAfter(0, AppendFault::kNotLanded);
  EXPECT_FALSE(Submit("r").ok());
  Run();
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_THAT(*worker->closed, StatusIs(absl::StatusCode::kUnavailable));
  auto again = Open(Registration(node_));
  EXPECT_GT(again->incarnation, worker->incarnation);
  COHORT_EXPECT_OK(Submit("r"));
  EXPECT_THAT(again->Desired(), SizeIs(1));
}

TEST_F(HeadCoreTest, KeepsEverythingThroughACrash) {
  const auto job = Submit("r");
  COHORT_ASSERT_OK(job);
  auto worker = Open(Registration(node_));
  const v1::DesiredAttempt desired = RunJob(*worker);
  Crash();
  Run();
  Start();
  EXPECT_THAT(Submit("r"), IsOkAndHolds(*job));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_RUNNING);
  v1::WorkerMessage registration = Registration(node_);
  *registration.mutable_register_()->mutable_observed()->add_attempts() =
      At(desired, v1::PHASE_RUNNING);
  auto again = Open(registration);
  ASSERT_THAT(again->Desired(), SizeIs(1));
  EXPECT_EQ(again->Desired()[0].goal(), v1::GOAL_RUN);
  EXPECT_EQ(again->messages[0].stamp().term(), 2);
  Say(*again, Exited(desired, 0));
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(HeadCoreTest, EndsWhenAnotherHeadTookTheStore) {
  std::unique_ptr<HeadCore> other = std::make_unique<HeadCore>(
      options_,
      HeadSeams{.strand = time_,
                .store_executor = time_,
                .clock = time_,
                .random = random_,
                .packages = packages_},
      [this](StoreAccess) -> absl::StatusOr<std::unique_ptr<Store>> {
        return std::make_unique<MemoryStore>(disk_);
      },
      [](const absl::Status&) {});
  other->Start([](const absl::Status& status) { COHORT_EXPECT_OK(status); });
  time_.RunUntilIdle();
  EXPECT_FALSE(Submit("r").ok());
  ASSERT_TRUE(fatal_.has_value());
  EXPECT_THAT(*fatal_, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(other->state()->jobs().size(), 0);
}

TEST_F(HeadCoreTest, NumbersOfEventsAreOfOneGeneration) {
  const auto first = Call(rpc::kListEvents, v1::ListEventsRequest());
  COHORT_ASSERT_OK(first);
  EXPECT_EQ(first->generation(), core_->state()->cluster().generation.bytes());
  v1::ListEventsRequest request;
  request.set_generation(first->generation());
  COHORT_EXPECT_OK(Call(rpc::kListEvents, request));
  request.set_generation(std::string(16, 'x'));
  request.set_after(1'000);
  request.set_wait(true);
  const auto refused = Call(rpc::kListEvents, request);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("store_restored")));
  EXPECT_EQ(GetReason(refused.status()), "history_replaced");
}

// Of a store on a full disk.
class NoRoom final : public Backups {
 public:
  explicit NoRoom(Executor& strand) : strand_(strand) {}
  void Write(Store&, BackupRequest, Done done) override {
    strand_.Post([done = std::move(done)]() mutable {
      std::move(done)(SetReason(absl::UnavailableError("the disk is full"),
                                kDiskFullReason));
    });
  }

 private:
  Executor& strand_;
};

// The client asks again for as long as the answer is UNAVAILABLE.
TEST_F(HeadCoreTest, ABackupOfAFullDiskIsNotToBeAskedForAgain) {
  Crash();
  NoRoom backups(time_);
  backups_ = &backups;
  Start();
  v1::BackupStoreRequest request;
  request.set_request_id("r1");
  request.set_directory("/b");
  const auto refused = Call(rpc::kBackupStore, request);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("the disk is full")));
  EXPECT_EQ(GetReason(refused.status()), kDiskFullReason);
  // Nor while the head opens it anew.
  disk_.Refuse();
  opens_ = SetReason(absl::UnavailableError("no room"), kDiskFullReason);
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  Run(absl::Seconds(2));
  EXPECT_TRUE(core_->read_only());
  EXPECT_THAT(
      Call(rpc::kBackupStore, request),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  Crash();
}

TEST_F(HeadCoreTest, SaysNoWhenTooMuchWaitsForTheDisk) {
  Crash();
  options_.pending_transitions_max = 1;
  Start();
  // Both arrive before the disk has answered the first.
  auto channel = network_.Connect("client", kHead, credential_);
  std::vector<absl::Status> answers;
  for (const char* id : {"a", "b", "c"}) {
    rpc::Call<v1::SubmitJobRequest, v1::SubmitJobResponse>(
        *channel, rpc::kSubmitJob, Submission(id),
        {.deadline = absl::Seconds(5)}, time_,
        [&](absl::StatusOr<v1::SubmitJobResponse> response) {
          answers.push_back(response.status());
        });
  }
  core_->Submit([] {
    Transition transition;
    EventRecord event;
    event.number = 1'000'000;
    transition.Put(event);
    return transition;
  }());
  EXPECT_EQ(core_->Writable(Admission::kClient).status().code(),
            absl::StatusCode::kResourceExhausted);
  COHORT_EXPECT_OK(core_->Writable(Admission::kNode));
  Run();
  EXPECT_THAT(answers, SizeIs(3));
}

// ---- workers ----

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
  garbage.mutable_observed()->add_attempts()->set_attempt_id("short");
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
  EXPECT_EQ(drained->node().state(), "DRAINED");
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
  EXPECT_EQ(whole->node().state(), "ALIVE");
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
  EXPECT_EQ(core_->state()->nodes().Find(silent)->state, NodeState::kDead);
  ASSERT_TRUE(other->closed.has_value());
  EXPECT_EQ(GetReason(*other->closed), "node_dead");
}

TEST_F(HeadCoreTest, WithdrawsANodeWhoseStreamBreaks) {
  auto worker = Open(Registration(node_));
  EXPECT_TRUE(core_->state()->nodes().IsOffered(node_));
  worker->stream.reset();
  Run();
  EXPECT_FALSE(core_->state()->nodes().IsOffered(node_));
  EXPECT_EQ(core_->state()->nodes().Find(node_)->state, NodeState::kAlive);
}

// ---- waiting ----

TEST_F(HeadCoreTest, AnswersAWaitWhenTheJobEnds) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredAttempt desired = RunJob(*worker);
  auto channel = network_.Connect("client", kHead, credential_);
  v1::WaitJobRequest request;
  request.set_job_id(*job);
  std::optional<absl::StatusOr<v1::WaitJobResponse>> answer;
  rpc::Call<v1::WaitJobRequest, v1::WaitJobResponse>(
      *channel, rpc::kWaitJob, request, {.deadline = absl::Hours(1)}, time_,
      [&](auto response) { answer = std::move(response); });
  Run(absl::Seconds(1));
  EXPECT_FALSE(answer.has_value());
  Say(*worker, Exited(desired, 7));
  ASSERT_TRUE(answer.has_value());
  COHORT_ASSERT_OK(*answer);
  EXPECT_EQ((*answer)->job().state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ((*answer)->job().exit().code(), 7);
  // Asked afterwards it answers at once.
  const auto again = Call(rpc::kWaitJob, request);
  COHORT_ASSERT_OK(again);
  EXPECT_EQ(again->job().failed_rank(), 0);
}

TEST_F(HeadCoreTest, AnswersWhatWaitsWhenItBeginsToEnd) {
  const auto job = Submit("r");
  COHORT_ASSERT_OK(job);
  auto worker = Open(Registration(node_));
  auto channel = network_.Connect("client", kHead, credential_);
  v1::WaitJobRequest wait;
  wait.set_job_id(*job);
  std::optional<absl::StatusOr<v1::WaitJobResponse>> waited;
  rpc::Call<v1::WaitJobRequest, v1::WaitJobResponse>(
      *channel, rpc::kWaitJob, wait, {.deadline = absl::Hours(1)}, time_,
      [&](auto response) { waited = std::move(response); });
  Run(absl::Seconds(1));
  ASSERT_FALSE(waited.has_value());
  core_->BeginEnd();
  Run();
  ASSERT_TRUE(waited.has_value());
  EXPECT_THAT(*waited, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(waited->status()), "shutting_down");
  ASSERT_TRUE(worker->closed.has_value());
  EXPECT_EQ(GetReason(*worker->closed), "shutting_down");
  // Whatever comes now is for the next head.
  EXPECT_EQ(GetReason(Submit("late").status()), "shutting_down");
  EXPECT_THAT(Call(rpc::kGetJob, v1::GetJobRequest()),
              StatusIs(absl::StatusCode::kUnavailable));
  Crash();
  Start();
  EXPECT_EQ(core_->state()->jobs().size(), 1u);
}

TEST_F(HeadCoreTest, EndsAWaitAtItsDeadlineAndForgetsIt) {
  const auto job = Submit("r");
  v1::WaitJobRequest request;
  request.set_job_id(*job);
  EXPECT_THAT(Call(rpc::kWaitJob, request, absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

// CS-2.
TEST_F(HeadCoreTest, LetsARankReadItsOwnJobOnly) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredAttempt desired = RunJob(*worker);
  const auto other = Submit("other");
  const rpc::Credential rank = rpc::MintRankCredential(
      credential_, *AttemptId::FromBytes(desired.attempt_id()));
  v1::GetJobRequest request;
  request.set_job_id(*job);
  COHORT_EXPECT_OK(Call(rpc::kGetJob, request, absl::Seconds(5), rank));
  request.set_job_id(*other);
  EXPECT_THAT(Call(rpc::kGetJob, request, absl::Seconds(5), rank),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_FALSE(
      Call(rpc::kSubmitJob, Submission("x"), absl::Seconds(5), rank).ok());
  EXPECT_FALSE(
      Call(rpc::kListJobs, v1::ListJobsRequest(), absl::Seconds(5), rank).ok());
}

TEST_F(HeadCoreTest, RefusesACallerWithAnotherCredential) {
  EXPECT_THAT(Call(rpc::kGetStatus, v1::GetStatusRequest(), absl::Seconds(5),
                   *rpc::Credential::FromBytes(std::string(32, 'x'))),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST_F(HeadCoreTest, ListsJobsNewestFirst) {
  const auto first = Submit("1");
  const auto second = Submit("2");
  const auto jobs = Call(rpc::kListJobs, v1::ListJobsRequest());
  COHORT_ASSERT_OK(jobs);
  ASSERT_EQ(jobs->jobs_size(), 2);
  EXPECT_EQ(jobs->jobs(0).job_id(), *second);
  EXPECT_EQ(Status().jobs_by_state().at("PENDING"), 2);
  EXPECT_EQ(Status().head_pid(), 42);
}

TEST_F(HeadCoreTest, TellsWhatTheClusterHasAndWhatIsLeft) {
  auto worker = Open(Registration(node_, 4));
  COHORT_ASSERT_OK(Submit("r"));
  const auto resources = Call(rpc::kGetResources, v1::GetResourcesRequest());
  COHORT_ASSERT_OK(resources);
  EXPECT_EQ(rpc::FromWire(resources->total())->Get(kCpu), Amount::FromUnits(4));
  EXPECT_EQ(rpc::FromWire(resources->available())->Get(kCpu),
            Amount::FromUnits(3));
  const auto nodes = Call(rpc::kListNodes, v1::ListNodesRequest());
  ASSERT_EQ(nodes->nodes_size(), 1);
  EXPECT_EQ(nodes->nodes(0).state(), "ALIVE");
}

// ---- logs ----

struct LogReader {
  std::unique_ptr<rpc::Channel> channel;
  std::unique_ptr<rpc::TypedStream<v1::ReadLogRequest>> stream;
  std::vector<v1::ReadLogResponse> chunks;
  std::optional<absl::Status> closed;
};

class HeadLogTest : public HeadCoreTest {
 protected:
  std::unique_ptr<LogReader> Read(const v1::ReadLogRequest& request) {
    auto reader = std::make_unique<LogReader>();
    reader->channel = network_.Connect("reader", kHead, credential_);
    LogReader* raw = reader.get();
    reader->stream = rpc::OpenStream<v1::ReadLogRequest, v1::ReadLogResponse>(
        *reader->channel, rpc::kReadLog, {.deadline = absl::Hours(1)}, time_,
        {.on_message =
             [raw](const v1::ReadLogResponse& chunk) {
               raw->chunks.push_back(chunk);
             },
         .on_closed = [raw](absl::Status status,
                            auto) { raw->closed = std::move(status); },
         .on_drained = nullptr});
    COHORT_EXPECT_OK(reader->stream->Write(request));
    reader->stream->HalfClose();
    Run();
    return reader;
  }
  v1::ReadLogRequest Request(const std::string& job, bool follow) {
    v1::ReadLogRequest request;
    request.set_job_id(job);
    request.set_stream(v1::LOG_STREAM_STDOUT);
    request.set_follow(follow);
    return request;
  }
  // The questions that the worker was asked and has not answered.
  std::vector<v1::ReadLogChunk> TakeQuestions(FakeWorker& worker) {
    std::vector<v1::ReadLogChunk> questions;
    for (const v1::HeadMessage& message : worker.messages) {
      if (message.has_read_log()) questions.push_back(message.read_log());
    }
    worker.messages.clear();
    return questions;
  }
  void Answer(FakeWorker& worker, const v1::ReadLogChunk& question,
              const std::string& data, bool end, int64_t offset = -1) {
    v1::WorkerMessage message;
    message.set_incarnation(worker.incarnation);
    v1::LogChunk* chunk = message.mutable_log_chunk();
    chunk->set_read_id(question.read_id());
    chunk->set_offset(offset < 0 ? question.offset() : offset);
    chunk->set_data(data);
    chunk->set_end(end);
    chunk->set_known(true);
    COHORT_EXPECT_OK(worker.stream->Write(message));
    Run();
  }
};

TEST_F(HeadLogTest, ReadsToThePresentEnd) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(*job, /*follow=*/false));
  auto questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, SizeIs(1));
  EXPECT_EQ(questions[0].offset(), 0);
  EXPECT_FALSE(questions[0].wait());
  Answer(*worker, questions[0], "hello ", false);
  questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, SizeIs(1));
  EXPECT_EQ(questions[0].offset(), 6);
  // Rotated away meanwhile: the gap is told (LG-2).
  Answer(*worker, questions[0], "world", false, /*offset=*/10);
  Answer(*worker, TakeQuestions(*worker)[0], "", false);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(2));
  EXPECT_EQ(reader->chunks[0].data(), "hello ");
  EXPECT_EQ(reader->chunks[1].skipped(), 4);
  EXPECT_EQ(reader->chunks[1].offset(), 10);
}

TEST_F(HeadLogTest, FollowsAcrossAttemptsUntilTheJobEnds) {
  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->mutable_run()->set_max_failures(1);
  submission.mutable_spec()->mutable_run()->mutable_retry_delay();  // at once
  const auto submitted = Call(rpc::kSubmitJob, submission);
  COHORT_ASSERT_OK(submitted);
  const std::string job = submitted->job_id();
  auto reader = Read(Request(job, /*follow=*/true));
  EXPECT_FALSE(reader->closed.has_value());  // it has not started yet
  auto worker = Open(Registration(node_));
  v1::DesiredAttempt desired = RunJob(*worker);
  auto questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, Not(IsEmpty()));
  EXPECT_TRUE(questions.back().wait());
  Answer(*worker, questions.back(), "one", true);
  EXPECT_FALSE(reader->closed.has_value());
  Say(*worker, Exited(desired, 1));
  v1::DesiredAttempt second;
  for (const v1::DesiredAttempt& each : worker->Desired()) {
    if (each.goal() == v1::GOAL_PREPARE) second = each;
  }
  EXPECT_EQ(second.number(), 2);
  questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, Not(IsEmpty()));
  EXPECT_EQ(questions.back().attempt_id(), second.attempt_id());
  EXPECT_EQ(questions.back().offset(), 0);
  Say(*worker, At(second, v1::PHASE_PREPARED));
  Say(*worker, At(second, v1::PHASE_RUNNING));
  Say(*worker, Exited(second, 0));
  Answer(*worker, questions.back(), "two", true);
  ASSERT_TRUE(reader->closed.has_value());
  COHORT_EXPECT_OK(*reader->closed);
  ASSERT_THAT(reader->chunks, SizeIs(2));
  EXPECT_EQ(reader->chunks[1].attempt(), 2);
}

TEST_F(HeadLogTest, SaysWhenTheNodeIsAway) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  auto reader = Read(Request(*job, /*follow=*/true));
  auto glance = Read(Request(*job, /*follow=*/false));
  worker->stream.reset();
  Run();
  ASSERT_TRUE(glance->closed.has_value());
  EXPECT_EQ(GetReason(*glance->closed), "node_away");
  // A follower gives a restarted daemon the time to come back.
  EXPECT_FALSE(reader->closed.has_value());
  Run(absl::Seconds(6));
  ASSERT_TRUE(reader->closed.has_value());
  EXPECT_THAT(*reader->closed, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(GetReason(*reader->closed), "node_away");
}

// NS-4
TEST_F(HeadLogTest, KeepsNodesAndShowsLogsAndEventsWhileTheDiskIsFull) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  const v1::DesiredAttempt desired = RunJob(*worker);
  worker->messages.clear();
  const uint64_t events = core_->state()->cluster().next_event - 1;
  disk_.Refuse();
  EXPECT_THAT(Submit("during"), StatusIs(absl::StatusCode::kUnavailable));
  // Longer than any lease, and with words of the node in every state of it.
  for (int i = 0; i < 15; ++i) {
    v1::WorkerMessage beat;
    beat.set_incarnation(worker->incarnation);
    beat.mutable_heartbeat();
    COHORT_ASSERT_OK(worker->stream->Write(beat));
    Run(absl::Seconds(1));
  }
  Say(*worker, Exited(desired, 0));
  EXPECT_TRUE(core_->read_only());
  EXPECT_FALSE(worker->closed.has_value()) << *worker->closed;

  auto reader = Read(Request(*job, /*follow=*/false));
  const auto questions = TakeQuestions(*worker);
  ASSERT_THAT(questions, SizeIs(1));
  Answer(*worker, questions[0], "hello", true);
  ASSERT_THAT(reader->chunks, SizeIs(1));
  EXPECT_EQ(reader->chunks[0].data(), "hello");
  const auto listed = Call(rpc::kListEvents, v1::ListEventsRequest());
  COHORT_ASSERT_OK(listed);
  EXPECT_EQ(listed->events_size(), static_cast<int>(events));

  // The daemon starts anew: it is taken in as what its row says.
  worker->stream.reset();
  Run();
  auto again = Open(Registration(node_));
  EXPECT_FALSE(again->closed.has_value()) << *again->closed;
  EXPECT_EQ(again->incarnation, worker->incarnation);
  EXPECT_THAT(again->Desired(), IsEmpty());
  auto second = Read(Request(*job, /*follow=*/false));
  EXPECT_THAT(TakeQuestions(*again), SizeIs(1));
  // Of one without a row nothing is known.
  auto stranger = Open(Registration(NodeId::New(random_)), "stranger");
  ASSERT_TRUE(stranger->closed.has_value());
  EXPECT_EQ(GetReason(*stranger->closed), "read_only");

  disk_.Heal();
  Run(absl::Seconds(2));
  EXPECT_FALSE(core_->read_only());
  ASSERT_TRUE(again->closed.has_value());  // and registers with everything
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_RUNNING);
  v1::WorkerMessage registration = Registration(node_);
  *registration.mutable_register_()->mutable_observed()->add_attempts() =
      Exited(desired, 0);
  auto third = Open(registration);
  EXPECT_GT(third->incarnation, again->incarnation);
  EXPECT_EQ(Get(*job).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(HeadLogTest, RefusesWhatIsNotThere) {
  const auto job = Submit("r");
  v1::ReadLogRequest request = Request(*job, false);
  request.set_rank(5);
  EXPECT_THAT(*Read(request)->closed, StatusIs(absl::StatusCode::kNotFound));
  request = Request(std::string(16, 'x'), false);
  EXPECT_THAT(*Read(request)->closed, StatusIs(absl::StatusCode::kNotFound));
  request = Request(*job, false);
  request.set_attempt(3);
  EXPECT_THAT(*Read(request)->closed, StatusIs(absl::StatusCode::kNotFound));
  // Nothing has run: the present end is at once.
  COHORT_EXPECT_OK(*Read(Request(*job, false))->closed);
}

// LG-1.
TEST_F(HeadLogTest, AsksForNoMoreThanASlowReaderTakes) {
  const auto job = Submit("r");
  auto worker = Open(Registration(node_));
  RunJob(*worker);
  worker->messages.clear();
  auto reader = Read(Request(*job, /*follow=*/true));
  network_.Partition("reader", kHead);
  size_t asked = 0;
  for (int i = 0; i < 50; ++i) {
    const auto questions = TakeQuestions(*worker);
    asked += questions.size();
    for (const v1::ReadLogChunk& question : questions) {
      Answer(*worker, question, std::string(256 << 10, 'x'), false);
    }
  }
  EXPECT_LE(asked, 3);
  network_.HealAll();
}

// ---- packages ----

TEST_F(HeadCoreTest, APackageWhoseFileIsGoneIsUploadedAgain) {
  const std::string bytes = "the bytes of a package";
  const std::string hash(Sha256::Of(bytes).bytes());
  v1::BeginPackageRequest begin;
  begin.set_hash(hash);
  begin.set_size_bytes(static_cast<int64_t>(bytes.size()));
  v1::UploadPackageRequest upload;
  upload.set_hash(hash);
  upload.set_data(bytes);
  v1::FinishPackageRequest finish;
  finish.set_hash(hash);
  finish.set_size_bytes(begin.size_bytes());
  for (int round = 0; round < 2; ++round) {
    const auto begun = Call(rpc::kBeginPackage, begin);
    COHORT_ASSERT_OK(begun);
    EXPECT_FALSE(begun->complete());
    EXPECT_EQ(begun->offset(), 0);
    COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload));
    COHORT_ASSERT_OK(Call(rpc::kFinishPackage, finish));
    EXPECT_TRUE(Call(rpc::kBeginPackage, begin)->complete());
    packages_.Lose(hash);
  }
  // All came, and the answer to Finish was lost.
  COHORT_ASSERT_OK(Call(rpc::kBeginPackage, begin));
  COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload));
  EXPECT_TRUE(Call(rpc::kBeginPackage, begin)->complete());
  EXPECT_TRUE(packages_.Has(hash));
}

TEST_F(HeadCoreTest, TellsOnceThatAPackageIsLostAndTakesItAgain) {
  const std::string bytes = "the bytes of a package";
  const std::string hash(Sha256::Of(bytes).bytes());
  v1::BeginPackageRequest begin;
  begin.set_hash(hash);
  begin.set_size_bytes(static_cast<int64_t>(bytes.size()));
  v1::UploadPackageRequest upload;
  upload.set_hash(hash);
  upload.set_data(bytes);
  v1::FinishPackageRequest finish;
  finish.set_hash(hash);
  finish.set_size_bytes(begin.size_bytes());
  const auto put = [&] {
    COHORT_ASSERT_OK(Call(rpc::kBeginPackage, begin));
    COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload));
    COHORT_ASSERT_OK(Call(rpc::kFinishPackage, finish));
  };
  const auto losses = [&] {
    int count = 0;
    const auto events =
        Call(rpc::kListEvents, v1::ListEventsRequest())->events();
    for (const v1::Event& event : events)
      count += event.kind() == "package_lost";
    return count;
  };
  put();
  packages_.Lose(hash);
  v1::FetchPackageRequest fetch;
  fetch.set_hash(hash);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Call(rpc::kFetchPackage, fetch),
                StatusIs(absl::StatusCode::kNotFound));
  }
  EXPECT_EQ(losses(), 1);
  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->set_package_hash(hash);
  EXPECT_THAT(Call(rpc::kSubmitJob, submission),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  put();
  COHORT_EXPECT_OK(Call(rpc::kSubmitJob, submission));
  COHORT_EXPECT_OK(Call(rpc::kFetchPackage, fetch));
}

TEST_F(HeadCoreTest, TakesAPackageAndKeepsItForTheJobThatNamesIt) {
  const std::string bytes = "the bytes of a package";
  const std::string hash(Sha256::Of(bytes).bytes());
  v1::BeginPackageRequest begin;
  begin.set_hash(hash);
  begin.set_size_bytes(static_cast<int64_t>(bytes.size()));
  auto begun = Call(rpc::kBeginPackage, begin);
  COHORT_ASSERT_OK(begun);
  EXPECT_EQ(begun->offset(), 0);
  v1::UploadPackageRequest upload;
  upload.set_hash(hash);
  upload.set_data(bytes.substr(0, 10));
  COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload));

  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->set_package_hash(hash);
  EXPECT_THAT(Call(rpc::kSubmitJob, submission),
              StatusIs(absl::StatusCode::kFailedPrecondition));

  // The upload goes on where it was, also after a crash.
  Crash();
  Run();
  Start();
  begun = Call(rpc::kBeginPackage, begin);
  EXPECT_EQ(begun->offset(), 10);
  upload.set_offset(10);
  upload.set_data(bytes.substr(10));
  COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload));
  v1::FinishPackageRequest finish;
  finish.set_hash(hash);
  finish.set_size_bytes(begin.size_bytes());
  COHORT_ASSERT_OK(Call(rpc::kFinishPackage, finish));
  EXPECT_TRUE(Call(rpc::kBeginPackage, begin)->complete());
  const auto job = Call(rpc::kSubmitJob, submission);
  COHORT_ASSERT_OK(job);

  v1::FetchPackageRequest fetch;
  fetch.set_hash(hash);
  fetch.set_offset(4);
  const auto fetched = Call(rpc::kFetchPackage, fetch);
  COHORT_ASSERT_OK(fetched);
  EXPECT_EQ(fetched->data(), bytes.substr(4));
  EXPECT_EQ(fetched->size_bytes(), begin.size_bytes());

  Run(absl::Hours(2));
  EXPECT_TRUE(packages_.Has(hash));  // a waiting job pins it
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(job->job_id());
  COHORT_ASSERT_OK(Call(rpc::kStopJob, stop));
  Run(absl::Hours(2));
  EXPECT_FALSE(packages_.Has(hash));
  EXPECT_THAT(Call(rpc::kFetchPackage, fetch),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::head
