#include "worker/local_process_host.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

// Takes every spec and keeps the last ones.
class RecordingKeepers final : public KeeperHost {
 public:
  void Begin(std::string, std::vector<ProcessSpec> specs,
             DoneCallback done) override {
    begun = std::move(specs);
    std::move(done)(absl::OkStatus());
  }
  void Adopt(std::string, AdoptCallback done) override {
    std::move(done)(absl::NotFoundError("none"));
  }
  void Stop(const std::string&, std::vector<ProcessKey>,
            absl::Duration) override {}
  void Kill(const std::string&, std::vector<ProcessKey>) override {}
  void Forget(const std::string&, std::vector<ProcessKey>,
              DoneCallback done) override {
    std::move(done)(absl::OkStatus());
  }
  void Close(const std::string&, DoneCallback done) override {
    std::move(done)(absl::OkStatus());
  }

  std::vector<ProcessSpec> begun;
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

class LocalProcessHostTest : public testing::Test {
 protected:
  LocalProcessHostTest() { COHORT_EXPECT_OK(journal_.Open()); }

  v1::DesiredPlace Want() {
    v1::DesiredPlace place;
    place.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    place.set_job_id(std::string(16, '\1'));
    place.set_goal(v1::GOAL_PREPARE);
    place.set_epoch(1);
    place.set_world_size(1);
    place.set_local_world_size(1);
    place.mutable_launch()->add_command("true");
    place.add_processes()->set_incarnation(1);
    return place;
  }
  ProcessSpec Begun(const v1::DesiredPlace& place) {
    host_.Begin(place, {IdOf(place, place.processes(0))},
                [](absl::Status status) { COHORT_EXPECT_OK(status); });
    executor_.RunUntilIdle();
    EXPECT_EQ(keepers_.begun.size(), 1u);
    return keepers_.begun.empty() ? ProcessSpec() : keepers_.begun.front();
  }
  std::string Variable(const ProcessSpec& spec, const std::string& name) {
    for (const std::string& entry : spec.env) {
      if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    }
    return "";
  }
  void Prepare(const v1::DesiredPlace& place) {
    absl::StatusOr<int> port = absl::UnknownError("not answered");
    host_.Prepare(place, [&](auto result) { port = std::move(result); });
    executor_.RunUntilIdle();
    COHORT_EXPECT_OK(port);
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
  WorkDirectories work_{directories_, "n1", "1"};
  DeviceMonitor devices_{
      {},
      std::make_shared<NoDevices>(),
      executor_,
      [](auto) {},
      [](auto) {},
      executor_,
      {.on_change = [] {}, .on_fault = [](const auto&, const auto&, bool) {}}};
  LocalProcessHost host_{{.head_address = "h:1", .environment = {}},
                         directories_,
                         credential_,
                         journal_,
                         keepers_,
                         packages_,
                         work_,
                         devices_,
                         executor_,
                         executor_,
                         executor_,
                         executor_};
};

// A daemon that cannot reach its keeper's socket has only SIGTERM, which names
// no grace.
TEST_F(LocalProcessHostTest, AKeeperKnowsTheJobsGraceWithoutATimeLimitToo) {
  v1::DesiredPlace place = Want();
  place.mutable_processes(0)->mutable_grace()->set_seconds(30);
  ProcessSpec spec = Begun(place);
  EXPECT_EQ(spec.grace_ms, 30'000);
  EXPECT_EQ(spec.time_limit_ms, std::nullopt);
  place.mutable_processes(0)->mutable_time_limit()->set_seconds(60);
  spec = Begun(place);
  EXPECT_EQ(spec.grace_ms, 30'000);
  EXPECT_EQ(spec.time_limit_ms, 60'000);
}

TEST_F(LocalProcessHostTest, WithoutAGraceOfTheJobTheKeepersCounts) {
  EXPECT_EQ(Begun(Want()).grace_ms, ProcessSpec().grace_ms);
}

TEST_F(LocalProcessHostTest, EachProcessHasACredentialOfItsOwn) {
  v1::DesiredPlace place = Want();
  place.add_processes()->set_slot(1);
  place.mutable_processes(1)->set_incarnation(2);
  const ProcessId first = IdOf(place, place.processes(0));
  const ProcessId second = IdOf(place, place.processes(1));
  host_.Begin(place, {first, second},
              [](absl::Status status) { COHORT_EXPECT_OK(status); });
  executor_.RunUntilIdle();
  ASSERT_EQ(keepers_.begun.size(), 2u);
  for (const ProcessId& id : {first, second}) {
    const std::string path =
        Variable(keepers_.begun[id == first ? 0 : 1], "COHORT_CREDENTIAL_FILE");
    const auto credential = rpc::Credential::Load(path);
    ASSERT_THAT(credential, IsOk());
    EXPECT_EQ(rpc::ProcessOf(*credential), id);
  }
  // It goes with its process, the other's stays.
  host_.Forget(first, [](absl::Status status) { COHORT_EXPECT_OK(status); });
  executor_.RunUntilIdle();
  EXPECT_FALSE(rpc::Credential::Load(directories_.RankCredential(first)).ok());
  EXPECT_THAT(rpc::Credential::Load(directories_.RankCredential(second)),
              IsOk());
}

TEST_F(LocalProcessHostTest, RanksRunInADirectoryOfTheMachine) {
  v1::DesiredPlace place = Want();
  place.mutable_launch()->set_working_directory(temp_.path());
  Prepare(place);
  const ProcessSpec spec = Begun(place);
  EXPECT_EQ(spec.cwd, temp_.path());
  EXPECT_EQ(Variable(spec, "PWD"), temp_.path());
  // That stays as it is.
  EXPECT_THAT(Variable(spec, "TORCHELASTIC_ERROR_FILE"),
              testing::StartsWith(directories_.runtime()));
}

// Which would be as likely to be missing elsewhere.
TEST_F(LocalProcessHostTest, AMissingWorkingDirectoryIsNoFaultOfTheNode) {
  for (const std::string& path : {temp_.File("none"), temp_.File("file")}) {
    COHORT_ASSERT_OK(WriteFileAtomically(temp_.File("file"), "", 0600));
    v1::DesiredPlace place = Want();
    place.mutable_launch()->set_working_directory(path);
    absl::Status prepared;
    host_.Prepare(place, [&](auto port) { prepared = port.status(); });
    executor_.RunUntilIdle();
    EXPECT_THAT(prepared, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   testing::HasSubstr(path)));
    EXPECT_EQ(GetReason(prepared), "");
  }
}

TEST_F(LocalProcessHostTest, TellsWithAFailureWhatWasRaised) {
  std::vector<std::string> told;
  host_.SetListener({.on_event =
                         [&](const KeeperEvent& event) {
                           const auto* exit =
                               std::get_if<ProcessExited>(&event);
                           told.push_back(exit == nullptr ? "" : exit->message);
                         },
                     .on_metrics = {}});
  const v1::DesiredPlace place = Want();
  const ProcessSpec spec = Begun(place);
  COHORT_EXPECT_OK(
      WriteFileAtomically(Variable(spec, "TORCHELASTIC_ERROR_FILE"),
                          R"({"message": "boom"})", 0600));
  ProcessExited exited;
  exited.process = spec.key();
  exited.exit_code = 1;
  host_.OnKeeperEvent(exited);
  host_.OnKeeperEvent(ProcessEnded{spec.key()});
  executor_.RunUntilIdle();
  EXPECT_EQ(told, (std::vector<std::string>{"boom", ""}));
}

TEST_F(LocalProcessHostTest, BeginsNothingWithoutTheJobsPython) {
  v1::DesiredPlace place = Want();
  (*place.mutable_launch()->mutable_environment())["COHORT_PYTHON"] =
      "/no/bin/python3";
  absl::Status begun;
  host_.Begin(place, {IdOf(place, place.processes(0))},
              [&](absl::Status status) { begun = std::move(status); });
  executor_.RunUntilIdle();
  EXPECT_TRUE(absl::IsInvalidArgument(begun)) << begun;
  EXPECT_TRUE(keepers_.begun.empty());
}

TEST_F(LocalProcessHostTest, RemovesCheckpointsOfTheJobAndNothingElse) {
  const v1::DesiredPlace place = Want();
  const std::string attempt =
      absl::StrCat(directories_.Storage(place), "/attempt-1.1");
  const auto remove = [&](const std::string& path) {
    COHORT_EXPECT_OK(MakeDirectories(attempt + "/step-1", 0700));
    absl::Status removed = absl::UnknownError("not answered");
    host_.RemoveCheckpoint(place, path,
                           [&](absl::Status status) { removed = status; });
    executor_.RunUntilIdle();
    return removed;
  };
  COHORT_EXPECT_OK(remove(attempt + "/step-1"));
  EXPECT_FALSE(std::filesystem::exists(attempt + "/step-1"));
  for (const char* other : {"", "/step-1/..", "/step-1/../../x", "/other"}) {
    EXPECT_THAT(remove(attempt + other),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << other;
    EXPECT_TRUE(std::filesystem::exists(attempt + "/step-1")) << other;
  }
}

TEST_F(LocalProcessHostTest, OnlyGangsHaveAnArena) {
  v1::DesiredPlace place = Want();
  place.set_local_world_size(2);
  Prepare(place);
  const AttemptId gang = *AttemptId::FromBytes(place.attempt_id());
  const auto arena = shm::Arena::Open(directories_.Runtime(gang));
  ASSERT_THAT(arena, IsOk());
  EXPECT_EQ((*arena)->local_world(), 2);

  place = Want();
  place.set_restart(v1::RESTART_POLICY_ONE);
  place.set_local_world_size(1'000);
  Prepare(place);
  const AttemptId each = *AttemptId::FromBytes(place.attempt_id());
  EXPECT_FALSE(shm::Arena::Open(directories_.Runtime(each)).ok());
}

}  // namespace
}  // namespace cohort::worker
