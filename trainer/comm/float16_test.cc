#include "trainer/comm/float16.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/reduce.h"

namespace cohort::trainer {
namespace {

// By definition, and slowly.
float Slow(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<float>(mantissa), -24);
  }
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

TEST(Float16Test, IsWhatTheStandardSaysForEveryValue) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const Float16 value{static_cast<uint16_t>(bits)};
    const float expected = Slow(value.bits);
    const float got = ToFloat(value);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(got)))) << bits;
      continue;
    }
    ASSERT_EQ(got, expected) << bits;
    ASSERT_EQ(ToFloat16(got).bits, value.bits) << bits;
  }
}

TEST(Float16Test, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(ToFloat16(1.0f + 0x1p-11f).bits, ToFloat16(1.0f).bits) << "tie";
  EXPECT_EQ(ToFloat16(1.0f + 0x3p-11f).bits, ToFloat16(1.0f + 0x4p-11f).bits);
  EXPECT_EQ(ToFloat16(1.0f + 0x1.2p-11f).bits, ToFloat16(1.0f).bits + 1);
  EXPECT_EQ(ToFloat16(0x1p-25f).bits, 0) << "tie to zero";
  EXPECT_EQ(ToFloat16(0x1.2p-25f).bits, 1);
}

TEST(Float16Test, OverflowsToInfinity) {
  EXPECT_EQ(ToFloat16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(ToFloat16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(ToFloat16(-1e30f).bits, 0xFC00);
}

TEST(BFloat16Test, KeepsEveryValueAndRoundsToEven) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const BFloat16 value{static_cast<uint16_t>(bits)};
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(wide)))) << bits;
    } else {
      ASSERT_EQ(ToBFloat16(wide).bits, value.bits) << bits;
    }
  }
  EXPECT_EQ(ToBFloat16(1.0f + 0x1p-8f).bits, ToBFloat16(1.0f).bits) << "tie";
  EXPECT_EQ(ToBFloat16(1.0f + 0x1.2p-8f).bits, ToBFloat16(1.0f).bits + 1);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

// 16-bit floats of `world` ranks, reduced in place.
template <typename T>
std::vector<T> Reduced(std::vector<std::vector<T>> ranks, DType dtype,
                       ReduceOp op) {
  std::vector<std::byte*> memory;
  for (auto& values : ranks) {
    memory.push_back(reinterpret_cast<std::byte*>(values.data()));
  }
  const std::vector<const std::byte*> sources(memory.begin(), memory.end());
  Reduce({.dtype = dtype, .op = op, .sources = sources, .destinations = memory},
         0, ranks[0].size());
  for (const auto& values : ranks) {
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i].bits, ranks[0][i].bits);
    }
  }
  return ranks[0];
}

// 1 + 2^-11 rounds to 1 in binary16; two of them do not.
TEST(ReduceTest, AddsSixteenBitFloatsInF32AndRoundsOnce) {
  const std::vector<Float16> one(2000, ToFloat16(1.0f));
  const std::vector<Float16> small(2000, ToFloat16(0x1p-11f));
  for (const Float16 value :
       Reduced<Float16>({one, small, small}, DType::kF16, ReduceOp::kSum)) {
    ASSERT_EQ(ToFloat(value), 1.0f + 0x1p-10f);
  }
}

TEST(ReduceTest, AveragesSixteenBitFloatsWhoseSumWouldOverflow) {
  const std::vector<Float16> most(5, ToFloat16(65504.0f));
  for (const int world : {2, 3}) {
    const std::vector<std::vector<Float16>> ranks(world, most);
    EXPECT_EQ(Reduced(ranks, DType::kF16, ReduceOp::kAverage)[4].bits, 0x7BFF);
    EXPECT_EQ(Reduced(ranks, DType::kF16, ReduceOp::kSum)[4].bits, 0x7C00);
  }
}

// Whatever the machine converts with.
TEST(ReduceTest, GivesTheBitsOfTheDefinitionForEveryBinary16) {
  std::vector<Float16> a;
  std::vector<Float16> b;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    a.push_back({static_cast<uint16_t>(bits)});
    b.push_back({static_cast<uint16_t>(bits * 40503u)});
  }
  const std::vector<Float16> sums =
      Reduced<Float16>({a, b}, DType::kF16, ReduceOp::kSum);
  for (size_t i = 0; i < a.size(); ++i) {
    const float sum = Slow(a[i].bits) + Slow(b[i].bits);
    // Which of two signs a NaN has is for the machine to say.
    if (std::isnan(sum)) {
      EXPECT_EQ(sums[i].bits & 0x7FFF, 0x7E00) << i;
    } else {
      ASSERT_EQ(sums[i].bits, ToFloat16(sum).bits) << i;
    }
  }
}

TEST(ReduceTest, AMeanIsFiniteWhereItsValuesAre) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const size_t world : {2, 3, 4, 5, 7}) {
    std::vector<std::vector<float>> ranks(world,
                                          std::vector<float>(2000, kMost));
    ranks[0].assign(2000, kMost / 2);
    std::vector<std::byte*> memory;
    for (auto& values : ranks) {
      memory.push_back(reinterpret_cast<std::byte*>(values.data()));
    }
    const std::vector<const std::byte*> sources(memory.begin(), memory.end());
    Reduce({.dtype = DType::kF32,
            .op = ReduceOp::kAverage,
            .sources = sources,
            .destinations = memory},
           0, 2000);
    const double n = static_cast<double>(world);
    EXPECT_FLOAT_EQ(ranks[1][1999],
                    static_cast<float>(kMost * ((n - 0.5) / n)));
  }
}

TEST(ReduceTest, TakesTheLargestAndSmallestBFloat16) {
  const std::vector<BFloat16> a(1500, ToBFloat16(-3.0f));
  const std::vector<BFloat16> b(1500, ToBFloat16(2.5f));
  const std::vector<BFloat16> c(1500, ToBFloat16(0.5f));
  EXPECT_EQ(
      ToFloat(Reduced<BFloat16>({a, b, c}, DType::kBF16, ReduceOp::kMax)[1499]),
      2.5f);
  EXPECT_EQ(ToFloat(Reduced<BFloat16>({a, b}, DType::kBF16, ReduceOp::kMin)[0]),
            -3.0f);
}

}  // namespace
}  // namespace cohort::trainer
