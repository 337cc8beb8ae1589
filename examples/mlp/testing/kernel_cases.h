#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "examples/mlp/device.h"
#include "trainer/comm/float16.h"

namespace cohort::mlp {

// Runs every kernel on a device over sizes with and without tails and gives all
// the bytes that came out, for comparing devices bit by bit.
class KernelCases {
 public:
  KernelCases(Device& device, trainer::DType dtype)
      : device_(device), dtype_(dtype) {}

  // By a name for the case.
  std::vector<std::pair<std::string, std::vector<std::byte>>> Run() {
    for (const uint32_t m : {1u, 32u, 67u}) {
      for (const uint32_t n : {1u, 10u, 96u}) {
        for (const uint32_t depth : {1u, 31u, 64u, 100u}) {
          RunProducts(m, n, depth);
        }
      }
    }
    for (const uint32_t rows : {1u, 33u, 300u}) {
      RunColumnSum(rows, 70);
      RunSoftmax(rows, 10);
    }
    for (const uint64_t count : {1u, 255u, 1000u}) {
      RunAdam(count);
      RunNonFinite(count);
      RunRound(count);
    }
    return std::move(results_);
  }

 private:
  void RunProducts(uint32_t m, uint32_t n, uint32_t depth) {
    std::byte* const a = Values(size_t{m} * depth);
    std::byte* const b = Values(size_t{depth} * n);
    std::byte* const bias = Values(n);
    std::byte* const mask = Values(size_t{m} * n);
    std::byte* const c = Values(size_t{m} * n);
    const auto run = [&](const char* name, ProductArgs args) {
      args.c = c;
      args.m = m;
      args.n = n;
      args.depth = depth;
      COHORT_ASSERT_OK(device_.Launch(dtype_, args));
      Keep(absl::StrCat(name, " ", m, "x", n, "x", depth), c,
           size_t{m} * n * SizeOf(dtype_));
    };
    // As forward has it, as weights' gradients, as inputs' gradients.
    run("forward", {.a = {a, depth, 1},
                    .b = {b, 1, depth},
                    .bias = bias,
                    .mask = nullptr,
                    .is_rectified = 1});
    run("weights", {.a = {a, 1, m}, .b = {b, n, 1}});
    run("inputs", {.a = {a, depth, 1}, .b = {b, n, 1}, .mask = mask});
  }

  void RunColumnSum(uint32_t rows, uint32_t columns) {
    std::byte* const sums = Values(columns);
    COHORT_ASSERT_OK(device_.Launch(
        dtype_, ColumnSumArgs{.values = Values(size_t{rows} * columns),
                              .sums = sums,
                              .rows = rows,
                              .columns = columns}));
    Keep(absl::StrCat("column sum ", rows), sums, columns * SizeOf(dtype_));
  }

  void RunSoftmax(uint32_t rows, uint32_t classes) {
    std::byte* const gradients = Values(size_t{rows} * classes);
    std::byte* const losses = Allocate(size_t{2} * rows * sizeof(float));
    std::vector<int64_t> labels(rows);
    for (uint32_t i = 0; i < rows; ++i) labels[i] = i % classes;
    COHORT_ASSERT_OK(device_.Launch(
        dtype_, SoftmaxArgs{.logits = Values(size_t{rows} * classes, 20),
                            .labels = reinterpret_cast<const int64_t*>(
                                Put(std::as_bytes(std::span(labels)))),
                            .gradients = gradients,
                            .losses = reinterpret_cast<float*>(losses),
                            .scale = 1024,
                            .rows = rows,
                            .classes = classes}));
    Keep(absl::StrCat("softmax ", rows), gradients,
         size_t{rows} * classes * SizeOf(dtype_));
    Keep(absl::StrCat("losses ", rows), losses,
         size_t{2} * rows * sizeof(float));
  }

  void RunAdam(uint64_t count) {
    std::vector<float> ones(count, 0.25f);
    const auto floats = [&] {
      return reinterpret_cast<float*>(Put(std::as_bytes(std::span(ones))));
    };
    AdamArgs args = {
        .gradients = Values(count),
        .parameters = floats(),
        .exp_avg = floats(),
        .exp_avg_sq = floats(),
        .rounded = dtype_ == trainer::DType::kF32 ? nullptr : Values(count),
        .count = count,
        .gradient_scale = dtype_ == trainer::DType::kF32 ? 1.0f : 0.125f,
        .factors = trainer::AdamFactors<float>({}, 7)};
    COHORT_ASSERT_OK(device_.Launch(dtype_, args));
    for (const float* const floats_of :
         {args.parameters, args.exp_avg, args.exp_avg_sq}) {
      Keep(absl::StrCat("adam ", count),
           reinterpret_cast<const std::byte*>(floats_of),
           count * sizeof(float));
    }
    if (args.rounded == nullptr) return;
    Keep(absl::StrCat("rounded ", count),
         static_cast<const std::byte*>(args.rounded), count * SizeOf(dtype_));
  }

  void RunNonFinite(uint64_t count) {
    std::vector<float> values(count, 1.5f);
    for (int bad = 0; bad < 3; ++bad) {
      if (bad == 1) values.back() = std::numeric_limits<float>::infinity();
      if (bad == 2) values.back() = std::numeric_limits<float>::quiet_NaN();
      std::byte* const found = Allocate(sizeof(uint32_t));
      COHORT_ASSERT_OK(device_.Launch(
          dtype_, NonFiniteArgs{.values = PutRounded(values),
                                .found = reinterpret_cast<uint32_t*>(found),
                                .count = count}));
      Keep(absl::StrCat("non-finite ", count, " ", bad), found,
           sizeof(uint32_t));
    }
  }

  void RunRound(uint64_t count) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = static_cast<float>((2 * random_.Double() - 1) * 1e5);
    }
    values[0] = std::numeric_limits<float>::infinity();
    std::byte* const rounded = Allocate(count * SizeOf(dtype_));
    COHORT_ASSERT_OK(device_.Launch(
        dtype_, RoundArgs{.values = reinterpret_cast<const float*>(
                              Put(std::as_bytes(std::span(values)))),
                          .rounded = rounded,
                          .count = count}));
    Keep(absl::StrCat("round ", count), rounded, count * SizeOf(dtype_));
  }

  std::byte* Allocate(size_t bytes) {
    const auto memory = device_.Allocate(bytes);
    EXPECT_THAT(memory, IsOk());
    return *memory;
  }
  std::byte* Put(std::span<const std::byte> bytes) {
    std::byte* const memory = Allocate(bytes.size());
    EXPECT_THAT(device_.Upload(memory, bytes), IsOk());
    return memory;
  }
  std::byte* PutRounded(const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * SizeOf(dtype_));
    for (size_t i = 0; i < values.size(); ++i) {
      std::byte* const at = bytes.data() + i * SizeOf(dtype_);
      if (dtype_ == trainer::DType::kF32) {
        std::memcpy(at, &values[i], sizeof(float));
      } else if (dtype_ == trainer::DType::kF16) {
        const trainer::Float16 half = trainer::ToFloat16(values[i]);
        std::memcpy(at, &half, sizeof(half));
      } else {
        const trainer::BFloat16 half = trainer::ToBFloat16(values[i]);
        std::memcpy(at, &half, sizeof(half));
      }
    }
    return Put(bytes);
  }
  // Between -limit and limit, the same on every device.
  std::byte* Values(size_t count, double limit = 1) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = static_cast<float>((2 * random_.Double() - 1) * limit);
    }
    return PutRounded(values);
  }

  void Keep(std::string name, const std::byte* from, size_t bytes) {
    std::vector<std::byte> result(bytes);
    COHORT_ASSERT_OK(device_.Download(result, from));
    results_.emplace_back(std::move(name), std::move(result));
  }

  Device& device_;
  const trainer::DType dtype_;
  SeededRandom random_{7};
  std::vector<std::pair<std::string, std::vector<std::byte>>> results_;
};

}  // namespace cohort::mlp
