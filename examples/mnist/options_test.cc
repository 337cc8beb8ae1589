#include "examples/mnist/options.h"

#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::mnist {
namespace {

using examples::ExitNow;

using ::testing::HasSubstr;
using ::testing::Not;

std::variant<TrainOptions, ExitNow> Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "mnist");
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

TEST(OptionsTest, RefusesNumbersThatDoNotFit) {
  EXPECT_THAT(Refusal({"--seed", "-1"}), HasSubstr("--seed: \"-1\" is no"));
  EXPECT_THAT(Refusal({"--seed", "18446744073709551616"}),
              HasSubstr("--seed: \"18446744073709551616\" is no"));
  EXPECT_THAT(Refusal({"--train-samples", "99999999999999999999"}),
              HasSubstr("--train-samples"));
  EXPECT_THAT(Refusal({"--steps", "-1"}),
              HasSubstr("is no whole number from 0 to 1000000000000\n"));
  EXPECT_THAT(Refusal({"--epochs", "0"}), HasSubstr("from 1 to 100000"));
  EXPECT_THAT(Refusal({"--hidden", "1.5"}), HasSubstr("--hidden"));
}

TEST(OptionsTest, RefusesALearningRateThatIsNone) {
  for (const char* rate : {"nan", "inf", "0", "-1", "101", "fast"}) {
    EXPECT_THAT(Refusal({"--lr", rate}),
                HasSubstr("is no number from 1e-12 to 100"));
  }
}

TEST(OptionsTest, KnowsPrecisionsByName) {
  EXPECT_THAT(Refusal({"--dtype", "1"}),
              HasSubstr("--dtype: \"1\" is neither float32 nor float64"));
  const auto parsed = Parse(
      {"--dtype", "float64", "--seed", "18446744073709551615", "--lr", "1e-3"});
  const auto* options = std::get_if<TrainOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->precision, Precision::kFloat64);
  EXPECT_EQ(options->seed, 18446744073709551615u);
  EXPECT_EQ(options->lr, 1e-3);
}

TEST(OptionsTest, HelpIsForPeople) {
  testing::internal::CaptureStdout();
  const auto parsed = Parse({"--help"});
  const std::string help = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(std::holds_alternative<ExitNow>(parsed));
  EXPECT_EQ(std::get<ExitNow>(parsed).code, 0);
  EXPECT_THAT(help, HasSubstr("--epochs N "));
  EXPECT_THAT(help, HasSubstr("--dtype NAME "));
  EXPECT_THAT(help, Not(HasSubstr("ENUM")));
  EXPECT_THAT(help, Not(HasSubstr("INT")));
}

}  // namespace
}  // namespace cohort::mnist
