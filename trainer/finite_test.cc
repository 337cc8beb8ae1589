#include "trainer/finite.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "trainer/comm/float16.h"

namespace cohort::trainer {
namespace {

// That each of `bad` is found wherever it stands among `good`.
template <typename T>
void Expect(DType dtype, const std::vector<T>& good,
            const std::vector<T>& bad) {
  constexpr size_t kCount = 9001;  // two blocks and some
  std::vector<T> values;
  for (size_t i = 0; i < kCount; ++i) values.push_back(good[i % good.size()]);
  const std::vector<Buffer> buffers = {{values.data(), 0, dtype},
                                       {values.data(), kCount, dtype}};
  EXPECT_TRUE(AllFinite(buffers));
  for (const T& value : bad) {
    for (const size_t at :
         {size_t{0}, size_t{4095}, size_t{4096}, kCount - 1}) {
      const T before = values[at];
      values[at] = value;
      EXPECT_FALSE(AllFinite(buffers)) << ToString(dtype) << " at " << at;
      values[at] = before;
    }
  }
}

template <typename T>
void ExpectOfFloats(DType dtype) {
  using Limits = std::numeric_limits<T>;
  Expect<T>(dtype,
            {0, -1, Limits::max(), Limits::lowest(), Limits::min(),
             Limits::denorm_min()},
            {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()});
}

TEST(AllFiniteTest, FindsWhatIsNotFinite) {
  ExpectOfFloats<float>(DType::kF32);
  ExpectOfFloats<double>(DType::kF64);
  // Signs, largest, smallest; infinities, a quiet and a signalling NaN.
  Expect<uint16_t>(DType::kF16, {0, 0x8000, 0x7BFF, 0xFBFF, 0x0001, 0x0400},
                   {0x7C00, 0xFC00, 0x7E00, 0x7C01});
  Expect<uint16_t>(DType::kBF16, {0, 0x8000, 0x7F7F, 0xFF7F, 0x0001, 0x0080},
                   {0x7F80, 0xFF80, 0x7FC0, 0x7F81});
  Expect<int32_t>(DType::kI32, {-1, 0x7F800000}, {});
  Expect<int64_t>(DType::kI64, {-1, 0x7FF0000000000000}, {});
}

TEST(AllFiniteTest, HoldsForNothing) { EXPECT_TRUE(AllFinite({})); }

}  // namespace
}  // namespace cohort::trainer
