// Secrets of jobs: sealed in the store, open where a worker launches
// (docs/security.md).

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"

#include "common/secret_box.h"
#include "head/testing/head_core_fixture.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

class HeadCoreSecretsTest : public HeadCoreTest {
 protected:
  // A head with the key of 64 times that digit.
  void StartWith(char key) {
    Crash();
    box_ = std::make_shared<const SecretBox>(
        *SecretBox::FromText(std::string(64, key)));
    Start();
  }
  std::string SubmitWithSecret() {
    v1::SubmitJobRequest request = Submission("one");
    (*request.mutable_spec()->mutable_launch()->mutable_secrets())["KEY"] =
        "sesame";
    const auto response = Call(rpc::kSubmitJob, request);
    EXPECT_THAT(response, IsOk());
    // The same request, whatever it is sealed as.
    EXPECT_EQ(Call(rpc::kSubmitJob, request)->job_id(), response->job_id());
    return response->job_id();
  }
};

TEST_F(HeadCoreSecretsTest, TheStoreHasNoneThatIsOpen) {
  StartWith('1');
  SubmitWithSecret();
  const auto worker = Open(Registration(node_));
  EXPECT_EQ(RunJob(*worker).launch().secrets().at("KEY"), "sesame");
  for (const ::cohort::head::Write& row : CopyStore()) {
    EXPECT_FALSE(absl::StrContains(row.value.value_or(""), "sesame"))
        << TableName(row.table);
  }
}

TEST_F(HeadCoreSecretsTest, AJobOfAnotherKeyWaits) {
  StartWith('1');
  const std::string job = SubmitWithSecret();
  StartWith('2');
  auto worker = Open(Registration(node_));
  Run(absl::Seconds(1));
  EXPECT_TRUE(worker->Desired().empty());
  EXPECT_EQ(Get(job).state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(Get(job).reason(), HasSubstr("its secrets"));
  StartWith('1');
  worker = Open(Registration(node_));
  EXPECT_EQ(RunJob(*worker).launch().secrets().at("KEY"), "sesame");
}

TEST_F(HeadCoreSecretsTest, WhatRunsGoesOnAndIsNotLaunchedAgain) {
  StartWith('1');
  const std::string job = SubmitWithSecret();
  auto worker = Open(Registration(node_));
  const v1::DesiredPlace place = RunJob(*worker);
  StartWith('2');
  v1::WorkerMessage registration = Registration(node_);
  *registration.mutable_register_()->mutable_observed()->add_places() =
      At(place, Stage::kRunning);
  worker = Open(registration);
  const v1::DesiredPlace again = worker->Desired().at(0);
  EXPECT_EQ(again.attempt_id(), place.attempt_id());
  EXPECT_FALSE(again.has_launch());
  EXPECT_EQ(Get(job).state(), v1::JOB_STATE_RUNNING);
  Say(*worker, Exited(place, 0));
  EXPECT_EQ(Get(job).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace cohort::head
