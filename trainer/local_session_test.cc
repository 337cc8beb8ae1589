#include "trainer/local_session.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "trainer/testing/checkpoint_directory.h"

namespace cohort::trainer {
namespace {

using ::testing::HasSubstr;

TEST(LocalSessionTest, IsAGangOfOneWithADirectoryOfItsOwn) {
  TempDir directory;
  const LocalSessionOptions options{.storage_path = directory.File("results")};
  auto first = LocalSession::Create(options);
  auto second = LocalSession::Create(options);
  COHORT_ASSERT_OK(first);
  COHORT_ASSERT_OK(second);
  EXPECT_EQ((*first)->world(), 1);
  EXPECT_TRUE((*first)->is_lead());
  EXPECT_EQ((*first)->place().checkpoint_root,
            directory.File("results/local/attempt-1.1"));
  EXPECT_EQ((*second)->place().checkpoint_root,
            directory.File("results/local/attempt-2.1"));
  EXPECT_FALSE((*first)->place().restore.has_value());
}

TEST(LocalSessionTest, ItsCommunicatorReducesNothingAndGivesAlignedMemory) {
  TempDir directory;
  auto session = LocalSession::Create({.storage_path = directory.path()});
  COHORT_ASSERT_OK(session);
  Comm& comm = (*session)->comm();
  std::vector<float> values{1, 2, 3};
  COHORT_EXPECT_OK(comm.AllReduce(Buffer::Of(std::span(values)),
                                  ReduceOp::kAverage, absl::Seconds(1)));
  EXPECT_THAT(values, ::testing::ElementsAre(1, 2, 3));
  COHORT_EXPECT_OK(comm.Barrier(absl::Seconds(1)));
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{1000}}) {
    const auto memory = comm.Allocate(bytes);
    COHORT_ASSERT_OK(memory);
    EXPECT_EQ(memory->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 64, 0u);
  }
}

TEST(LocalSessionTest, RestoresFromTheCheckpointItIsGiven) {
  TempDir directory;
  auto first = LocalSession::Create({.storage_path = directory.path()});
  COHORT_ASSERT_OK(first);
  const auto path = WriteCheckpoint((*first)->place().checkpoint_root,
                                    {.epoch = 1, .step = 40}, {});
  COHORT_ASSERT_OK(path);
  COHORT_ASSERT_OK((*first)->CommitCheckpoint(*path, 40, std::nullopt));
  EXPECT_EQ((*first)->committed()->path, *path);

  auto second = LocalSession::Create(
      {.storage_path = directory.path(), .restore = *path});
  COHORT_ASSERT_OK(second);
  ASSERT_TRUE((*second)->place().restore.has_value());
  EXPECT_EQ((*second)->place().restore->step, 40);
  EXPECT_EQ((*second)->place().restore->path, *path);
}

TEST(LocalSessionTest, RefusesWhatAGangWouldRefuse) {
  TempDir directory;
  auto session = LocalSession::Create({.storage_path = directory.path()});
  COHORT_ASSERT_OK(session);
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      (*session)->CommitCheckpoint("/elsewhere/step-1", 1, std::nullopt),
      invalid);
  EXPECT_THAT((*session)->Report(std::string(kMetricsBytesMax + 1, 'x')),
              invalid);
  COHORT_EXPECT_OK((*session)->Report(R"({"loss":1})"));
  EXPECT_EQ((*session)->metrics(), R"({"loss":1})");
  EXPECT_THAT(LocalSession::Create({.storage_path = directory.path(),
                                    .restore = directory.File("step-9")}),
              invalid);
  std::ofstream(directory.File("file")) << "in the way";
  EXPECT_THAT(LocalSession::Create({.storage_path = directory.File("file")})
                  .status()
                  .message(),
              HasSubstr(directory.File("file")));
}

TEST(LocalSessionTest, NamesTheDirectoryThatCannotBeMade) {
  // There mkdir says ENOENT although the parent is there.
  EXPECT_THAT(LocalSession::Create({.storage_path = "/proc/x"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/proc/x")));
}

}  // namespace
}  // namespace cohort::trainer
