#include "examples/restore.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "trainer/local_session.h"

namespace cohort::examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using trainer::Checkpoint;
using trainer::LocalSession;

class RestoreTest : public ::testing::Test {
 protected:
  // A session that goes on from a checkpoint of step 7.
  void SetUp() override {
    const auto written = trainer::WriteCheckpoint(
        directory_.File("old"), {.step = 7, .data_epoch = 2}, {});
    COHORT_ASSERT_OK(written);
    path_ = *written;
    auto session = LocalSession::Create(
        {.storage_path = directory_.File("results"), .restore = path_});
    COHORT_ASSERT_OK(session);
    session_ = *std::move(session);
  }

  TempDir directory_;
  std::string path_;
  std::unique_ptr<LocalSession> session_;
};

TEST_F(RestoreTest, GivesTheCheckpointAndSaysSo) {
  int64_t step = 0;
  testing::internal::CaptureStdout();
  COHORT_EXPECT_OK(RestoreRun(*session_, [&](const Checkpoint& checkpoint) {
    step = checkpoint.manifest.step;
    return absl::OkStatus();
  }));
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "going on from step 7 in epoch 3: " + path_ + "\n");
  EXPECT_EQ(step, 7);
}

TEST_F(RestoreTest, NamesTheCheckpointThatIsRefused) {
  EXPECT_THAT(RestoreRun(*session_,
                         [](const Checkpoint&) {
                           return absl::InvalidArgumentError("of another run");
                         }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path_), HasSubstr("of another run"))));
}

TEST_F(RestoreTest, SaysWhatToDoWhenTheNodeDoesNotSeeIt) {
  std::filesystem::remove_all(path_);
  EXPECT_THAT(
      RestoreRun(*session_, [](const Checkpoint&) { return absl::OkStatus(); }),
      StatusIs(absl::StatusCode::kNotFound,
               StartsWith("every node of the gang must see --storage-path")));
}

TEST_F(RestoreTest, HasNothingToDoFromTheStart) {
  const auto session =
      LocalSession::Create({.storage_path = directory_.File("results")});
  COHORT_ASSERT_OK(session);
  COHORT_EXPECT_OK(RestoreRun(**session, [](const Checkpoint&) {
    return absl::InternalError("there is none");
  }));
}

}  // namespace
}  // namespace cohort::examples
