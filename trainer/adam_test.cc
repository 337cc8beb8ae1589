#include "trainer/adam.h"

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

}  // namespace
}  // namespace cohort::trainer
