#include "client/run_file_stream.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

#include "client/cluster.h"
#include "client/testing/fake_head.h"
#include "common/random.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

class RunFileStreamTest : public ::testing::Test {
 protected:
  RunFileStreamTest() : head_(TestSeed()) {
    head_.Start();
    head_.SetFile("data", text_);
  }

  std::unique_ptr<Cluster> Connect() {
    return Cluster::ConnectThrough(head_.Connect(),
                                   {.on_retry = [this](const absl::Status&) {
                                     if (++retries_ == 1 && dead_)
                                       head_.Start();
                                   }});
  }
  absl::Status Read(const std::string& path, absl::Duration timeout) {
    JobFile file;
    file.file.set_path(path);
    return Connect()->ReadFile(
        JobId::New(random_), file,
        [this](absl::string_view bytes) {
          got_.append(bytes.data(), bytes.size());
          return refusal_;
        },
        timeout);
  }

  SeededRandom random_{1};
  const std::string text_ = random_.Bytes(1000);
  client::FakeHead head_;
  std::string got_;
  absl::Status refusal_;
  int retries_ = 0;
  bool dead_ = false;
};

TEST_F(RunFileStreamTest, ReadsAFileInOneStream) {
  COHORT_ASSERT_OK(Read("data", absl::Seconds(30)));
  EXPECT_EQ(got_, text_);
  EXPECT_EQ(retries_, 0);
}

TEST_F(RunFileStreamTest, GoesOnWhereAStreamBroke) {
  head_.BreakLogsAfter(300);
  COHORT_ASSERT_OK(Read("data", absl::Seconds(30)));
  EXPECT_EQ(got_, text_);
  EXPECT_EQ(retries_, 3);
}

TEST_F(RunFileStreamTest, GoesOnWithTheNextHead) {
  dead_ = true;
  head_.Kill();
  COHORT_ASSERT_OK(Read("data", absl::Seconds(30)));
  EXPECT_EQ(got_, text_);
  EXPECT_GE(retries_, 1);
}

TEST_F(RunFileStreamTest, GivesUpWhenNothingCameForSoLong) {
  head_.Kill();
  EXPECT_THAT(Read("data", absl::Milliseconds(200)),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(got_, "");
}

TEST_F(RunFileStreamTest, DoesNotTryAgainWhatIsNotThere) {
  EXPECT_THAT(Read("other", absl::Seconds(30)),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(retries_, 0);
}

TEST_F(RunFileStreamTest, EndsWithTheErrorOfItsSink) {
  head_.BreakLogsAfter(300);
  refusal_ = absl::ResourceExhaustedError("full");
  EXPECT_THAT(Read("data", absl::Seconds(30)),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(got_, text_.substr(0, 300));
  EXPECT_EQ(retries_, 0);
}

}  // namespace
}  // namespace cohort
