#include "common/resources.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ResourceSet Parse(absl::string_view text) {
  const absl::StatusOr<ResourceSet> set = ParseResources(text);
  EXPECT_THAT(set, IsOk());
  return set.value_or(ResourceSet());
}

TEST(AmountTest, IsExactWhereDoublesAreNot) {
  Amount sum;
  for (int i = 0; i < 10; ++i) sum += *Amount::Parse("0.1");
  EXPECT_EQ(sum, Amount::FromUnits(1));
}

TEST(AmountTest, PrintsAsPeopleWrite) {
  for (const char* text : {"0", "2", "0.5", "1.25", "0.0001", "1000000000"}) {
    EXPECT_EQ(Amount::Parse(text)->ToString(), text);
  }
  EXPECT_EQ((Amount() - *Amount::Parse("0.5")).ToString(), "-0.5");
  EXPECT_EQ((Amount() - *Amount::Parse("1.5")).ToString(), "-1.5");
}

TEST(AmountTest, RefusesWhatIsNoAmount) {
  for (const char* text :
       {"", "-1", "+1", "nan", "inf", "1e3", "0x10", "1.", ".5", "1.00001",
        "1000000001", "99999999999999999999", "1 2", "1,5"}) {
    EXPECT_THAT(Amount::Parse(text), StatusIs(kInvalid)) << text;
  }
}

TEST(AmountTest, FromDoubleRefusesNanNegativeAndAbsurd) {
  for (const double value :
       {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1.1e9,
        0.00001, -0.00001}) {
    EXPECT_THAT(Amount::FromDouble(value), StatusIs(kInvalid)) << value;
  }
  EXPECT_THAT(Amount::FromDouble(0.1 + 0.2),
              IsOkAndHolds(*Amount::Parse("0.3")));
}

TEST(AmountTest, StaysAtTheBoundRatherThanOverflow) {
  const Amount most = Amount::FromUnits(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(most + most, most);
  EXPECT_LT(Amount() - most - most, Amount());
}

TEST(ResourceSetTest, ReadsAndPrints) {
  const ResourceSet set = Parse("GPU=2, CPU=1.5,memory=64GiB,license.a=1");
  EXPECT_EQ(set.ToString(), "CPU 1.5, GPU 2, license.a 1, memory 64GiB");
  EXPECT_EQ(set.Get(kMemory), Amount::FromUnits(int64_t{64} << 30));
  EXPECT_EQ(set.Get("other"), Amount());
  EXPECT_EQ(Parse("").ToString(), "nothing");
}

TEST(ResourceSetTest, DoesNotKeepZero) {
  EXPECT_EQ(Parse("CPU=0"), ResourceSet());
  ResourceSet set = Parse("CPU=1");
  set.Set(kCpu, Amount());
  EXPECT_TRUE(set.empty());
}

TEST(ResourceSetTest, NamesWhatIsWrong) {
  EXPECT_THAT(ParseResources("CPU=-1"),
              StatusIs(kInvalid, HasSubstr("resource CPU: \"-1\"")));
  EXPECT_THAT(ParseResources("memory=lots"),
              StatusIs(kInvalid, HasSubstr("is not a size")));
  EXPECT_THAT(ParseResources("memory=901TB"),
              StatusIs(kInvalid, HasSubstr("resource memory")));
  EXPECT_THAT(ParseResources("9x=1"),
              StatusIs(kInvalid, HasSubstr("\"9x\" is not a resource name")));
  EXPECT_THAT(ParseResources("a=1,a=2"),
              StatusIs(kInvalid, HasSubstr("second value")));
  EXPECT_THAT(ParseResources("CPU"),
              StatusIs(kInvalid, HasSubstr("k=v,k2=v2")));
}

TEST(ResourceSetTest, ValidatesWhatCameFromOutside) {
  ResourceSet set;
  set.Set(kCpu, Amount::FromTenThousandths(-1));
  EXPECT_THAT(set.Validate(), StatusIs(kInvalid, HasSubstr("CPU is -0.0001")));
  set.Set(kCpu, Amount::FromUnits(2'000'000'000));
  EXPECT_THAT(set.Validate(), StatusIs(kInvalid));
  set = ResourceSet();
  set.Set("bad name", Amount::FromUnits(1));
  EXPECT_THAT(set.Validate(), StatusIs(kInvalid));
  set = ResourceSet();
  for (int i = 0; i < 65; ++i) {
    set.Set(absl::StrCat("r", i), Amount::FromUnits(1));
  }
  EXPECT_THAT(set.Validate(), StatusIs(kInvalid));
}

TEST(ResourceSetTest, NamesAreBounded) {
  EXPECT_THAT(ValidateResourceName(std::string(63, 'a')), IsOk());
  EXPECT_THAT(ValidateResourceName(std::string(64, 'a')), StatusIs(kInvalid));
  EXPECT_THAT(ValidateResourceName(""), StatusIs(kInvalid));
}

TEST(ResourceSetTest, TakesOnlyWhatFits) {
  ResourceSet left = Parse("CPU=2,GPU=1");
  EXPECT_FALSE(left.Take(Parse("CPU=1,GPU=1.5")));
  EXPECT_EQ(left, Parse("CPU=2,GPU=1"));
  EXPECT_FALSE(left.Take(Parse("other=1")));
  EXPECT_TRUE(left.Take(Parse("CPU=1.5,GPU=1")));
  EXPECT_EQ(left, Parse("CPU=0.5"));
  EXPECT_EQ(left.Shortfall(Parse("CPU=2,GPU=1")), Parse("CPU=1.5,GPU=1"));
}

TEST(ResourceSetTest, TimesScalesEveryAmount) {
  EXPECT_EQ(Parse("CPU=0.5,GPU=1").Times(4), Parse("CPU=2,GPU=4"));
  EXPECT_EQ(Parse("CPU=0.5").Times(0), ResourceSet());
}

TEST(ResourceSetTest, TakingAndAddingBackChangesNothing) {
  SeededRandom random(TestSeed());
  ResourceSet total;
  for (const char* name : {"CPU", "GPU", "a", "b"}) {
    total.Set(name, Amount::FromTenThousandths(
                        static_cast<int64_t>(random.Below(1'000'000))));
  }
  ResourceSet left = total;
  ResourceSet taken;
  for (int i = 0; i < 1000; ++i) {
    ResourceSet part;
    for (const char* name : {"CPU", "GPU", "a", "b"}) {
      part.Set(name, Amount::FromTenThousandths(
                         static_cast<int64_t>(random.Below(10'000))));
    }
    if (left.Take(part)) taken.Add(part);
  }
  left.Add(taken);
  EXPECT_EQ(left, total);
}

}  // namespace
}  // namespace cohort
