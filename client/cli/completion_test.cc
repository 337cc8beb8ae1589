#include "client/cli/completion.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cli/job_list.h"

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
    OfferValues(submit->add_option("--restart", text_), {"all", "one"});
    CLI::App* const jobs = cohort_.get_subcommand("jobs");
    OfferValues(jobs->add_option("--state", texts_), {"RUNNING", "FAILED"})
        ->delimiter(',');
    CLI::App* const fetch = jobs->add_subcommand("get-files");
    fetch->add_option("JOB", text_);
    fetch->add_option("DIR", text_);
    jobs->add_subcommand("stop")->add_option("JOB", texts_);
    cohort_.add_subcommand("drain")->add_option("NODE", text_);
  }

  CompletionPoint At(const std::vector<std::string>& words) const {
    return FindCompletion(cohort_, words);
  }

  CLI::App cohort_;
  std::string text_;
  std::vector<std::string> texts_;
  bool flag_ = false;
};

TEST_F(CompletionTest, OffersCommandsAndFlagsOfTheOneThatIsWritten) {
  EXPECT_THAT(At({""}).words, ElementsAre("jobs", "submit", "drain", "help"));
  EXPECT_THAT(At({"jobs", "g"}).words, ElementsAre("get", "get-files", "stop"));
  EXPECT_THAT(At({"help", "jobs", ""}).words,
              ElementsAre("get", "get-files", "stop"));
  EXPECT_THAT(At({"jobs", "get", "--"}).words, Contains("--json"));
  EXPECT_THAT(At({"submit", "--na"}).words, Contains("--name"));
  EXPECT_THAT(At({}).words, IsEmpty());
}

TEST_F(CompletionTest, KnowsWhereAJobOrANodeIsNamed) {
  EXPECT_THAT(At({"jobs", "get", ""}).nouns, ElementsAre("JOB"));
  EXPECT_THAT(At({"jobs", "get", "--json", "a"}).nouns, ElementsAre("JOB"));
  EXPECT_THAT(At({"submit", "--after", ""}).nouns, ElementsAre("JOB"));
  EXPECT_THAT(At({"drain", ""}).nouns, ElementsAre("NODE"));
}

TEST_F(CompletionTest, OffersTheValuesOfAFlag) {
  EXPECT_THAT(At({"submit", "--restart", ""}).words, ElementsAre("all", "one"));
  // As zsh gives it, and as bash does.
  const CompletionPoint whole = At({"submit", "--restart=o"});
  EXPECT_THAT(whole.words, ElementsAre("all", "one"));
  EXPECT_EQ(whole.kept, "--restart=");
  EXPECT_EQ(whole.begun, "o");
  const CompletionPoint apart = At({"submit", "--restart", "=", "o"});
  EXPECT_THAT(apart.words, ElementsAre("all", "one"));
  EXPECT_EQ(apart.kept, "");
  EXPECT_THAT(At({"submit", "--restart", "="}).words,
              ElementsAre("all", "one"));
  const CompletionPoint second = At({"jobs", "--state", "RUNNING,F"});
  EXPECT_THAT(second.words, ElementsAre("RUNNING", "FAILED"));
  EXPECT_EQ(second.kept, "RUNNING,");
  EXPECT_EQ(second.begun, "F");
}

TEST_F(CompletionTest, KnowsWhichArgumentComes) {
  EXPECT_THAT(At({"jobs", "get-files", ""}).nouns, ElementsAre("JOB"));
  EXPECT_THAT(At({"jobs", "get-files", "train", ""}).nouns, IsEmpty());
  EXPECT_THAT(At({"jobs", "get-files", "train", ""}).words, IsEmpty());
  EXPECT_THAT(At({"jobs", "stop", "train", ""}).nouns, ElementsAre("JOB"));
  EXPECT_EQ(At({"jobs", "stop", ""}).states, LiveStates());
  EXPECT_THAT(At({"jobs", "get", ""}).states, IsEmpty());
  EXPECT_THAT(At({"drain", "n1", ""}).nouns, IsEmpty());
}

TEST_F(CompletionTest, LeavesTheRestToTheShell) {
  // A name that is a command's.
  const CompletionPoint value = At({"submit", "--name", "jobs"});
  EXPECT_THAT(value.words, IsEmpty());
  EXPECT_THAT(value.nouns, IsEmpty());
  EXPECT_THAT(At({"submit", "--name", "jobs", ""}).nouns, IsEmpty());
  EXPECT_THAT(At({"submit", "--", "jobs", "get", ""}).words, IsEmpty());
}

}  // namespace
}  // namespace cohort::cli
