#include "client/cli/torchrun_flags.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

class TorchrunFlagsTest : public testing::Test {
 protected:
  TorchrunFlagsTest() { AddTorchrunFlags(run_, flags_); }

  // What is cut off; `own` stays.
  absl::StatusOr<std::optional<std::vector<std::string>>> Cut(
      std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    auto program = CutProgram(run_, arguments);
    own_.assign(arguments.begin() + 1, arguments.end());
    return program;
  }

  CLI::App run_;
  TorchrunFlags flags_;
  std::vector<std::string> own_;
};

TEST_F(TorchrunFlagsTest, EndWhereTheProgramBegins) {
  EXPECT_THAT(
      *Cut({"--nproc-per-node", "2", "--standalone", "-m", "-t", "3", "train",
            "--nproc-per-node", "x", "--", "-m"}),
      Optional(ElementsAre("train", "--nproc-per-node", "x", "--", "-m")));
  EXPECT_THAT(own_, ElementsAre("--nproc-per-node", "2", "--standalone", "-m",
                                "-t", "3"));
  EXPECT_THAT(*Cut({"--no-python", "--", "--odd"}),
              Optional(ElementsAre("--odd")));
  EXPECT_THAT(own_, ElementsAre("--no-python"));
  EXPECT_EQ(*Cut({"--help"}), std::nullopt);
  EXPECT_EQ(*Cut({}), std::nullopt);
  EXPECT_EQ(*Cut({"--tee"}), std::nullopt);
}

TEST_F(TorchrunFlagsTest, MayBeWrittenWithUnderscores) {
  EXPECT_THAT(*Cut({"--nproc_per_node=2", "--max_restarts", "3", "a_b.py"}),
              Optional(ElementsAre("a_b.py")));
  EXPECT_THAT(own_, ElementsAre("--nproc-per-node=2", "--max-restarts", "3"));
  EXPECT_THAT(*Cut({"--log_dir=a_b", "x"}), Optional(ElementsAre("x")));
  EXPECT_THAT(own_, ElementsAre("--log-dir=a_b"));
}

TEST_F(TorchrunFlagsTest, AreRefusedWithAReasonWhereTheyMeanNothingHere) {
  for (const char* flag :
       {"--rdzv_backend=c10d", "--rdzv-endpoint", "--master_port", "-r",
        "--redirects=3", "--start-method", "--run-path", "--role",
        "--monitor_interval", "--virtual-local-rank", "--node_rank"}) {
    EXPECT_THAT(Cut({flag, "x.py"}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("has no meaning here: ")))
        << flag;
  }
  // Of the program they are its own.
  COHORT_EXPECT_OK(Cut({"x.py", "--role", "a"}));
}

TEST_F(TorchrunFlagsTest, SayHowManyNodes) {
  EXPECT_EQ(*NodesOf({}), 1);
  EXPECT_EQ(*NodesOf({.nnodes = "3"}), 3);
  EXPECT_EQ(*NodesOf({.nnodes = "2:2"}), 2);
  for (const char* text : {"1:4", "0", "two", "2:"}) {
    EXPECT_THAT(
        NodesOf({.nnodes = text}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--nnodes")))
        << text;
  }
}

TEST_F(TorchrunFlagsTest, SayWhatIsShownAndWritten) {
  EXPECT_EQ(*TeeOf({}), 3);
  EXPECT_EQ(*TeeOf({.tee = "1"}), 1);
  EXPECT_THAT(TeeOf({.tee = "0:1,1:3"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("same for all ranks")));
  EXPECT_EQ(*ShownRanksOf({}), std::nullopt);
  EXPECT_THAT(*ShownRanksOf({.local_ranks_filter = "0,2"}),
              Optional(ElementsAre(0, 2)));
  EXPECT_FALSE(ShownRanksOf({.local_ranks_filter = "0,"}).ok());
  COHORT_EXPECT_OK(CheckShownRanks(std::nullopt, 1));
  COHORT_EXPECT_OK(CheckShownRanks(std::set{0, 1}, 2));
  EXPECT_THAT(CheckShownRanks(std::set{0, 9}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no local rank 9: each node has 2 ranks, 0 "
                                 "to 1")));
}

}  // namespace
}  // namespace cohort::cli
