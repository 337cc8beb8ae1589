#include "client/cli/completion.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

class CompletionTest : public testing::Test {
 protected:
  CompletionTest() {
    CLI::App* const get = cohort_.add_subcommand("jobs")->add_subcommand("get");
    get->add_option("JOB", text_);
    get->add_flag("--json", flag_);
    CLI::App* const submit = cohort_.add_subcommand("submit");
    submit->add_option("--after", text_)->option_text("JOB[:ok|:any]");
    submit->add_option("--name", text_)->option_text("S");
    cohort_.add_subcommand("drain")->add_option("NODE", text_);
  }

  CompletionPoint At(const std::vector<std::string>& words) const {
    return FindCompletion(cohort_, words);
  }

  CLI::App cohort_;
  std::string text_;
  bool flag_ = false;
};

TEST_F(CompletionTest, OffersCommandsAndFlagsOfTheOneThatIsWritten) {
  EXPECT_THAT(At({""}).words, ElementsAre("jobs", "submit", "drain"));
  EXPECT_THAT(At({"jobs", "g"}).words, ElementsAre("get"));
  EXPECT_THAT(At({"jobs", "get", "--"}).words, Contains("--json"));
  EXPECT_THAT(At({"submit", "--na"}).words, Contains("--name"));
  EXPECT_THAT(At({}).words, IsEmpty());
}

TEST_F(CompletionTest, KnowsWhereAJobOrANodeIsNamed) {
  EXPECT_TRUE(At({"jobs", "get", ""}).takes_job);
  EXPECT_TRUE(At({"jobs", "get", "--json", "a"}).takes_job);
  EXPECT_TRUE(At({"submit", "--after", ""}).takes_job);
  EXPECT_TRUE(At({"drain", ""}).takes_node);
  EXPECT_FALSE(At({"drain", ""}).takes_job);
}

TEST_F(CompletionTest, LeavesTheRestToTheShell) {
  // A name that is a command's.
  const CompletionPoint value = At({"submit", "--name", "jobs"});
  EXPECT_THAT(value.words, IsEmpty());
  EXPECT_FALSE(value.takes_job);
  EXPECT_FALSE(At({"submit", "--name", "jobs", ""}).takes_job);
  EXPECT_THAT(At({"submit", "--", "jobs", "get", ""}).words, IsEmpty());
}

}  // namespace
}  // namespace cohort::cli
