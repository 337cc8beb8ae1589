#include "worker/local_attempt_host.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

// Takes every spec and keeps the last.
class RecordingKeepers final : public KeeperHost {
 public:
  void Start(KeeperSpec spec, DoneCallback done) override {
    started = std::move(spec);
    std::move(done)(absl::OkStatus());
  }
  void Adopt(absl::string_view, AdoptCallback done) override {
    std::move(done)(absl::NotFoundError("none"));
  }
  void Stop(absl::string_view, absl::Duration) override {}
  void Kill(absl::string_view) override {}
  void Remove(absl::string_view, DoneCallback done) override {
    std::move(done)(absl::OkStatus());
  }

  std::optional<KeeperSpec> started;
};

// Of a head that nobody asks for anything.
class NoHead final : public rpc::Channel {
 public:
  rpc::CallHandle StartUnary(absl::string_view, std::string, rpc::CallOptions,
                             Executor&, Done) override {
    ADD_FAILURE() << "the head was asked";
    return {};
  }
  std::unique_ptr<rpc::ClientStream> OpenStream(absl::string_view,
                                                rpc::CallOptions, Executor&,
                                                rpc::StreamEvents) override {
    return nullptr;
  }
  const std::string& address() const override { return address_; }

 private:
  const std::string address_ = "nowhere";
};

class NoDevices final : public DeviceSource {
 public:
  absl::StatusOr<std::vector<Device>> List() override {
    return std::vector<Device>();
  }
  std::vector<DeviceAnswer> Sample() override { return {}; }
  std::optional<std::vector<DeviceProcess>> Processes(
      const std::string&) override {
    return std::nullopt;
  }
  std::optional<Xid> WaitXid(absl::Duration, bool*) override {
    return std::nullopt;
  }
};

class LocalAttemptHostTest : public testing::Test {
 protected:
  v1::DesiredAttempt Want() {
    v1::DesiredAttempt attempt;
    attempt.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    attempt.set_job_id(std::string(16, '\1'));
    attempt.set_goal(v1::GOAL_RUN);
    attempt.set_world_size(1);
    attempt.add_command("true");
    attempt.add_ranks();
    return attempt;
  }
  KeeperSpec Started(const v1::DesiredAttempt& attempt) {
    host_.Start(attempt, [](absl::Status status) { COHORT_EXPECT_OK(status); });
    executor_.RunUntilIdle();
    EXPECT_TRUE(keepers_.started.has_value());
    return keepers_.started.value_or(KeeperSpec());
  }

  const TempDir temp_;
  SeededRandom random_{1};
  ManualExecutor executor_;
  const NodeDirectories directories_{temp_.File("state"), temp_.File("run")};
  const rpc::Credential credential_ =
      *rpc::Credential::FromBytes(std::string(32, 'c'));
  Journal journal_{directories_};
  RecordingKeepers keepers_;
  NoHead head_;
  PackageCache packages_{temp_.File("packages"), head_, executor_, executor_};
  DeviceMonitor devices_{
      {},
      std::make_shared<NoDevices>(),
      executor_,
      [](auto) {},
      [](auto) {},
      executor_,
      {.on_change = [] {}, .on_fault = [](const auto&, const auto&, bool) {}}};
  LocalAttemptHost host_{{.head_address = "h:1", .environment = {}},
                         directories_,
                         credential_,
                         journal_,
                         keepers_,
                         packages_,
                         devices_,
                         executor_,
                         executor_,
                         executor_};
};

// A daemon that cannot reach its keeper's socket has only SIGTERM, which names
// no grace.
TEST_F(LocalAttemptHostTest, AKeeperKnowsTheJobsGraceWithoutATimeLimitToo) {
  v1::DesiredAttempt attempt = Want();
  attempt.mutable_grace()->set_seconds(30);
  KeeperSpec spec = Started(attempt);
  EXPECT_EQ(spec.grace_ms, 30'000);
  EXPECT_EQ(spec.time_limit_ms, std::nullopt);
  attempt.mutable_time_limit()->set_seconds(60);
  spec = Started(attempt);
  EXPECT_EQ(spec.grace_ms, 30'000);
  EXPECT_EQ(spec.time_limit_ms, 60'000);
}

TEST_F(LocalAttemptHostTest, WithoutAGraceOfTheJobTheKeepersCounts) {
  EXPECT_EQ(Started(Want()).grace_ms, KeeperSpec().grace_ms);
}

}  // namespace
}  // namespace cohort::worker
