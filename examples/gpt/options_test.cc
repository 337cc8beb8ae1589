#include "examples/gpt/options.h"

#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/temp_dir.h"

namespace cohort::gpt {
namespace {

using examples::ExitNow;
using ::testing::HasSubstr;
using ::testing::Not;

std::variant<TrainOptions, ExitNow> Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "gpt");
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

TEST(GptOptionsTest, RefusesValuesThatMakeNoSense) {
  EXPECT_THAT(Refusal({"--dtype", "fp16"}),
              HasSubstr("--dtype: \"fp16\" is neither f32 nor bf16"));
  EXPECT_THAT(Refusal({"--context", "0"}), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(Refusal({"--lr", "nan"}), HasSubstr("is no number from"));
  EXPECT_THAT(Refusal({"--heads", "3"}),
              HasSubstr("gpt: --heads 3 does not divide --width 128"));
  EXPECT_THAT(Refusal({"--prompt", ""}), HasSubstr("--prompt must have"));
  EXPECT_THAT(Refusal({"--data", "/nowhere/text"}),
              HasSubstr("--data /nowhere/text is no file"));
  EXPECT_THAT(Refusal({"--data", "/"}), HasSubstr("--data / is no file"));
}

TEST(GptOptionsTest, TakesWhatIsGiven) {
  TempDir directory;
  const std::string path = directory.File("text");
  std::ofstream(path) << "a text";
  const auto parsed = Parse({"--data", path, "--dtype", "bf16", "--use-gpu",
                             "--width", "64", "--heads", "2", "--sample", "0",
                             "--prompt", "", "--restore", "x"});
  const auto* options = std::get_if<TrainOptions>(&parsed);
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->data, path);
  EXPECT_EQ(options->precision, Precision::kBF16);
  EXPECT_TRUE(options->use_gpu);
  EXPECT_EQ(options->shape.width, 64);
  EXPECT_EQ(options->restore, "x");
}

TEST(GptOptionsTest, HelpIsForPeople) {
  testing::internal::CaptureStdout();
  const auto parsed = Parse({"--help"});
  const std::string help = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(std::holds_alternative<ExitNow>(parsed));
  EXPECT_EQ(std::get<ExitNow>(parsed).code, 0);
  EXPECT_THAT(help, HasSubstr("--context N "));
  EXPECT_THAT(help, HasSubstr("--prompt TEXT "));
  EXPECT_THAT(help, Not(HasSubstr("ENUM")));
  EXPECT_THAT(help, Not(HasSubstr("INT")));
}

}  // namespace
}  // namespace cohort::gpt
