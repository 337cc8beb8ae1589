#include "trainer/daemon_link.h"

#include <sched.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/real_clock.h"
#include "common/strand.h"
#include "common/strong_id.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "rpc/credential.h"
#include "rpc/grpc_server.h"
#include "rpc/methods.h"
#include "rpc/router.h"
#include "rpc/wire_values.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// True once `reached` is, within a minute.
bool Soon(absl::FunctionRef<bool()> reached) {
  const absl::Duration until = MonotonicNow() + absl::Minutes(1);
  while (!reached()) {
    if (MonotonicNow() > until) return false;
    sched_yield();
  }
  return true;
}

// A worker daemon, as far as a rank sees it: it tells whoever watches what it
// was given last, and keeps that over its restarts.
class FakeDaemon {
 public:
  explicit FakeDaemon(std::string socket)
      : socket_(std::move(socket)),
        router_({}, rpc::Authenticator(credential()), clock_) {
    router_.HandleStream(
        rpc::kWatchRun, strand_,
        [this](const auto&, auto writer)
            -> absl::StatusOr<
                std::unique_ptr<rpc::StreamReader<v1::WatchRequest>>> {
          return std::make_unique<Watcher>(*this, std::move(writer));
        });
    router_.Handle(rpc::kCommitCheckpoint, strand_,
                   [this](const auto&, const auto& request, auto reply) {
                     MutexLock lock(mutex_);
                     commits_.push_back(request);
                     std::move(reply)(v1::CommitCheckpointResponse());
                   });
    Start();
  }
  ~FakeDaemon() {
    Stop();
    strand_.Drain();
  }

  static rpc::Credential credential() {
    return rpc::Credential::FromBytes(
               std::string(rpc::Credential::kClusterBytes, 'c'))
        .value();
  }

  void Start() {
    auto server =
        rpc::GrpcServer::Start(router_, {.address = "unix:" + socket_});
    COHORT_ASSERT_OK(server);
    server_ = *std::move(server);
  }
  void Stop() {
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
    server_.reset();
  }

  // From now on; nothing: the process is not here.
  void Tell(std::optional<v1::WatchResponse> told) {
    MutexLock lock(mutex_);
    told_ = std::move(told);
    for (Watcher* watcher : watchers_) watcher->Tell(told_);
  }

  std::vector<v1::WatchRequest> watches() const {
    MutexLock lock(mutex_);
    return watches_;
  }
  std::vector<v1::CommitCheckpointRequest> commits() const {
    MutexLock lock(mutex_);
    return commits_;
  }

 private:
  class Watcher final : public rpc::StreamReader<v1::WatchRequest> {
   public:
    Watcher(FakeDaemon& daemon,
            std::unique_ptr<rpc::StreamWriter<v1::WatchResponse>> writer)
        : daemon_(daemon), writer_(std::move(writer)) {}

    void Tell(const std::optional<v1::WatchResponse>& told) {
      if (!told.has_value()) return writer_->Close(absl::NotFoundError("no"));
      // An error: the reader has left, and OnClosed is on its way.
      writer_->Write(*told).IgnoreError();
    }

    void OnMessage(const v1::WatchRequest& request) override {
      MutexLock lock(daemon_.mutex_);
      daemon_.watches_.push_back(request);
      daemon_.watchers_.push_back(this);
      Tell(daemon_.told_);
    }
    void OnClosed(absl::Status /*status*/) override {
      MutexLock lock(daemon_.mutex_);
      std::erase(daemon_.watchers_, this);
    }

   private:
    FakeDaemon& daemon_;
    const std::unique_ptr<rpc::StreamWriter<v1::WatchResponse>> writer_;
  };

  const std::string socket_;
  const MachineClock clock_;
  ThreadPool pool_{1};
  Strand strand_{pool_};
  rpc::Router router_;
  std::unique_ptr<rpc::GrpcServer> server_;

  mutable Mutex mutex_;
  std::optional<v1::WatchResponse> told_ ABSL_GUARDED_BY(mutex_);
  std::vector<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::WatchRequest> watches_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::CommitCheckpointRequest> commits_ ABSL_GUARDED_BY(mutex_);
};

class DaemonLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    COHORT_ASSERT_OK(FakeDaemon::credential().Save(options_.credential_file));
    first_.set_number(2);
    first_.set_restart(v1::RESTART_POLICY_ALL);
    first_.set_runtime_directory("/run/cohort");
    first_.set_checkpoint_root("/results/attempt-2.5");
    first_.set_host("10.0.0.7");
    first_.set_epoch(5);
    first_.set_rank(3);
    first_.set_world_size(4);
    first_.set_local_rank(1);
    first_.set_local_world_size(2);
    first_.set_node_rank(1);
    first_.set_node_count(2);
    daemon_.Tell(first_);
  }

  std::unique_ptr<DaemonLink> Join() {
    auto link = DaemonLink::Join(options_);
    EXPECT_THAT(link, IsOk());
    return link.ok() ? *std::move(link) : nullptr;
  }

  TempDir directory_;
  const DaemonLinkOptions options_ = {
      {.worker_socket = directory_.File("socket"),
       .credential_file = directory_.File("credential"),
       .process = {
           .attempt = *AttemptId::FromHex("00112233445566778899aabbccddeeff"),
           .slot = 6,
           .incarnation = 9}}};
  FakeDaemon daemon_{options_.worker_socket};
  v1::WatchResponse first_;
};

TEST_F(DaemonLinkTest, JoinsAtTheDaemonsFirstWord) {
  const auto link = Join();
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->place().slot, 6);
  EXPECT_EQ(link->place().incarnation, 9u);
  EXPECT_EQ(link->place().attempt, 2);
  EXPECT_EQ(link->place().epoch, 5);
  EXPECT_EQ(link->place().rank, 3);
  EXPECT_EQ(link->place().local_world, 2);
  EXPECT_FALSE(link->place().restore.has_value());
  EXPECT_EQ(link->host(), "10.0.0.7");
  EXPECT_EQ(link->runtime_directory(), "/run/cohort");
  EXPECT_FALSE(link->notice().has_value());
  COHORT_EXPECT_OK(link->CheckMembership());
  const auto watches = daemon_.watches();
  ASSERT_EQ(watches.size(), 1u);
  EXPECT_EQ(watches[0].slot(), 6);
  EXPECT_EQ(watches[0].incarnation(), 9u);
}

TEST_F(DaemonLinkTest, NamesTheProcessInEachCall) {
  const auto link = Join();
  ASSERT_NE(link, nullptr);
  COHORT_EXPECT_OK(link->CommitCheckpoint("/results/attempt-2.5/step-7", 7));
  const auto commits = daemon_.commits();
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].slot(), 6);
  EXPECT_EQ(commits[0].incarnation(), 9u);
  EXPECT_EQ(commits[0].epoch(), 5);
  EXPECT_EQ(commits[0].checkpoint().step(), 7);
}

TEST_F(DaemonLinkTest, HearsNoticesAndThatTheyWereTakenBack) {
  const auto link = Join();
  ASSERT_NE(link, nullptr);
  const absl::Duration before = MonotonicNow();
  v1::WatchResponse draining = first_;
  draining.mutable_notice()->set_kind(v1::NOTICE_KIND_DRAIN);
  draining.mutable_notice()->set_reason("fan 3");
  *draining.mutable_notice()->mutable_deadline() =
      rpc::ToWire(absl::Seconds(90));
  daemon_.Tell(draining);
  ASSERT_TRUE(Soon([&] { return link->notice().has_value(); }));
  const RunNotice notice = *link->notice();
  EXPECT_EQ(notice.kind, RunNotice::Kind::kDrain);
  EXPECT_EQ(notice.reason, "fan 3");
  EXPECT_GE(notice.deadline, before + absl::Seconds(90));
  EXPECT_LE(notice.deadline, MonotonicNow() + absl::Seconds(90));
  COHORT_EXPECT_OK(link->CheckMembership());

  daemon_.Tell(first_);
  ASSERT_TRUE(Soon([&] { return !link->notice().has_value(); }));
  v1::WatchResponse stopped = first_;
  stopped.mutable_notice()->set_kind(v1::NOTICE_KIND_STOP);
  daemon_.Tell(stopped);
  ASSERT_TRUE(Soon([&] { return link->notice().has_value(); }));
  EXPECT_EQ(link->notice()->kind, RunNotice::Kind::kStop);
  EXPECT_EQ(link->notice()->deadline, absl::InfiniteDuration());
}

TEST_F(DaemonLinkTest, RefusesCallsUnderALaterMembership) {
  const auto link = Join();
  ASSERT_NE(link, nullptr);
  v1::WatchResponse later = first_;
  later.set_epoch(6);
  daemon_.Tell(later);
  ASSERT_TRUE(Soon([&] { return !link->CheckMembership().ok(); }));
  EXPECT_THAT(link->CommitCheckpoint("/results/attempt-2.5/step-7", 7),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("epoch 5"), HasSubstr("epoch 6"))));
  EXPECT_TRUE(daemon_.commits().empty());
  EXPECT_EQ(link->place().epoch, 5);
}

TEST_F(DaemonLinkTest, WatchesAgainAfterARestartOfTheDaemon) {
  const auto link = Join();
  ASSERT_NE(link, nullptr);
  daemon_.Stop();
  v1::WatchResponse draining = first_;
  draining.mutable_notice()->set_kind(v1::NOTICE_KIND_DRAIN);
  daemon_.Tell(draining);
  daemon_.Start();
  EXPECT_TRUE(Soon([&] { return link->notice().has_value(); }));
  COHORT_EXPECT_OK(link->CommitCheckpoint("/results/attempt-2.5/step-7", 7));
}

TEST_F(DaemonLinkTest, WaitsForADaemonThatIsAway) {
  daemon_.Stop();
  std::unique_ptr<DaemonLink> link;
  std::thread rank([&] { link = Join(); });
  daemon_.Start();
  rank.join();
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->place().rank, 3);
}

TEST_F(DaemonLinkTest, GivesUpOnADaemonThatStaysAway) {
  daemon_.Stop();
  DaemonLinkOptions options = options_;
  options.daemon_timeout = absl::Milliseconds(100);
  EXPECT_THAT(DaemonLink::Join(options).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("is away since 100ms")));
}

TEST_F(DaemonLinkTest, IsOverWhereTheDaemonDoesNotKnowTheProcess) {
  daemon_.Tell(std::nullopt);
  EXPECT_THAT(DaemonLink::Join(options_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("this process is over")));
}

TEST_F(DaemonLinkTest, RefusesOtherRestartPoliciesThanAll) {
  first_.set_restart(v1::RESTART_POLICY_ONE);
  daemon_.Tell(first_);
  EXPECT_THAT(
      DaemonLink::Join(options_).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "restart policy \"one\" is not supported by trainers yet "
               "(submit with --restart all, or run a plain command)"));
  first_.set_restart(v1::RESTART_POLICY_NONE);
  daemon_.Tell(first_);
  EXPECT_THAT(DaemonLink::Join(options_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("restart policy \"none\"")));
}

}  // namespace
}  // namespace cohort::trainer
