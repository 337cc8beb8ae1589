#include "trainer/torch/torch_dataset.h"

#include <cstdint>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/utils/variadic.h"
#include "torch/data/datasets/base.h"
#include "torch/data/datasets/map.h"
#include "torch/data/transforms/stack.h"
#include "torch/utils.h"

#include "common/testing/status_matchers.h"

namespace cohort::torch_adapter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Its samples are {n, n * n}, as float64, and 10 * n.
class Squares : public torch::data::datasets::Dataset<Squares> {
 public:
  explicit Squares(size_t size, size_t odd_one = 1000)
      : size_(size), odd_one_(odd_one) {}

  torch::data::Example<> get(size_t index) override {
    const auto n = static_cast<int64_t>(index);
    return {
        torch::full({index == odd_one_ ? 3 : 2}, n, torch::kFloat64)
            .pow(torch::tensor(index == odd_one_ ? std::vector<double>{1, 2, 3}
                                                 : std::vector<double>{1, 2})),
        torch::tensor(10 * n)};
  }
  torch::optional<size_t> size() const override { return size_; }

 private:
  const size_t size_;
  const size_t odd_one_;
};

template <typename D>
void ExpectSquares(D dataset) {
  const auto made = train::FromTorch(std::move(dataset));
  COHORT_ASSERT_OK(made);
  EXPECT_EQ((*made)->size(), 5);
  EXPECT_EQ((*made)->input_size(), 2);
  std::vector<float> inputs(4);
  std::vector<int64_t> labels(2);
  const std::vector<int64_t> ids = {4, 1};
  COHORT_ASSERT_OK((*made)->Read(ids, inputs, labels));
  EXPECT_THAT(inputs, ElementsAre(4, 16, 1, 1));
  EXPECT_THAT(labels, ElementsAre(40, 10));
}

TEST(TorchDatasetTest, GivesExamplesByIdWhetherStackedOrNot) {
  ExpectSquares(Squares(5));
  ExpectSquares(Squares(5).map(torch::data::transforms::Stack<>()));
}

TEST(TorchDatasetTest, RefusesWhatIsEmptyOrOfAnotherSize) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(train::FromTorch(Squares(0)),
              StatusIs(invalid, HasSubstr("empty")));
  const auto made = train::FromTorch(Squares(5, /*odd_one=*/3));
  COHORT_ASSERT_OK(made);
  std::vector<float> inputs(2);
  std::vector<int64_t> labels(1);
  const std::vector<int64_t> ids = {3};
  EXPECT_THAT((*made)->Read(ids, inputs, labels),
              StatusIs(invalid, HasSubstr("3 numbers where 2 belong")));
}

}  // namespace
}  // namespace cohort::torch_adapter
