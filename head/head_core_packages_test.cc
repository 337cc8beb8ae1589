// Packages at the head: uploaded in pieces, kept for jobs, lost, and removed.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/hash.h"
#include "common/testing/status_matchers.h"
#include "head/testing/head_core_fixture.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

// What a client says to upload one package.
struct Upload {
  explicit Upload(const std::string& content)
      : bytes(content), hash(Sha256::Of(content).bytes()) {
    begin.set_hash(hash);
    begin.set_size_bytes(static_cast<int64_t>(bytes.size()));
    data.set_hash(hash);
    data.set_data(bytes);
    finish.set_hash(hash);
    finish.set_size_bytes(begin.size_bytes());
  }

  std::string bytes;
  std::string hash;
  v1::BeginPackageRequest begin;
  v1::UploadPackageRequest data;
  v1::FinishPackageRequest finish;
};

class HeadCorePackagesTest : public HeadCoreTest {
 protected:
  void Put(const Upload& upload) {
    COHORT_ASSERT_OK(Call(rpc::kBeginPackage, upload.begin));
    COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload.data));
    COHORT_ASSERT_OK(Call(rpc::kFinishPackage, upload.finish));
  }
};

TEST_F(HeadCorePackagesTest, APackageWhoseFileIsGoneIsUploadedAgain) {
  const Upload upload("the bytes of a package");
  for (int round = 0; round < 2; ++round) {
    const auto begun = Call(rpc::kBeginPackage, upload.begin);
    COHORT_ASSERT_OK(begun);
    EXPECT_FALSE(begun->complete());
    EXPECT_EQ(begun->offset(), 0);
    COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload.data));
    COHORT_ASSERT_OK(Call(rpc::kFinishPackage, upload.finish));
    EXPECT_TRUE(Call(rpc::kBeginPackage, upload.begin)->complete());
    packages_.Lose(upload.hash);
  }
  // All came, and the answer to Finish was lost.
  COHORT_ASSERT_OK(Call(rpc::kBeginPackage, upload.begin));
  COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload.data));
  EXPECT_TRUE(Call(rpc::kBeginPackage, upload.begin)->complete());
  EXPECT_TRUE(packages_.Has(upload.hash));
}

TEST_F(HeadCorePackagesTest, TellsOnceThatAPackageIsLostAndTakesItAgain) {
  const Upload upload("the bytes of a package");
  const auto losses = [&] {
    int count = 0;
    const auto events =
        Call(rpc::kListEvents, v1::ListEventsRequest())->events();
    for (const v1::Event& event : events)
      count += event.kind() == "package_lost";
    return count;
  };
  Put(upload);
  packages_.Lose(upload.hash);
  v1::FetchPackageRequest fetch;
  fetch.set_hash(upload.hash);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Call(rpc::kFetchPackage, fetch),
                StatusIs(absl::StatusCode::kNotFound));
  }
  EXPECT_EQ(losses(), 1);
  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->mutable_launch()->set_package_hash(upload.hash);
  EXPECT_THAT(Call(rpc::kSubmitJob, submission),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  Put(upload);
  COHORT_EXPECT_OK(Call(rpc::kSubmitJob, submission));
  COHORT_EXPECT_OK(Call(rpc::kFetchPackage, fetch));
}

// Nobody has asked for its file yet.
TEST_F(HeadCorePackagesTest, AJobWhosePackageIsGoneIsToldToBeSubmittedAgain) {
  const Upload upload("the bytes of a package");
  Put(upload);
  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->mutable_launch()->set_package_hash(upload.hash);
  submission.mutable_spec()->set_hold(true);
  v1::ExplainJobRequest explain;
  explain.set_job_id(Call(rpc::kSubmitJob, submission)->job_id());
  EXPECT_EQ(Call(rpc::kExplainJob, explain)->blockers_size(), 2)
      << "held, and no node is registered";
  packages_.Lose(upload.hash);

  const auto why = Call(rpc::kExplainJob, explain);

  COHORT_ASSERT_OK(why);
  ASSERT_EQ(why->blockers_size(), 3);
  EXPECT_EQ(why->blockers(1).kind(), "package");
  for (const v1::Remedy& change : why->changes()) {
    EXPECT_THAT(change.text(), testing::HasSubstr("submit it again"));
    EXPECT_THAT(change.text(), testing::Not(testing::HasSubstr("release")));
  }
  Put(upload);
  EXPECT_EQ(Call(rpc::kExplainJob, explain)->blockers_size(), 2);
}

TEST_F(HeadCorePackagesTest, TakesAPackageAndKeepsItForTheJobThatNamesIt) {
  Upload upload("the bytes of a package");
  auto begun = Call(rpc::kBeginPackage, upload.begin);
  COHORT_ASSERT_OK(begun);
  EXPECT_EQ(begun->offset(), 0);
  upload.data.set_data(upload.bytes.substr(0, 10));
  COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload.data));

  v1::SubmitJobRequest submission = Submission("r");
  submission.mutable_spec()->mutable_launch()->set_package_hash(upload.hash);
  EXPECT_THAT(Call(rpc::kSubmitJob, submission),
              StatusIs(absl::StatusCode::kFailedPrecondition));

  // The upload goes on where it was, also after a crash.
  Crash();
  Run();
  Start();
  begun = Call(rpc::kBeginPackage, upload.begin);
  EXPECT_EQ(begun->offset(), 10);
  upload.data.set_offset(10);
  upload.data.set_data(upload.bytes.substr(10));
  COHORT_ASSERT_OK(Call(rpc::kUploadPackage, upload.data));
  COHORT_ASSERT_OK(Call(rpc::kFinishPackage, upload.finish));
  EXPECT_TRUE(Call(rpc::kBeginPackage, upload.begin)->complete());
  const auto job = Call(rpc::kSubmitJob, submission);
  COHORT_ASSERT_OK(job);

  v1::FetchPackageRequest fetch;
  fetch.set_hash(upload.hash);
  fetch.set_offset(4);
  const auto fetched = Call(rpc::kFetchPackage, fetch);
  COHORT_ASSERT_OK(fetched);
  EXPECT_EQ(fetched->data(), upload.bytes.substr(4));
  EXPECT_EQ(fetched->size_bytes(), upload.begin.size_bytes());

  Run(absl::Hours(2));
  EXPECT_TRUE(packages_.Has(upload.hash));  // a waiting job pins it
  v1::StopJobRequest stop;
  stop.set_request_id("stop");
  stop.set_job_id(job->job_id());
  COHORT_ASSERT_OK(Call(rpc::kStopJob, stop));
  Run(absl::Hours(2));
  EXPECT_FALSE(packages_.Has(upload.hash));
  EXPECT_THAT(Call(rpc::kFetchPackage, fetch),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::head
