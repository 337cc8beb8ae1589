#include "actor/caller_table.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "actor/call_limits.h"

namespace cohort::actor {
namespace {

v1::ActorResults::Result LargeResult(uint64_t sequence) {
  v1::ActorResults::Result result;
  result.set_sequence(sequence);
  result.set_value(std::string(kResultsKeptBytes / 2, 'x'));
  return result;
}

class CallerTableTest : public ::testing::Test {
 protected:
  CallerTable::Session Open(const std::string& id) {
    return callers_.Open(id, /*unknown=*/0);
  }
  bool Has(const std::string& id) const {
    return callers_.sessions().contains(id);
  }

  CallerTable callers_;
};

TEST_F(CallerTableTest, FindsWhoComesBack) {
  const auto session = Open("a");
  const uint64_t breakage = callers_.Break(session);
  EXPECT_GT(breakage, 0u);
  EXPECT_EQ(Open("a"), session);
  callers_.ForgetUntil(breakage);
  EXPECT_EQ(Open("a"), session);
}

TEST_F(CallerTableTest, ForgetsWhoDoesNot) {
  const auto session = Open("a");
  callers_.ForgetUntil(callers_.Break(session));
  EXPECT_FALSE(Has("a"));
  EXPECT_NE(Open("a"), session);
  // A result that comes late is nobody's.
  callers_.Keep(LargeResult(1), *session);
  EXPECT_EQ(session->record.bytes(), 0u);
}

TEST_F(CallerTableTest, ForgetsWhoSaysSo) {
  const auto session = Open("a");
  callers_.Forget(*session);
  EXPECT_FALSE(Has("a"));
  const auto next = Open("a");
  callers_.Forget(*session);
  EXPECT_TRUE(Has("a"));
}

TEST_F(CallerTableTest, DoesNotRememberWhoHasNoId) {
  EXPECT_EQ(callers_.Break(Open("")), 0u);
  EXPECT_TRUE(callers_.sessions().empty());
}

TEST_F(CallerTableTest, BoundsHowManyItRemembers) {
  const auto stays = Open("stays");
  for (size_t i = 0; i < kRememberedCallers + 5; ++i) {
    callers_.Break(Open(absl::StrCat(i)));
  }
  EXPECT_FALSE(Has("4"));
  EXPECT_TRUE(Has("5"));
  EXPECT_TRUE(Has("stays"));
}

TEST_F(CallerTableTest, BoundsWhatItKeepsForThem) {
  const size_t fit = kRememberedBytes / (kResultsKeptBytes / 2) - 1;
  for (size_t i = 0; i < fit + 1; ++i) {
    const auto session = Open(absl::StrCat(i));
    callers_.Break(session);
    callers_.Keep(LargeResult(1), *session);
  }
  EXPECT_FALSE(Has("0"));
  EXPECT_TRUE(Has("1"));
  // Who comes back frees what was kept.
  Open("1")->record.DropKept();
  const auto next = Open("next");
  callers_.Break(next);
  callers_.Keep(LargeResult(1), *next);
  EXPECT_TRUE(Has("2"));
}

}  // namespace
}  // namespace cohort::actor
