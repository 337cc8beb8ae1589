#include "trainer/loader.h"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/testing/status_matchers.h"

namespace cohort::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

template <typename T>
std::vector<T> Copy(std::span<T> values) {
  return {values.begin(), values.end()};
}

// Counts what is out; may have an end.
class CountingMemory final : public BatchMemory {
 public:
  explicit CountingMemory(int most = 1000) : most_(most) {}

  absl::StatusOr<std::byte*> Allocate(size_t bytes) override {
    MutexLock lock(mutex_);
    if (out_ == most_) return absl::ResourceExhaustedError("no room to pin");
    ++out_;
    ++allocated_;
    return PlainMemory::OfProcess().Allocate(bytes);
  }
  void Free(std::byte* memory) override {
    MutexLock lock(mutex_);
    --out_;
    PlainMemory::OfProcess().Free(memory);
  }

  int out() const {
    MutexLock lock(mutex_);
    return out_;
  }
  int allocated() const {
    MutexLock lock(mutex_);
    return allocated_;
  }

 private:
  const int most_;
  mutable Mutex mutex_;
  int out_ ABSL_GUARDED_BY(mutex_) = 0;
  int allocated_ ABSL_GUARDED_BY(mutex_) = 0;
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
  EXPECT_THAT(Copy((*first)->inputs), ElementsAre(1, 0.5, 3, 0.5, 8, 0.5));
  EXPECT_THAT(Copy((*first)->labels), ElementsAre(10, 30, 80));
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

// LD-2, over many epochs, with a trainer that holds one batch and looks at the
// next.
// On the loader's thread an exception would end the process.
class ThrowingDataset final : public Dataset {
 public:
  int64_t size() const override { return 8; }
  int64_t input_size() const override { return 1; }
  absl::Status Read(std::span<const int64_t> /*ids*/,
                    std::span<float> /*inputs*/,
                    std::span<int64_t> /*labels*/) const override {
    static_cast<void>(std::stoi("no number"));
    return absl::OkStatus();
  }
};

TEST(LoaderTest, TellsWhatTheDatasetThrew) {
  const ThrowingDataset dataset;
  auto loader = Loader::Create(dataset, {.dataset_size = 8}, {.batch_size = 4});
  COHORT_ASSERT_OK(loader);
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  EXPECT_THAT((*loader)->Next(),
              StatusIs(absl::StatusCode::kInternal,
                       ::testing::HasSubstr("the dataset threw: stoi")));
}

TEST(LoaderTest, TakesMemoryForAFewBatchesAndGivesAllOfItBack) {
  const CountingDataset dataset(200);
  CountingMemory memory;
  {
    auto loader =
        Loader::Create(dataset, {.dataset_size = 200},
                       {.batch_size = 8, .prefetch = 3, .memory = &memory});
    COHORT_ASSERT_OK(loader);
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      COHORT_ASSERT_OK((*loader)->StartEpoch(epoch));
      auto held = (*loader)->Next();
      COHORT_ASSERT_OK(held);
      while (held->has_value()) {
        auto next = (*loader)->Next();
        COHORT_ASSERT_OK(next);
        (*loader)->Recycle(**std::move(held));
        held = std::move(next);
      }
    }
    EXPECT_LE(memory.allocated(), 3 + 2);
    EXPECT_EQ(memory.out(), memory.allocated());
  }
  EXPECT_EQ(memory.out(), 0);
}

// LD-3
TEST(LoaderTest, WritesToABatchAgainOnlyAfterItWasRecycled) {
  const CountingDataset dataset(100);
  auto loader = Loader::Create(dataset, {.dataset_size = 100, .shuffle = false},
                               {.batch_size = 4, .prefetch = 2});
  COHORT_ASSERT_OK(loader);
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  auto held = (*loader)->Next();
  COHORT_ASSERT_OK(held);
  const float* const memory = (*held)->inputs.data();
  for (int i = 0; i < 10; ++i) {
    auto other = (*loader)->Next();
    COHORT_ASSERT_OK(other);
    EXPECT_NE((*other)->inputs.data(), memory);
    (*loader)->Recycle(**std::move(other));
  }
  EXPECT_THAT(Copy((*held)->inputs),
              ElementsAre(0, 0.5, 1, 0.5, 2, 0.5, 3, 0.5));
  EXPECT_THAT(Copy((*held)->labels), ElementsAre(0, 10, 20, 30));
}

TEST(LoaderTest, RepeatsTheErrorOfItsMemory) {
  const CountingDataset dataset(100);
  CountingMemory memory(/*most=*/1);
  auto loader = Loader::Create(dataset, {.dataset_size = 100},
                               {.batch_size = 4, .memory = &memory});
  COHORT_ASSERT_OK(loader);
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  auto first = (*loader)->Next();
  COHORT_ASSERT_OK(first);
  const auto full =
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("to pin"));
  EXPECT_THAT((*loader)->Next(), full);
  EXPECT_THAT((*loader)->Next(), full);
}

// LD-1, LD-2
TEST(LoaderTest, ManyWorkersGiveWhatOneGives) {
  const CountingDataset dataset(500);
  CountingMemory memory;
  const SamplerOptions sampler{.dataset_size = 500, .world = 2, .seed = 3};
  auto one = Loader::Create(dataset, sampler, {.batch_size = 4});
  auto many = Loader::Create(
      dataset, sampler,
      {.batch_size = 4, .prefetch = 2, .workers = 4, .memory = &memory});
  COHORT_ASSERT_OK(many);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    COHORT_ASSERT_OK((*one)->StartEpoch(epoch));
    COHORT_ASSERT_OK((*many)->StartEpoch(epoch));
    for (;;) {
      auto expected = (*one)->Next();
      auto got = (*many)->Next();
      COHORT_ASSERT_OK(got);
      ASSERT_EQ(got->has_value(), expected->has_value());
      if (!got->has_value()) break;
      EXPECT_EQ((*got)->ids, (*expected)->ids);
      EXPECT_EQ(Copy((*got)->inputs), Copy((*expected)->inputs));
      EXPECT_EQ((*got)->cursor, (*expected)->cursor);
      EXPECT_EQ((*got)->hash, (*expected)->hash);
      EXPECT_EQ((*got)->last, (*expected)->last);
      (*many)->Recycle(**std::move(got));
      (*one)->Recycle(**std::move(expected));
    }
  }
  EXPECT_LE(memory.allocated(), 2 + 3 + 1);
}

TEST(LoaderTest, AnErrorOfOneWorkerComesBehindTheGoodBatches) {
  const CountingDataset dataset(100, /*broken=*/50);
  auto loader = Loader::Create(dataset, {.dataset_size = 100, .shuffle = false},
                               {.batch_size = 4, .workers = 3});
  COHORT_ASSERT_OK(loader);
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  for (int64_t i = 0; i < 12; ++i) {
    const auto batch = (*loader)->Next();
    COHORT_ASSERT_OK(batch);
    EXPECT_EQ((*batch)->ids[0], 4 * i);
  }
  EXPECT_THAT((*loader)->Next(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT((*loader)->Next(), StatusIs(absl::StatusCode::kDataLoss));
}

// A batch is read while another one's reader waits.
TEST(LoaderTest, WorkersReadAtTheSameTime) {
  // Each pair of readers waits for one another.
  class PairedDataset final : public Dataset {
   public:
    int64_t size() const override { return 8; }
    int64_t input_size() const override { return 1; }
    absl::Status Read(std::span<const int64_t> /*ids*/,
                      std::span<float> /*inputs*/,
                      std::span<int64_t> /*labels*/) const override {
      MutexLock lock(mutex_);
      const int pair = begun_++ / 2;
      changed_.SignalAll();
      while (begun_ < 2 * (pair + 1)) changed_.Wait(mutex_);
      return absl::OkStatus();
    }

   private:
    mutable Mutex mutex_;
    mutable CondVar changed_;
    mutable int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  };
  const PairedDataset dataset;
  auto loader = Loader::Create(dataset, {.dataset_size = 8},
                               {.batch_size = 2, .workers = 2});
  COHORT_ASSERT_OK(loader);
  COHORT_ASSERT_OK((*loader)->StartEpoch(0));
  EXPECT_EQ(Drain(**loader).size(), 8u);
}

TEST(LoaderTest, RefusesWhatMakesNoSense) {
  const CountingDataset dataset(10);
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Loader::Create(dataset, {.dataset_size = 10}, {.batch_size = 0}),
              invalid);
  EXPECT_THAT(Loader::Create(dataset, {.dataset_size = 10}, {.prefetch = 0}),
              invalid);
  EXPECT_THAT(Loader::Create(dataset, {.dataset_size = 10}, {.workers = 0}),
              invalid);
  EXPECT_THAT(Loader::Create(dataset, {.dataset_size = 0}, {}), invalid);
  auto loader = Loader::Create(dataset, {.dataset_size = 10}, {});
  COHORT_ASSERT_OK(loader);
  EXPECT_THAT((*loader)->StartEpoch(0, 11), invalid);
}

}  // namespace
}  // namespace cohort::trainer
