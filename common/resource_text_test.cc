#include "common/resource_text.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(ResourceTextTest, OnlyMemoryIsRounded) {
  const Amount odd = Amount::FromUnits((int64_t{64} << 30) + (10 << 20));
  EXPECT_EQ(
      AmountText(kCpu, Amount::FromTenThousandths(12'500), SizeRounding::kUp),
      "1.25");
  EXPECT_EQ(AmountText(kMemory, odd), "64GiB");
  EXPECT_EQ(AmountText(kMemory, odd, SizeRounding::kUp), "64.1GiB");
  EXPECT_EQ(AmountText(kMemory, odd, SizeRounding::kNone), "65546MiB");
  EXPECT_EQ(AmountText(kMemory, Amount(), SizeRounding::kUp), "0");
}

TEST(ResourceTextTest, APartOfAByteIsOneMoreWhenRoundedUp) {
  const Amount part = Amount::FromTenThousandths(10'001);
  EXPECT_EQ(AmountText(kMemory, part, SizeRounding::kUp), "2B");
  EXPECT_EQ(AmountText(kMemory, part, SizeRounding::kDown), "1B");
}

TEST(ResourceTextTest, SetsAreWrittenAsTheyAreElsewhere) {
  EXPECT_EQ(ResourcesText(ResourceSet(), SizeRounding::kNone), "nothing");
  const ResourceSet set = *ParseResources("GPU=2,CPU=1.5,memory=1073741825");
  EXPECT_EQ(ResourcesText(set, SizeRounding::kNearest), set.ToString());
  EXPECT_EQ(ResourcesText(set, SizeRounding::kNone),
            "CPU 1.5, GPU 2, memory 1073741825B");
}

}  // namespace
}  // namespace cohort
