#include "trainer/adam.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

// torch.optim.Adam([p], lr=0.001), five steps, float64, PyTorch 1.13.
constexpr double kParameters[] = {0.49514916931736014, -1.2450000000250006, 3.0,
                                  -0.0008404662597328097,
                                  -0.003709809223511857};
constexpr double kExpAvg[] = {0.13144099999999997, -0.8190199999999997, 0.0,
                              1.3144099999999998e-09, 1.1426500000000002};
constexpr double kExpAvgSq[] = {0.0005495002699200105, 0.019960039980004018,
                                0.0, 5.495002699200106e-20,
                                0.05483020688402505};

// Repeats the five values, so that vector loops and their tails are both run.
template <typename T>
void ExpectPyTorchs(size_t repeats, double tolerance) {
  const std::vector<double> start{0.5, -1.25, 3.0, 0.0, 1e-3};
  std::vector<T> parameters;
  for (size_t i = 0; i < 5 * repeats; ++i) {
    parameters.push_back(static_cast<T>(start[i % 5]));
  }
  std::vector<T> gradients(parameters.size());
  std::vector<T> exp_avg(parameters.size());
  std::vector<T> exp_avg_sq(parameters.size());
  for (int k = 0; k < 5; ++k) {
    const double step[] = {0.1 * (k + 1), -2.0, 0.0, 1e-9 * (k + 1), 5.0 - k};
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<T>(step[i % 5]);
    }
    AdamStep({}, k + 1, gradients, parameters, exp_avg, exp_avg_sq);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const size_t at = i % 5;
    EXPECT_NEAR(parameters[i], kParameters[at], tolerance) << i;
    EXPECT_NEAR(exp_avg[i], kExpAvg[at], tolerance) << i;
    EXPECT_NEAR(exp_avg_sq[i], kExpAvgSq[at], tolerance) << i;
  }
}

TEST(AdamTest, EqualsPyTorchsInDoubles) {
  ExpectPyTorchs<double>(1, 1e-15);
  ExpectPyTorchs<double>(13, 1e-15);
}

TEST(AdamTest, EqualsPyTorchsInFloats) {
  ExpectPyTorchs<float>(1, 1e-6);
  ExpectPyTorchs<float>(29, 1e-6);
}

TEST(AdamTest, GivesTheSameBitsWhereverAValueStands) {
  std::vector<float> parameters(67, 0.3f);
  std::vector<float> gradients(67, 0.017f);
  std::vector<float> exp_avg(67, 0.01f);
  std::vector<float> exp_avg_sq(67, 0.002f);
  AdamStep({}, 3, gradients, parameters, exp_avg, exp_avg_sq);
  EXPECT_THAT(parameters, ::testing::Each(parameters[0]));
}

Float16 Rounded(float value, Float16) { return ToFloat16(value); }
BFloat16 Rounded(float value, BFloat16) { return ToBFloat16(value); }

// Bit for bit the step in f32 over the same gradients, widened and unscaled;
// vector loops and their tails both.
template <typename Half>
void ExpectTheFloatsStep(float loss_scale) {
  for (const size_t size : {size_t{1}, size_t{5}, size_t{131}}) {
    std::vector<float> masters(size), expected(size);
    std::vector<float> exp_avg(size), expected_avg(size);
    std::vector<float> exp_avg_sq(size), expected_avg_sq(size);
    std::vector<Half> gradients(size), rounded(size);
    for (size_t i = 0; i < size; ++i) {
      masters[i] = expected[i] = 0.37f * static_cast<float>(i) - 3;
    }
    for (int step = 1; step <= 4; ++step) {
      std::vector<float> unscaled(size);
      for (size_t i = 0; i < size; ++i) {
        // From numbers below the smallest of binary16 to large ones.
        const float gradient =
            std::ldexp(0.9f + 0.01f * static_cast<float>(step),
                       static_cast<int>(i % 24) - 30);
        gradients[i] = Rounded(gradient * loss_scale, Half{});
        unscaled[i] = ToFloat(gradients[i]) * (1 / loss_scale);
      }
      AdamStep(AdamFactors<float>({}, step), 1 / loss_scale, gradients, masters,
               exp_avg, exp_avg_sq, std::span(rounded));
      AdamStep({}, step, unscaled, expected, expected_avg, expected_avg_sq);
    }
    EXPECT_EQ(masters, expected);
    EXPECT_EQ(exp_avg, expected_avg);
    EXPECT_EQ(exp_avg_sq, expected_avg_sq);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(rounded[i].bits, Rounded(masters[i], Half{}).bits) << i;
    }
    // Scaling saved what binary16 has no number for.
    EXPECT_NE(exp_avg[0], 0.0f);
  }
}

TEST(AdamTest, InMixedPrecisionIsTheStepInFloatsOverWhatItsGradientsSay) {
  ExpectTheFloatsStep<Float16>(65536);
  ExpectTheFloatsStep<BFloat16>(1);
}

// A change too small for the rounded parameters adds up in the masters.
TEST(AdamTest, MastersKeepWhatRoundingWouldLose) {
  std::vector<float> masters{1};
  std::vector<float> exp_avg(1), exp_avg_sq(1);
  const std::vector<BFloat16> gradients{ToBFloat16(1)};
  std::vector<BFloat16> rounded(1);
  for (int step = 1; step <= 20; ++step) {
    AdamStep(AdamFactors<float>({.lr = 1e-3}, step), 1, gradients, masters,
             exp_avg, exp_avg_sq, std::span(rounded));
    if (step == 1) {
      EXPECT_EQ(ToFloat(rounded[0]), 1.0f);
    }
  }
  EXPECT_NEAR(masters[0], 0.98f, 1e-4);
  EXPECT_EQ(rounded[0].bits, ToBFloat16(masters[0]).bits);
}

}  // namespace
}  // namespace cohort::trainer
