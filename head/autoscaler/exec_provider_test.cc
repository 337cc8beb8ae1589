#include "head/autoscaler/exec_provider.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/latch.h"
#include "common/random.h"
#include "common/strand.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "head/autoscaler/bounded_program.h"
#include "rpc/certificate.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ExecProviderTest : public ::testing::Test {
 protected:
  // A shell script.
  std::string Script(const std::string& body) {
    std::string path = directory_.path() + "/provider";
    std::ofstream(path) << "#!/bin/sh\n" << body;
    chmod(path.c_str(), 0755);
    return path;
  }
  absl::StatusOr<std::string> Run(const std::string& body,
                                  ProgramBounds bounds = {}) {
    return RunProgram({Script(body), "x"}, {"PATH=/usr/bin:/bin"}, bounds,
                      stop_);
  }
  template <typename Result, typename Start>
  Result Wait(Start start) {
    std::optional<Result> got;
    Latch done;
    start([&](Result result) {
      got = std::move(result);
      done.Open();
    });
    done.Wait();
    return *std::move(got);
  }
  rpc::Credential Cluster() {
    return rpc::Credential::FromBytes(random_.Bytes(32))
        ->For(rpc::AuthorityOf(rpc::NewPrivateKey())->certificate);
  }
  LaunchOrder Order() {
    v1::NodeType type;
    type.set_name("gpu");
    *type.mutable_resources() =
        rpc::ToWire(*ParseResources("CPU=2,GPU=1,memory=1GiB,license=3"));
    (*type.mutable_labels())["zone"] = "a";
    type.set_provider_config("{\"a\":1}");
    return {InstanceId::New(random_), type, ClusterId::New(random_)};
  }

  TempDir directory_;
  std::atomic<bool> stop_ = false;
  SeededRandom random_{1};
  ThreadPool pool_{2};
  Strand strand_{pool_};
  const rpc::Credential credential_ = Cluster();
  std::optional<ExecProvider> provider_{
      std::in_place,
      ExecProviderOptions{.program_directory = directory_.path(),
                          .state_dir = "/state",
                          .credential = credential_},
      strand_};

  ~ExecProviderTest() override {
    provider_.reset();
    strand_.Stop();
    pool_.Stop();
  }
};

TEST_F(ExecProviderTest, GivesWhatAProgramWrites) {
  EXPECT_EQ(*Run("echo hello; echo no >&2"), "hello\n");
}

TEST_F(ExecProviderTest, SaysHowAProgramFailed) {
  EXPECT_EQ(Run("echo a >&2; echo quota is spent >&2; exit 3").status(),
            absl::AbortedError("exit status 3: quota is spent"));
  EXPECT_EQ(Run("kill -9 $$").status(),
            absl::AbortedError("ended by signal 9"));
  EXPECT_EQ(RunProgram({"/nothing/there"}, {}, {}, stop_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ExecProviderTest, EndsAProgramThatNeverAnswers) {
  EXPECT_EQ(
      Run("sleep 100", {.timeout = absl::Milliseconds(100)}).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Run("exec yes", {.output_bytes_max = 1 << 20}).status().code(),
            absl::StatusCode::kResourceExhausted);
  stop_ = true;
  EXPECT_EQ(Run("sleep 100").status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ExecProviderTest, WhatAProgramLeavesBehindIsNotWaitedFor) {
  EXPECT_EQ(*Run("sleep 1 & echo done"), "done\n");
}

TEST_F(ExecProviderTest, AProgramHasNoFilesOfTheHead) {
  const int inherited = open("/dev/null", O_RDONLY);
  EXPECT_EQ(*Run(absl::StrCat("test -e /proc/self/fd/", inherited,
                              " && echo it has || echo none")),
            "none\n");
  close(inherited);
}

TEST_F(ExecProviderTest, LaunchesWithTheFlagsOfAWorker) {
  provider_->SetHeadAddress("10.0.0.1:7710");
  const LaunchOrder order = Order();
  const std::string program =
      Script("echo \"$@ $COHORT_ADDRESS $COHORT_PROVIDER_CONFIG\" >" +
             directory_.path() + "/seen; echo '{\"id\": \"i-1\"}'");
  const auto id = Wait<absl::StatusOr<std::string>>(
      [&](auto done) { provider_->Launch(program, order, std::move(done)); });
  EXPECT_EQ(*id, "i-1");
  std::ifstream seen(directory_.path() + "/seen");
  std::string line;
  std::getline(seen, line);
  const std::string key = order.instance.ToHex();
  EXPECT_EQ(line,
            absl::StrCat("launch ", key, " gpu --name gpu-", key.substr(0, 8),
                         " --labels instance=", key,
                         ",node-type=gpu,zone=a --num-cpus 2 --num-gpus 1 "
                         "--memory 1GiB --resources license=3 10.0.0.1:7710 "
                         "{\"a\":1}"));
}

TEST_F(ExecProviderTest, AMachineGetsATokenOfItsOwnAndNotTheClustersSecret) {
  const LaunchOrder order = Order();
  const std::string seen = directory_.path() + "/seen";
  const std::string program =
      Script("env >" + seen + "; echo '{\"id\": \"i\"}'");
  COHORT_ASSERT_OK(Wait<absl::StatusOr<std::string>>(
      [&](auto done) { provider_->Launch(program, order, std::move(done)); }));
  std::ifstream file(seen);
  const std::string variables(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(variables, Not(HasSubstr("COHORT_CREDENTIAL")));
  EXPECT_THAT(variables, Not(HasSubstr(credential_.ToHex())));
  EXPECT_THAT(variables, HasSubstr(absl::StrCat(
                             "COHORT_JOIN_TOKEN=cohort1.",
                             *rpc::FingerprintOf(credential_.authority()), ".",
                             order.instance.ToHex().substr(0, 16), ".")));
}

TEST_F(ExecProviderTest, GarbageIsAnErrorAndNothingElse) {
  for (const char* output :
       {"", "garbage", "[]", "{\"id\": 3}", "{}", "{\"id\": \"a\\nb\"}"}) {
    const auto id = Wait<absl::StatusOr<std::string>>([&](auto done) {
      provider_->Launch(Script(absl::StrCat("printf '%s' '", output, "'")),
                        Order(), std::move(done));
    });
    EXPECT_FALSE(id.ok()) << output;
  }
}

TEST_F(ExecProviderTest, ChecksThatThereIsSuchAProgram) {
  COHORT_EXPECT_OK(provider_->Check(Script("true")));
  EXPECT_THAT(std::string(provider_->Check("nimbus").message()),
              HasSubstr("cohort-provider-nimbus"));
}

TEST(ParseInstancesTest, ReadsStatesAndNotices) {
  const auto instances = ParseInstances(
      R"({"instances": [{"id": "a", "instance":
          "000102030405060708090a0b0c0d0e0f", "state": "pending",
          "reason": "Resources"}, {"id": "b", "state": "failed"},
          {"id": "c", "notice_seconds": 120}]})");
  COHORT_ASSERT_OK(instances);
  ASSERT_EQ(instances->size(), 3u);
  EXPECT_EQ((*instances)[0].instance.ToHex(),
            "000102030405060708090a0b0c0d0e0f");
  EXPECT_EQ((*instances)[0].reason, "Resources");
  EXPECT_TRUE((*instances)[1].failed);
  EXPECT_EQ((*instances)[2].notice, absl::Seconds(120));
}

TEST(ParseInstancesTest, RefusesWhatItDoesNotUnderstand) {
  for (const char* output : {"", "{}", R"({"instances": {}})"}) {
    EXPECT_EQ(ParseInstances(output).status().code(),
              absl::StatusCode::kInvalidArgument)
        << output;
  }
}

TEST(ParseInstancesTest, LeavesOutSingleOnesThatMakeNoSense) {
  for (const char* bad :
       {"1", "{}", R"({"id": ""})", R"({"id": "a", "state": "asleep"})",
        R"({"id": "a", "instance": "xyz"})"}) {
    const auto instances = ParseInstances(
        absl::StrCat(R"({"instances": [)", bad, R"(, {"id": "good"}]})"));
    COHORT_ASSERT_OK(instances);
    ASSERT_EQ(instances->size(), 1u) << bad;
    EXPECT_EQ((*instances)[0].id, "good");
  }
}

}  // namespace
}  // namespace cohort::head
