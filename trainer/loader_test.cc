#include "trainer/loader.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::trainer {
namespace {

using ::testing::ElementsAre;

// Input and label say which sample they are; one id may be broken.
class CountingDataset final : public Dataset {
 public:
  explicit CountingDataset(int64_t size, int64_t broken = -1)
      : size_(size), broken_(broken) {}

  int64_t size() const override { return size_; }
  int64_t input_size() const override { return 2; }
  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == broken_) return absl::DataLossError("sample is broken");
      inputs[2 * i] = static_cast<float>(ids[i]);
      inputs[2 * i + 1] = 0.5f;
      labels[i] = ids[i] * 10;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const int64_t broken_;
};

std::vector<int64_t> Drain(Loader& loader) {
  std::vector<int64_t> ids;
  for (;;) {
    auto batch = loader.Next();
    EXPECT_THAT(batch, IsOk());
    if (!batch.ok() || !batch->has_value()) return ids;
    ids.insert(ids.end(), (*batch)->ids.begin(), (*batch)->ids.end());
    loader.Recycle(**std::move(batch));
  }
}

TEST(LoaderTest, GivesTheSamplersOrderWithItsData) {
  const CountingDataset dataset(10);
  auto loader = Loader::Create(
      dataset, {.dataset_size = 10, .world = 3, .rank = 1}, {.batch_size = 3});
  COHORT_ASSERT_OK(loader);
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  EXPECT_EQ((*loader)->epoch_size(), 12);
  auto first = (*loader)->Next();
  COHORT_ASSERT_OK(first);
  ASSERT_TRUE(first->has_value());
  EXPECT_THAT((*first)->ids, ElementsAre(1, 3, 8));  // PyTorch's
  EXPECT_THAT((*first)->inputs, ElementsAre(1, 0.5, 3, 0.5, 8, 0.5));
  EXPECT_THAT((*first)->labels, ElementsAre(10, 30, 80));
  EXPECT_EQ((*first)->cursor, 9);
  EXPECT_FALSE((*first)->last);
  auto second = (*loader)->Next();
  COHORT_ASSERT_OK(second);
  EXPECT_THAT((*second)->ids, ElementsAre(4));
  EXPECT_TRUE((*second)->last);
  EXPECT_EQ((*loader)->Next()->has_value(), false);
  EXPECT_EQ((*loader)->Next()->has_value(), false);
}

// LD-1
TEST(LoaderTest, GoesOnFromTheCursorOfADeliveredBatch) {
  const CountingDataset dataset(101);
  const SamplerOptions sampler{.dataset_size = 101, .world = 2, .seed = 5};
  auto whole = Loader::Create(dataset, sampler, {.batch_size = 8});
  COHORT_ASSERT_OK((*whole)->StartEpoch(3));
  for (int taken = 0; taken < 4; ++taken) {
    auto batch = (*whole)->Next();
    COHORT_ASSERT_OK(batch);
    const int64_t cursor = (*batch)->cursor;
    const uint64_t hash = (*batch)->hash;
    auto resumed = Loader::Create(dataset, sampler, {.batch_size = 8});
    COHORT_ASSERT_OK((*resumed)->StartEpoch(3, cursor));
    auto original = Loader::Create(dataset, sampler, {.batch_size = 8});
    COHORT_ASSERT_OK((*original)->StartEpoch(3));
    uint64_t at = 0;
    while (at != hash) at = (*(*original)->Next())->hash;
    EXPECT_EQ(Drain(**resumed), Drain(**original));
  }
}

TEST(LoaderTest, StartsAnotherEpochInTheMiddleOfOne) {
  const CountingDataset dataset(1000);
  const SamplerOptions sampler{.dataset_size = 1000};
  auto loader = Loader::Create(dataset, sampler, {.batch_size = 7});
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  COHORT_ASSERT_OK((*loader)->Next());
  COHORT_ASSERT_OK((*loader)->StartEpoch(1));
  auto other = Loader::Create(dataset, sampler, {.batch_size = 1000});
  COHORT_ASSERT_OK((*other)->StartEpoch(1));
  EXPECT_EQ(Drain(**loader), Drain(**other));
}

TEST(LoaderTest, RepeatsTheDatasetsErrorBehindTheGoodBatches) {
  const CountingDataset dataset(10, /*broken=*/6);
  auto loader = Loader::Create(dataset, {.dataset_size = 10, .shuffle = false},
                               {.batch_size = 4});
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  COHORT_EXPECT_OK((*loader)->Next());
  EXPECT_THAT((*loader)->Next(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT((*loader)->Next(), StatusIs(absl::StatusCode::kDataLoss));
  COHORT_ASSERT_OK((*loader)->StartEpoch(0, 8));  // behind the broken one
  COHORT_EXPECT_OK((*loader)->Next());
}

TEST(LoaderTest, RefusesWhatMakesNoSense) {
  const CountingDataset dataset(10);
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Loader::Create(dataset, {.dataset_size = 10}, {.batch_size = 0}),
              invalid);
  EXPECT_THAT(Loader::Create(dataset, {.dataset_size = 10}, {.prefetch = 0}),
              invalid);
  EXPECT_THAT(Loader::Create(dataset, {.dataset_size = 0}, {}), invalid);
  auto loader = Loader::Create(dataset, {.dataset_size = 10}, {});
  COHORT_ASSERT_OK(loader);
  EXPECT_THAT((*loader)->StartEpoch(0, 11), invalid);
}

}  // namespace
}  // namespace cohort::trainer
