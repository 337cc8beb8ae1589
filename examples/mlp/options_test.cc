#include "examples/mlp/options.h"

#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::mlp {
namespace {

using examples::ExitNow;

using ::testing::HasSubstr;
using trainer::DType;

std::variant<TrainOptions, ExitNow> Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "mlp");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return ParseOptions(static_cast<int>(argv.size()), argv.data());
}

// What is said when `words` are refused.
std::string Refusal(const std::vector<std::string>& words) {
  testing::internal::CaptureStderr();
  const std::variant<TrainOptions, ExitNow> parsed = Parse(words);
  const std::string said = testing::internal::GetCapturedStderr();
  const ExitNow* exit_now = std::get_if<ExitNow>(&parsed);
  if (exit_now == nullptr) return "accepted";
  EXPECT_EQ(exit_now->code, 2);
  return said;
}

TEST(OptionsTest, KnowsPrecisionsByName) {
  for (const auto& [name, dtype] :
       std::vector<std::pair<std::string, DType>>{{"f32", DType::kF32},
                                                  {"bf16", DType::kBF16},
                                                  {"fp16", DType::kF16}}) {
    const auto parsed = Parse({"--precision", name, "--use-gpu"});
    const auto* options = std::get_if<TrainOptions>(&parsed);
    ASSERT_NE(options, nullptr);
    EXPECT_EQ(options->precision, dtype);
    EXPECT_TRUE(options->use_gpu);
  }
  EXPECT_THAT(Refusal({"--precision", "f64"}),
              HasSubstr("\"f64\" is none of f32, bf16, fp16"));
}

TEST(OptionsTest, RefusesNumbersThatDoNotFit) {
  EXPECT_THAT(Refusal({"--layers", "0"}), HasSubstr("from 1 to 64"));
  EXPECT_THAT(Refusal({"--hidden", "65537"}), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(Refusal({"--lr", "nan"}), HasSubstr("is no number"));
  EXPECT_THAT(Refusal({"--batch", "-1"}), HasSubstr("--batch"));
}

TEST(OptionsTest, NamesADataDirectoryWithoutData) {
  EXPECT_THAT(Refusal({"--data", "/nowhere"}), HasSubstr("--data /nowhere"));
}

}  // namespace
}  // namespace cohort::mlp
