#include "actor/group.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::group_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Worker {
 public:
  explicit Worker(int rank) : rank_(rank) {}
  int Scaled(int by) const { return rank_ * by; }
  std::string Name() const { return "w" + std::to_string(rank_); }
  void Reset() { rank_ = 0; }

 private:
  int rank_;
};

// Of the user's own.
struct Last {
  int operator()(int /*a*/, int b) const { return b; }
};

// Ranks in this process, called one after the other.
class LocalRanks final : public actor::GroupTarget,
                         public std::enable_shared_from_this<LocalRanks> {
 public:
  explicit LocalRanks(int count) {
    for (int rank = 0; rank < count; ++rank) {
      const actor::ConstructorCall call =
          actor::EncodeConstructor<Worker>(rank);
      ranks_.push_back(*actor::Instance::Construct(call.name, *call.arguments));
    }
  }

  std::shared_ptr<actor::CallTarget> Rank(int rank) override {
    return std::make_shared<Target>(*this, std::vector<int>{rank}, nullptr);
  }
  std::shared_ptr<actor::CallTarget> Slice(std::vector<int> ranks,
                                           const char* reducer) override {
    return std::make_shared<Target>(*this, std::move(ranks), reducer);
  }

 private:
  class Target final : public actor::CallTarget {
   public:
    Target(LocalRanks& all, std::vector<int> ranks, const char* reducer)
        : all_(all), ranks_(std::move(ranks)), reducer_(reducer) {}

    uint64_t Call(actor::CalledMethod method, std::string arguments,
                  Done done) override {
      std::vector<std::string> values;
      for (const int rank : ranks_) {
        values.push_back(*all_.ranks_[static_cast<size_t>(rank)].Invoke(
            method.name, arguments));
      }
      if (reducer_ == nullptr) {
        std::move(done)(values.front());
      } else if (*reducer_ == '\0') {
        std::move(done)(EncodeValue(values));
      } else {
        std::string one = values.front();
        for (size_t i = 1; i < values.size(); ++i) {
          one = *actor::Reduced(reducer_, one, values[i]);
        }
        std::move(done)(one);
      }
      return 0;
    }
    void Cancel(uint64_t /*call*/) override {}

   private:
    LocalRanks& all_;
    const std::vector<int> ranks_;
    const char* const reducer_;
  };

  std::vector<actor::Instance> ranks_;
};

class GroupTest : public ::testing::Test {
 protected:
  const std::shared_ptr<LocalRanks> ranks_ = std::make_shared<LocalRanks>(6);
  const Group<Worker> group_{ranks_, JobId(),
                             *actor::Grid::Make({{"hosts", 2}, {"gpus", 3}})};
};

TEST_F(GroupTest, CallsAllInTheOrderOfRanks) {
  EXPECT_THAT(group_.Call<&Worker::Scaled>(2).Get(),
              IsOkAndHolds(ElementsAre(0, 2, 4, 6, 8, 10)));
  const Future<void> reset = group_.Call<&Worker::Reset>();
  COHORT_EXPECT_OK(reset.Get());
}

TEST_F(GroupTest, CallsSlicesAndSingleRanks) {
  const Group<Worker> some = group_.Slice("hosts", 1).Slice("gpus", 1, 3);
  EXPECT_THAT(some.ranks(), ElementsAre(4, 5));
  EXPECT_THAT(some.Call<&Worker::Name>().Get(),
              IsOkAndHolds(ElementsAre("w4", "w5")));
  EXPECT_THAT(some.at(1).Call<&Worker::Name>().Get(), IsOkAndHolds("w5"));
  EXPECT_THAT(some.at(2).Call<&Worker::Name>().Get(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(GroupTest, Reduces) {
  EXPECT_THAT((group_.Reduce<&Worker::Scaled, Sum>(1).Get()), IsOkAndHolds(15));
  EXPECT_THAT((group_.Reduce<&Worker::Scaled, Min>(-1).Get()),
              IsOkAndHolds(-5));
  EXPECT_THAT((group_.Reduce<&Worker::Scaled, Max>(1).Get()), IsOkAndHolds(5));
  EXPECT_THAT((group_.Reduce<&Worker::Name, Concatenate>().Get()),
              IsOkAndHolds("w0w1w2w3w4w5"));
  EXPECT_THAT((group_.Reduce<&Worker::Scaled, Last>(3).Get()),
              IsOkAndHolds(15));
}

TEST_F(GroupTest, GivesAFutureOfEach) {
  const auto futures = group_.Slice("hosts", 0).CallEach<&Worker::Scaled>(1);
  ASSERT_THAT(futures, SizeIs(3));
  EXPECT_THAT(futures[2].Get(), IsOkAndHolds(2));
}

TEST_F(GroupTest, SaysWhyASliceCannotBe) {
  const Group<Worker> none = group_.Slice("racks", 0);
  EXPECT_EQ(none.size(), 0);
  EXPECT_THAT(
      none.Call<&Worker::Name>().Get(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hosts, gpus")));
  EXPECT_THAT(none.Slice("gpus", 0).Call<&Worker::Reset>().Get(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Group<Worker>().Call<&Worker::Name>().Get(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(none.CallEach<&Worker::Name>(), SizeIs(1));
}

}  // namespace cohort::group_test
