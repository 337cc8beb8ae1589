#include "trainer/comm/reduce_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace cohort::trainer {
namespace {

bool Contains(std::span<const std::byte> image, const std::string& name) {
  // With its end: "..._f32_sum" is not a prefix of another name.
  const auto* const bytes = reinterpret_cast<const std::byte*>(name.c_str());
  return std::search(image.begin(), image.end(), bytes,
                     bytes + name.size() + 1) != image.end();
}

// Without nvcc there are none, and that is said where they are asked for.
TEST(ReduceKernelsTest, AreAllInTheImage) {
  const std::span<const std::byte> image = ReduceKernels();
  if (image.empty()) GTEST_SKIP() << "built without nvcc";
  uint32_t magic = 0;  // Of a fat binary, as cuModuleLoadData takes it.
  ASSERT_GE(image.size(), sizeof(magic));
  std::memcpy(&magic, image.data(), sizeof(magic));
  EXPECT_EQ(magic, 0xBA55ED50u);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI64,
                            DType::kF16, DType::kBF16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      EXPECT_TRUE(Contains(image, ReduceKernelName(dtype, op)))
          << ReduceKernelName(dtype, op);
    }
  }
}

}  // namespace
}  // namespace cohort::trainer
