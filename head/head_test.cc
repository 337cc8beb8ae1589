// The head as a program would run it: files, threads and gRPC, in this process.

#include "head/head.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/mutex.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "rpc/certificate.h"
#include "rpc/credential.h"
#include "rpc/grpc_channel.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HeadTest : public ::testing::Test {
 protected:
  HeadOptions Options() {
    HeadOptions options;
    options.address = {.host = "127.0.0.1", .port = 0};
    options.state_dir = dir_.File("head");
    options.ready_file = dir_.File("ready");
    options.is_volatile = true;  // wherever the tests run
    return options;
  }
  static absl::StatusOr<std::unique_ptr<Head>> Start(HeadOptions options) {
    return Head::Start(std::move(options), [](const absl::Status& status) {
      ADD_FAILURE() << status;
    });
  }

  template <typename Req, typename Resp>
  absl::StatusOr<Resp> Call(const Head& head,
                            const rpc::UnaryMethod<Req, Resp>& method,
                            const Req& request) {
    const auto credential =
        rpc::Credential::Load(dir_.File("head") + "/credential");
    if (!credential.ok()) return credential.status();
    const auto channel = rpc::NewGrpcChannel(head.address(), *credential);
    if (!channel.ok()) return channel.status();
    return rpc::CallAndWait(**channel, method, request,
                            {.deadline = absl::Seconds(30)})
        .response;
  }
  absl::StatusOr<std::string> Submit(const Head& head,
                                     const std::string& request_id) {
    v1::SubmitJobRequest request;
    request.set_request_id(request_id);
    request.mutable_spec()->mutable_launch()->add_command("true");
    request.mutable_spec()->mutable_scaling()->set_num_workers(1);
    const auto response = Call(head, rpc::kSubmitJob, request);
    if (!response.ok()) return response.status();
    return response->job_id();
  }

  TempDir dir_;
};

TEST_F(HeadTest, KeepsJobsThroughRestartsAndSaysWhereItServes) {
  auto head = Start(Options());
  COHORT_ASSERT_OK(head);
  EXPECT_THAT(ReadFile(dir_.File("ready")),
              IsOkAndHolds((*head)->address() + "\n"));
  const auto job = Submit(**head, "r");
  COHORT_ASSERT_OK(job);
  head->reset();
  head = Start(Options());
  COHORT_ASSERT_OK(head);
  EXPECT_THAT(Submit(**head, "r"), IsOkAndHolds(*job));
  const auto status = Call(**head, rpc::kGetStatus, v1::GetStatusRequest());
  COHORT_ASSERT_OK(status);
  EXPECT_EQ(status->stamp().term(), 2);
  EXPECT_EQ(status->address(), (*head)->address());
  EXPECT_EQ(status->head_pid(), getpid());
  EXPECT_EQ(status->jobs_by_state().at("PENDING"), 1);
}

TEST_F(HeadTest, RefusesADirectoryThatAnotherHeadHas) {
  const auto head = Start(Options());
  COHORT_ASSERT_OK(head);
  const auto second = Start(Options());
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(GetReason(second.status()), "locked");
}

TEST_F(HeadTest, RefusesAnAddressThatIsTaken) {
  const auto head = Start(Options());
  COHORT_ASSERT_OK(head);
  HeadOptions other = Options();
  other.state_dir = dir_.File("other");
  const std::string address = (*head)->address();
  other.address.port = std::stoi(address.substr(address.rfind(':') + 1));
  const auto second = Start(other);
  EXPECT_EQ(GetReason(second.status()), "busy_port");
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
  EXPECT_FALSE(std::filesystem::exists(other.state_dir)) << "nothing is left";
}

// AD-1: one connection asks for all that it can get; another one is answered,
// and what was too much is refused, not kept.
TEST_F(HeadTest, AFloodOnOneConnectionLeavesRoomForOthers) {
  // One connection gets half of the calls that may wait at once.
  constexpr int kPlaces = 5'000;
  constexpr int kTooMany = 1'000;
  const auto head = Start(Options());
  COHORT_ASSERT_OK(head);
  v1::WaitJobRequest wait;
  wait.set_job_id(Submit(**head, "waits").value_or(""));
  const auto credential =
      rpc::Credential::Load(dir_.File("head") + "/credential");
  COHORT_ASSERT_OK(credential);
  const auto flooding = rpc::NewGrpcChannel((*head)->address(), *credential);
  COHORT_ASSERT_OK(flooding);
  ThreadPool pool(1);
  Mutex mutex;
  CondVar changed;
  int answered = 0;
  int refused = 0;
  const auto await_answers = [&](int count) {
    MutexLock lock(mutex);
    while (answered < count) changed.Wait(mutex);
    EXPECT_EQ(refused, kTooMany);
  };
  for (int i = 0; i < kPlaces + kTooMany; ++i) {
    rpc::Call<v1::WaitJobRequest, v1::WaitJobResponse>(
        **flooding, rpc::kWaitJob, wait, {.deadline = absl::Minutes(1)}, pool,
        [&](const absl::StatusOr<v1::WaitJobResponse>& response) {
          MutexLock lock(mutex);
          ++answered;
          if (GetReason(response.status()) == "busy") ++refused;
          changed.Signal();
        });
  }
  await_answers(kTooMany);
  // The others wait for the job's end.
  COHORT_EXPECT_OK(Submit(**head, "of another connection"));
  v1::ListEventsRequest events;  // of the same kind as those that wait
  COHORT_EXPECT_OK(Call(**head, rpc::kListEvents, events));
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(wait.job_id());
  COHORT_EXPECT_OK(Call(**head, rpc::kStopJob, stop));
  await_answers(kPlaces + kTooMany);
}

TEST_F(HeadTest, RefusesADamagedStoreAndNamesIt) {
  COHORT_ASSERT_OK(Start(Options()));
  for (const auto& entry :
       std::filesystem::directory_iterator(dir_.File("head") + "/store")) {
    const std::string name = entry.path().filename();
    if (name.find("MANIFEST") == std::string::npos) continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() / 2);
    std::ofstream(entry.path(), std::ios::app) << std::string(64, 'x');
  }
  const auto head = Start(Options());
  EXPECT_THAT(head, StatusIs(absl::StatusCode::kDataLoss,
                             HasSubstr(dir_.File("head") + "/store")));
}

// All files below the state directory with their bytes, but for the lock's.
std::map<std::string, std::string> BytesOf(const std::string& directory) {
  std::map<std::string, std::string> bytes;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    if (entry.path() == directory + "/LOCK") continue;
    bytes[entry.path()] = *ReadFile(entry.path());
  }
  return bytes;
}

// Workers would follow the higher term and refuse the head that has the port.
TEST_F(HeadTest, APortThatIsTakenChangesNothing) {
  COHORT_ASSERT_OK(Start(Options()));
  HeadOptions other = Options();
  other.state_dir = dir_.File("other");
  const auto taken = Start(other);
  COHORT_ASSERT_OK(taken);
  const auto before = BytesOf(dir_.File("head"));
  HeadOptions options = Options();
  options.http_address = HostPort{.host = "127.0.0.1", .port = 0};
  const std::string address = (*taken)->address();
  options.address.port =
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  EXPECT_EQ(GetReason(Start(options).status()), "busy_port");
  EXPECT_EQ(BytesOf(dir_.File("head")), before);
}

TEST_F(HeadTest, ALostOrDamagedCredentialIsNotMadeAnewUnasked) {
  COHORT_ASSERT_OK(Start(Options()));
  const std::string path = dir_.File("head") + "/credential";
  const auto first = ReadFile(path);
  COHORT_ASSERT_OK(first);
  const auto expect_refused = [&](const std::string& why) {
    const auto before = BytesOf(dir_.File("head"));
    const auto refused = Start(Options());
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr(path), HasSubstr(why),
                                        HasSubstr("--new-credential"))));
    EXPECT_EQ(GetReason(refused.status()), "no_credential");
    EXPECT_EQ(BytesOf(dir_.File("head")), before);
  };
  std::filesystem::remove(path);
  expect_refused("is missing");
  for (const size_t bytes : {0, 16, 31}) {
    COHORT_ASSERT_OK(WriteFileAtomically(path, first->substr(0, bytes), 0600));
    expect_refused("is damaged");
  }
  COHORT_ASSERT_OK(WriteFileAtomically(path, std::string(32, 'o'), 0600));
  expect_refused("is damaged");  // of a release without TLS
  COHORT_ASSERT_OK(
      rpc::Credential::FromBytes(std::string(rpc::Credential::kRankBytes, 'r'))
          ->Save(path));
  expect_refused("is one of a rank");
  for (size_t i = 0; i < 64; i += 9) {
    std::string changed = *first;
    char& digit = changed[std::string("secret ").size() + i];
    digit = digit == '0' ? '1' : '0';
    COHORT_ASSERT_OK(WriteFileAtomically(path, changed, 0600));
    expect_refused("is not the one that was there before");
  }

  COHORT_ASSERT_OK(WriteFileAtomically(path, *first, 0600));
  COHORT_EXPECT_OK(Start(Options()));
  const std::string key_path = dir_.File("head") + "/ca.key";
  const auto key = ReadFile(key_path);
  COHORT_ASSERT_OK(key);
  for (const std::string& other : {std::string(), rpc::NewPrivateKey()}) {
    COHORT_ASSERT_OK(WriteFileAtomically(key_path, other, 0600));
    EXPECT_THAT(
        Start(Options()),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(key_path)));
  }
  std::filesystem::remove(key_path);
  EXPECT_THAT(Start(Options()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("is missing")));
  COHORT_ASSERT_OK(WriteFileAtomically(key_path, *key, 0600));
  HeadOptions plain = Options();
  plain.insecure = true;
  EXPECT_THAT(Start(plain), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("--insecure")));
  std::filesystem::remove(path);
  HeadOptions options = Options();
  options.new_credential = true;
  COHORT_EXPECT_OK(Start(options));
  EXPECT_NE(*ReadFile(path), *first);
  COHORT_EXPECT_OK(Start(Options()));
}

TEST_F(HeadTest, RefusesOptionsThatCannotBe) {
  HeadOptions options = Options();
  options.node_timeout = absl::Milliseconds(1);
  EXPECT_THAT(Start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("--node-timeout")));
  options = Options();
  options.address.host = "0.0.0.0";
  options.insecure = true;
  EXPECT_THAT(Start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("--insecure")));
}

TEST_F(HeadTest, RefusesATmpfsUnlessItIsToldSo) {
  std::string memory = "/dev/shm/cohort-head-test-XXXXXX";
  if (mkdtemp(memory.data()) == nullptr || !*IsTmpfs(memory)) {
    GTEST_SKIP() << "no tmpfs at /dev/shm";
  }
  HeadOptions options = Options();
  options.state_dir = memory;
  options.is_volatile = false;
  EXPECT_THAT(Start(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("--volatile")));
  options.is_volatile = true;
  COHORT_EXPECT_OK(Start(options));
  COHORT_EXPECT_OK(RemoveTree(memory));
}

}  // namespace
}  // namespace cohort::head
