#include "actor/state_keeper.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::state_keeper_test {

using ::testing::UnorderedElementsAre;

class Tally {
 public:
  int Add(int n) { return value_ += n; }
  std::vector<int> Save() const { return {value_}; }
  absl::Status Restore(const std::vector<int>& state) {
    if (state.empty()) return absl::DataLossError("no number");
    value_ = state[0];
    return absl::OkStatus();
  }

 private:
  int value_ = 0;
};

class Large {
 public:
  explicit Large(size_t bytes) : bytes_(bytes) {}
  std::string Save() { return std::string(bytes_, 'x'); }
  void Restore(absl::string_view state) { bytes_ = state.size(); }

 private:
  size_t bytes_;
};

// An incarnation of a tally.
struct Incarnation {
  Incarnation(const std::string& directory, int slot, uint64_t incarnation)
      : keeper(instance, directory, slot, incarnation) {}

  int Add(int n) {
    const auto method = actor::AutoMethod<Tally, &Tally::Add>::Name();
    (void)&actor::AutoMethod<Tally, &Tally::Add>::kRegistered;
    return *DecodeValue<int>(*instance.Invoke(method, *EncodeValue(n)));
  }

  actor::Instance instance =
      *actor::Instance::Construct(actor::EncodeConstructor<Tally>().name, "");
  actor::StateKeeper keeper;
};

class StateKeeperTest : public ::testing::Test {
 protected:
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& each : std::filesystem::directory_iterator(state_)) {
      names.push_back(each.path().filename());
    }
    return names;
  }

  const TempDir dir_;
  const std::string state_ = absl::StrCat(dir_.path(), "/job/state");
};

TEST_F(StateKeeperTest, TheNextIncarnationBeginsWithIt) {
  Incarnation first(state_, 0, 1);
  COHORT_ASSERT_OK(first.keeper.Restore());
  EXPECT_EQ(first.Add(5), 5);
  COHORT_ASSERT_OK(first.keeper.Save());
  first.Add(100);

  Incarnation second(state_, 0, 2);
  COHORT_ASSERT_OK(second.keeper.Restore());
  EXPECT_EQ(second.Add(1), 6);
  Incarnation other(state_, 1, 2);
  COHORT_ASSERT_OK(other.keeper.Restore());
  EXPECT_EQ(other.Add(1), 1);
  // Not saved: it is as it was.
  Incarnation third(state_, 0, 5);
  COHORT_ASSERT_OK(third.keeper.Restore());
  EXPECT_EQ(third.Add(1), 6);
}

TEST_F(StateKeeperTest, WhatAFormerIncarnationSavesLateCountsForNothing) {
  Incarnation first(state_, 0, 1);
  first.Add(1);
  COHORT_ASSERT_OK(first.keeper.Save());
  Incarnation second(state_, 0, 2);
  COHORT_ASSERT_OK(second.keeper.Restore());
  first.Add(100);
  COHORT_ASSERT_OK(first.keeper.Save());

  Incarnation third(state_, 0, 3);
  COHORT_ASSERT_OK(third.keeper.Restore());
  EXPECT_EQ(third.Add(0), 1);
  EXPECT_THAT(Files(), UnorderedElementsAre("0.3"));
}

TEST_F(StateKeeperTest, AStateThatComesAfterTheNextHasBegunWithNone) {
  Incarnation first(state_, 0, 1);
  first.Add(1);
  Incarnation second(state_, 0, 2);
  COHORT_ASSERT_OK(second.keeper.Restore());
  COHORT_ASSERT_OK(first.keeper.Save());

  Incarnation third(state_, 0, 3);
  COHORT_ASSERT_OK(third.keeper.Restore());
  EXPECT_EQ(third.Add(7), 7);
  EXPECT_THAT(Files(), UnorderedElementsAre("0.3.claim"));
  // What one with a claim saves counts.
  COHORT_ASSERT_OK(third.keeper.Save());
  Incarnation fourth(state_, 0, 4);
  COHORT_ASSERT_OK(fourth.keeper.Restore());
  EXPECT_EQ(fourth.Add(0), 7);
  EXPECT_THAT(Files(), UnorderedElementsAre("0.4"));
}

TEST_F(StateKeeperTest, WhatWasHalfWrittenGoes) {
  Incarnation first(state_, 0, 1);
  first.Add(1);
  COHORT_ASSERT_OK(first.keeper.Save());
  std::ofstream(state_ + "/0.1.tmp.a8dR2x") << "half";
  std::ofstream(state_ + "/10.1.tmp.a8dR2x") << "of another";
  Incarnation second(state_, 0, 2);
  COHORT_ASSERT_OK(second.keeper.Restore());
  EXPECT_EQ(second.Add(0), 1);
  EXPECT_THAT(Files(), UnorderedElementsAre("0.2", "10.1.tmp.a8dR2x"));
}

TEST_F(StateKeeperTest, SaysWhyAStateCannotBeRestored) {
  Incarnation first(state_, 0, 1);
  COHORT_ASSERT_OK(first.keeper.Save());
  std::ofstream(state_ + "/0.1") << "garbage";
  Incarnation second(state_, 0, 2);
  EXPECT_THAT(second.keeper.Restore(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  std::ofstream(state_ + "/0.2") << *EncodeValue(std::vector<int>());
  Incarnation third(state_, 0, 3);
  EXPECT_THAT(third.keeper.Restore(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(StateKeeperTest, RefusesWhatIsTooLarge) {
  for (const size_t bytes : {size_t{1}, actor::StateKeeper::kBytesMax}) {
    const actor::ConstructorCall call = actor::EncodeConstructor<Large>(bytes);
    actor::Instance instance =
        *actor::Instance::Construct(call.name, *call.arguments);
    actor::StateKeeper keeper(instance, state_, 0, 1);
    const absl::Status saved = keeper.Save();
    EXPECT_EQ(GetReason(saved), bytes == 1 ? "" : kReasonTooLarge) << saved;
  }
  // The former one is there yet.
  const actor::ConstructorCall call = actor::EncodeConstructor<Large>(7);
  actor::Instance instance =
      *actor::Instance::Construct(call.name, *call.arguments);
  actor::StateKeeper next(instance, state_, 0, 2);
  COHORT_ASSERT_OK(next.Restore());
  EXPECT_EQ(*DecodeValue<std::string>(*instance.Save()), "x");
}

}  // namespace cohort::state_keeper_test
