#include "examples/gang_training.h"

#include <iostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::examples {
namespace {

using ::testing::HasSubstr;

struct FakeOptions : SessionOptions {
  bool use_gpu = false;
};

struct FakeDevice {
  absl::Status answer;
};

// Ends as its device answers.
class FakeTraining {
 public:
  FakeTraining(const FakeOptions&, trainer::Session&, FakeDevice& device,
               const Clock&)
      : device_(device) {}
  // As one that a GPU holds.
  ~FakeTraining() { std::cerr << "destroyed" << std::endl; }

  absl::Status Run() { return device_.answer; }

 private:
  FakeDevice& device_;
};

class GangTrainingTest : public ::testing::Test {
 protected:
  absl::Status Train(const absl::Status& answer, bool use_gpu) {
    FakeDevice device{answer};
    FakeOptions options;
    options.use_gpu = use_gpu;
    options.storage_path = directory_.File("results");
    return TrainInGang<FakeTraining>(options, device, "on a fake");
  }

  TempDir directory_;
};
using GangTrainingDeathTest = GangTrainingTest;

TEST_F(GangTrainingDeathTest, EndsOnAGpuThatHangsBeforeAnythingIsDestroyed) {
  const auto hang = [this] {
    static_cast<void>(
        Train(absl::DeadlineExceededError("cuda:0: a pass: not over"), true));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
              "^[^\n]*: cuda:0: a pass: not over\n$");
}

TEST_F(GangTrainingTest, ReturnsEveryOtherError) {
  EXPECT_THAT(Train(absl::DeadlineExceededError("a peer"), false),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "a peer"));
  EXPECT_THAT(Train(absl::InternalError("cuda:0: lost"), true),
              StatusIs(absl::StatusCode::kInternal, "cuda:0: lost"));
}

TEST_F(GangTrainingTest, SaysWhereItTrains) {
  testing::internal::CaptureStdout();
  COHORT_EXPECT_OK(Train(absl::OkStatus(), true));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("training on 1 rank, attempt 1, on a fake\n"));
}

}  // namespace
}  // namespace cohort::examples
