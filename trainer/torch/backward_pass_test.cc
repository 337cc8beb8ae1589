#include "trainer/torch/backward_pass.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/utils.h"

#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"

namespace cohort::torch_adapter {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using trainer::Bucket;

// What a device was told, in order, and when it is over.
struct Told {
  std::vector<size_t> set;
  int64_t stream = 7;
  int looks_until_over = 0;
  int kept = 0;
  bool is_broken = false;
  ManualExecutor time;
};

class FakeMarks final : public DeviceMarks {
 public:
  explicit FakeMarks(Told& told) : told_(told) {}

  std::string device() const override { return "fake:0"; }
  int64_t CurrentStream() const override { return told_.stream; }
  void Set(size_t mark) override { told_.set.push_back(mark); }
  bool IsOver(size_t) const override {
    TORCH_CHECK(!told_.is_broken, "fell off the bus");
    told_.time.AdvanceBy(absl::Seconds(1));
    return told_.looks_until_over-- <= 0;
  }
  std::string OwnerOf(std::byte*) const override { return device(); }
  void Keep(const torch::Tensor&) const override { ++told_.kept; }

 private:
  Told& told_;
};

// Gradients 3, 2 | 1 | 0, as backward makes them.
std::vector<Bucket> ThreeBuckets() {
  std::vector<Bucket> buckets(3);
  buckets[0].slices = {{.gradient = 3}, {.gradient = 2}};
  buckets[1].slices = {{.gradient = 1}};
  buckets[2].slices = {{.gradient = 0}};
  return buckets;
}

class BackwardPassTest : public ::testing::Test {
 protected:
  // What was set since the last call.
  std::vector<size_t> Set() { return std::exchange(told_.set, {}); }

  Told told_;
  BackwardPass pass_{ThreeBuckets(), 4, std::make_unique<FakeMarks>(told_)};
  const DeviceWait wait_ = {.clock = told_.time, .timeout = absl::Minutes(1)};
};

// BP-2
TEST_F(BackwardPassTest, MarksABucketBehindItsLastGradient) {
  for (int round = 0; round < 2; ++round) {
    pass_.Begin();
    pass_.OnGradient(3);
    EXPECT_THAT(Set(), IsEmpty());
    pass_.OnGradient(2);
    EXPECT_THAT(Set(), ElementsAre(0));
    pass_.OnGradient(1);
    EXPECT_THAT(Set(), ElementsAre(1));
    pass_.OnGradient(0);
    EXPECT_THAT(Set(), ElementsAre(2));
    pass_.End();
    EXPECT_THAT(Set(), IsEmpty());
  }
}

// BP-3
TEST_F(BackwardPassTest, TakesGradientsInAnyOrder) {
  pass_.Begin();
  for (const size_t gradient : {0, 2, 1, 3}) pass_.OnGradient(gradient);
  pass_.End();
  EXPECT_THAT(Set(), ElementsAre(2, 1, 0));
}

TEST_F(BackwardPassTest, MarksWhatNoHookToldOfAtTheEnd) {
  pass_.Begin();
  pass_.OnGradient(3);
  pass_.OnGradient(1);
  EXPECT_THAT(Set(), ElementsAre(1));
  pass_.End();
  EXPECT_THAT(Set(), ElementsAre(0, 2));
}

TEST_F(BackwardPassTest, HearsNothingOutsideOfAPass) {
  pass_.OnGradient(1);
  pass_.Begin();
  pass_.End();
  EXPECT_THAT(Set(), ElementsAre(0, 1, 2));
  pass_.OnGradient(1);
  pass_.Begin();
  pass_.Abandon();
  pass_.OnGradient(1);
  EXPECT_THAT(Set(), IsEmpty());
}

// BP-1
TEST_F(BackwardPassTest, MarksAgainBehindALaterWrite) {
  pass_.Begin();
  pass_.OnGradient(1);
  pass_.OnGradient(1);
  EXPECT_THAT(Set(), ElementsAre(1, 1));
  pass_.OnGradient(0);
  pass_.OnLateWrite(0, torch::Tensor());
  EXPECT_EQ(told_.kept, 0);
  pass_.OnLateWrite(3, torch::ones({1}));
  EXPECT_EQ(told_.kept, 1);
  EXPECT_THAT(Set(), ElementsAre(2));
  pass_.End();
  EXPECT_THAT(Set(), ElementsAre(0, 2));
}

// BP-1
TEST_F(BackwardPassTest, MarksAtTheEndWhatComesFromSeveralStreams) {
  pass_.Begin();
  pass_.OnGradient(3);
  told_.stream = 8;
  pass_.OnGradient(2);
  pass_.OnGradient(1);
  EXPECT_THAT(Set(), ElementsAre(1));
  pass_.End();
  EXPECT_THAT(Set(), ElementsAre(0, 2));
}

TEST_F(BackwardPassTest, WaitsUntilTheDeviceIsThere) {
  told_.looks_until_over = 5;
  COHORT_EXPECT_OK(pass_.Await(1, wait_));
  EXPECT_LT(told_.looks_until_over, 0);
}

TEST_F(BackwardPassTest, DoesNotWaitForADeviceForEver) {
  told_.looks_until_over = 1'000'000;
  EXPECT_THAT(pass_.Await(1, wait_),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("fake:0"), HasSubstr("bucket 1 of 3"),
                             HasSubstr("not over after 1m"))));
}

TEST_F(BackwardPassTest, TellsWhatTheDeviceSays) {
  told_.is_broken = true;
  EXPECT_THAT(pass_.Await(0, wait_),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("fake:0: the backward pass, bucket 0 of 3: "
                                 "LibTorch: fell off the bus")));
  EXPECT_THAT(pass_.Settle(wait_),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("fake:0: what was begun before: LibTorch: ")));
}

TEST_F(BackwardPassTest, HearsOfPeersWhileItWaits) {
  told_.looks_until_over = 1'000'000;
  int looks = 0;
  const auto look = [&looks] {
    return ++looks < 3 ? absl::OkStatus()
                       : absl::AbortedError("rank 1 is gone");
  };
  EXPECT_THAT(pass_.Await(1, {told_.time, absl::Minutes(1), look}),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("fake:0: the backward pass, bucket 1 of 3: "
                                 "rank 1 is gone")));
  EXPECT_EQ(looks, 3);
}

// What is over is over, whatever happened to the others.
TEST_F(BackwardPassTest, AsksNobodyWhereNothingIsAwaited) {
  const auto look = [] { return absl::AbortedError("rank 1 is gone"); };
  COHORT_EXPECT_OK(pass_.Await(1, {told_.time, absl::Minutes(1), look}));
}

TEST_F(BackwardPassTest, SettlesBehindAllThatWasBegun) {
  told_.looks_until_over = 5;
  COHORT_EXPECT_OK(pass_.Settle(wait_));
  EXPECT_THAT(Set(), ElementsAre(3)) << "a bucket's mark was moved";
  EXPECT_LT(told_.looks_until_over, 0);
  told_.looks_until_over = 1'000'000;
  EXPECT_THAT(pass_.Settle(wait_),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("fake:0: what was begun before: not over")));
}

// Autograd's threads may be at a pass that failed while the next one begins.
TEST_F(BackwardPassTest, IsNotConfusedByHooksOfAPassThatFailed) {
  std::atomic<bool> is_over = false;
  std::thread late([&] {
    while (!is_over.load()) pass_.OnGradient(3);
  });
  for (int round = 0; round < 1000; ++round) {
    pass_.Begin();
    pass_.Abandon();
  }
  pass_.Begin();
  for (const size_t gradient : {3, 2, 1, 0}) pass_.OnGradient(gradient);
  is_over.store(true);
  late.join();
  const std::vector<size_t> set = Set();
  pass_.OnGradient(3);
  EXPECT_THAT(Set(), ElementsAre(0)) << "the mark stayed behind a later write";
  pass_.End();
  EXPECT_THAT(set, IsSupersetOf({0, 1, 2}));
  EXPECT_THAT(Set(), IsEmpty());
}

}  // namespace
}  // namespace cohort::torch_adapter
