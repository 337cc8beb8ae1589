#include "head/state/job_spec.h"

#include <malloc.h>

#include <cstddef>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

JobSpec Good() {
  JobSpec spec = OneWorker();
  spec.set_name("mnist");
  SetCommand(spec, {"./train", "--epochs", "3"});
  (*spec.mutable_launch()->mutable_environment())["OMP_NUM_THREADS"] = "1";
  spec.mutable_scaling()->set_num_workers(2);
  SetResource(spec, kCpu, Amount::FromUnits(1));
  return spec;
}

struct BadSpec {
  const char* name;
  std::function<void(JobSpec&)> spoil;
  const char* says;
};

class BadJobSpecTest : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadJobSpecTest, IsRefusedWithAReason) {
  JobSpec spec = Good();
  GetParam().spoil(spec);
  EXPECT_THAT(
      ValidateJobSpec(spec, "default"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadJobSpecTest,
    ::testing::Values(
        BadSpec{"EmptyCommand",
                [](JobSpec& s) { s.mutable_launch()->clear_command(); },
                "command is empty"},
        BadSpec{"EmptyProgram",
                [](JobSpec& s) { s.mutable_launch()->set_command(0, ""); },
                "command is empty"},
        BadSpec{"NulInArgument",
                [](JobSpec& s) {
                  s.mutable_launch()->set_command(1, std::string("a\0b", 3));
                },
                "NUL"},
        BadSpec{"LongArgument",
                [](JobSpec& s) {
                  s.mutable_launch()->set_command(1, std::string(1 << 18, 'x'));
                },
                "pass long input as a file"},
        BadSpec{"ManyArguments",
                [](JobSpec& s) {
                  SetCommand(s, std::vector<std::string>(5000, "x"));
                },
                "5000 arguments"},
        BadSpec{"BrokenSelector",
                [](JobSpec& s) {
                  s.mutable_scaling()->add_selectors("zone=a");
                  s.mutable_scaling()->add_selectors("rack in (a");
                },
                "selector \"rack in (a\": column 11: expected , or )"},
        BadSpec{"LongSelectors",
                [](JobSpec& s) {
                  for (int i = 0; i < 9'000; ++i) {
                    s.mutable_scaling()->add_selectors("a ");
                  }
                },
                "18000 bytes"},
        BadSpec{"EmptyToleration",
                [](JobSpec& s) {
                  *s.mutable_scaling()->add_tolerations() =
                      rpc::ToWire(Toleration{.key = "", .value = "x"});
                },
                "the toleration \"\"=\"x\""},
        BadSpec{"LongAccelerator",
                [](JobSpec& s) {
                  s.mutable_scaling()->set_accelerator_type(
                      std::string(65, 'x'));
                },
                "64 printable bytes"},
        BadSpec{"BrokenLevel",
                [](JobSpec& s) { SetTopology(s, "a\nb", false); },
                "neither \"host\" nor a label"},
        BadSpec{"MoreOnOneHostThanAnyTakes",
                [](JobSpec& s) {
                  s.mutable_scaling()->set_num_workers(65);
                  SetTopology(s, "host", true);
                },
                "all 65 workers are to be on one node, and at most 64"},
        BadSpec{"MorePackedThanAnyNodeTakes",
                [](JobSpec& s) {
                  s.mutable_scaling()->set_num_workers(65);
                  s.mutable_scaling()->set_placement_strategy(
                      v1::PLACEMENT_STRATEGY_STRICT_PACK);
                },
                "all 65 workers are to be on one node, and at most 64"},
        BadSpec{"SpreadOnOneHost",
                [](JobSpec& s) {
                  s.mutable_scaling()->set_placement_strategy(
                      v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
                  SetTopology(s, "host", true);
                },
                "STRICT_SPREAD puts each worker on a node of its own"},
        BadSpec{"NoWorkers",
                [](JobSpec& s) { s.mutable_scaling()->set_num_workers(0); },
                "num_workers is 0"},
        BadSpec{"NegativeWorkers",
                [](JobSpec& s) { s.mutable_scaling()->set_num_workers(-3); },
                "num_workers is -3"},
        BadSpec{
            "TooManyWorkers",
            [](JobSpec& s) { s.mutable_scaling()->set_num_workers(10'001); },
            "1 to 10000"},
        BadSpec{"BrokenGpus",
                [](JobSpec& s) {
                  SetResource(s, kGpu, Amount::FromTenThousandths(15'000));
                },
                "whole GPUs"},
        BadSpec{"NegativeCpu",
                [](JobSpec& s) { SetResource(s, kCpu, Amount::FromUnits(-1)); },
                "CPU"},
        BadSpec{"AbsurdCpu",
                [](JobSpec& s) {
                  SetResource(s, kCpu, Amount::FromUnits(2'000'000'000));
                },
                "CPU"},
        BadSpec{"UnknownStrategy",
                [](JobSpec& s) {
                  s.mutable_scaling()->set_placement_strategy(
                      static_cast<PlacementStrategy>(9));
                },
                "STRICT_SPREAD"},
        BadSpec{"UnknownRestart",
                [](JobSpec& s) {
                  s.mutable_run()->set_restart(static_cast<RestartPolicy>(9));
                },
                "restart policy 9 is not known"},
        BadSpec{"PreflightOfRanksThatRestartAlone",
                [](JobSpec& s) {
                  s.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
                  s.mutable_run()->set_preflight(true);
                },
                "preflight needs restart policy all"},
        BadSpec{"BudgetOfRanksThatNeverRestart",
                [](JobSpec& s) {
                  s.mutable_run()->set_restart(v1::RESTART_POLICY_NONE);
                  s.mutable_run()->set_max_failures(1);
                },
                "max_failures has no meaning with restart policy none"},
        BadSpec{"RelativeStorage",
                [](JobSpec& s) { s.mutable_run()->set_storage_path("data"); },
                "not absolute"},
        BadSpec{"ControlInStorage",
                [](JobSpec& s) { s.mutable_run()->set_storage_path("/a\nb"); },
                "control character"},
        BadSpec{"LongStorage",
                [](JobSpec& s) {
                  s.mutable_run()->set_storage_path(std::string(1025, '/'));
                },
                "1025 bytes"},
        BadSpec{"RelativeWorkingDirectory",
                [](JobSpec& s) {
                  s.mutable_launch()->set_working_directory("src");
                },
                "the working directory \"src\" is not absolute"},
        BadSpec{"WorkingDirectoryAndPackage",
                [](JobSpec& s) {
                  s.mutable_launch()->set_working_directory("/src");
                  s.mutable_launch()->set_package_hash(std::string(32, 'h'));
                },
                "not in both"},
        BadSpec{"PartOfANode",
                [](JobSpec& s) {
                  s.mutable_scaling()->set_num_workers(3);
                  s.mutable_scaling()->set_workers_per_node(2);
                },
                "give a multiple of 2"},
        BadSpec{"NodesOneByOne",
                [](JobSpec& s) {
                  s.mutable_scaling()->set_workers_per_node(1);
                  s.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
                },
                "need restart policy all"},
        BadSpec{"BadVariable",
                [](JobSpec& s) {
                  (*s.mutable_launch()->mutable_environment())["A=B"] = "";
                },
                "A=B"},
        BadSpec{"DigitVariable",
                [](JobSpec& s) {
                  (*s.mutable_launch()->mutable_environment())["1A"] = "";
                },
                "1A"},
        BadSpec{"RankVariable",
                [](JobSpec& s) {
                  (*s.mutable_launch()->mutable_environment())["RANK"] = "7";
                },
                "RANK is set by the worker"},
        BadSpec{"GpuVariable",
                [](JobSpec& s) {
                  (*s.mutable_launch()
                        ->mutable_environment())["CUDA_VISIBLE_DEVICES"] = "";
                },
                "CUDA_VISIBLE_DEVICES is set by the worker"},
        BadSpec{"LongName",
                [](JobSpec& s) { s.set_name(std::string(257, 'n')); },
                "at most 256"},
        BadSpec{"ControlInName", [](JobSpec& s) { s.set_name("a\nb"); },
                "one line"},
        BadSpec{"NameWithLoneBytes", [](JobSpec& s) { s.set_name("\xff\xfe"); },
                "not UTF-8"},
        BadSpec{"NameCutShort", [](JobSpec& s) { s.set_name("caf\xc3"); },
                "not UTF-8"},
        BadSpec{"NameOverlong", [](JobSpec& s) { s.set_name("\xe0\x80\xaf"); },
                "not UTF-8"},
        BadSpec{"NameWithSurrogate",
                [](JobSpec& s) { s.set_name("\xed\xa0\x80"); }, "not UTF-8"},
        BadSpec{"BlankName", [](JobSpec& s) { s.set_name("  "); },
                "spaces at its ends"},
        BadSpec{
            "BlankAccelerator",
            [](JobSpec& s) { s.mutable_scaling()->set_accelerator_type(" "); },
            "the accelerator type \" \""},
        BadSpec{"LevelOfAnExpression",
                [](JobSpec& s) { SetTopology(s, "a=b", false); },
                "is an expression"},
        BadSpec{"BlankSelector",
                [](JobSpec& s) { s.mutable_scaling()->add_selectors(" "); },
                "a selector is blank"},
        BadSpec{"HugeSelector",
                [](JobSpec& s) {
                  s.mutable_scaling()->add_selectors(std::string(9'000, 'x'));
                },
                "xxx...\": column 1"},
        BadSpec{"BlankLabel",
                [](JobSpec& s) { (*s.mutable_labels())[" "] = "x"; },
                "the label \" \""},
        BadSpec{"HugeArray", [](JobSpec& s) { s.set_array("0-100000"); },
                "column 1: with it there are more than 100000"},
        BadSpec{"BadFailures",
                [](JobSpec& s) { s.mutable_run()->set_max_failures(-2); },
                "max_failures is -2"},
        BadSpec{"ShortTime",
                [](JobSpec& s) { s.mutable_run()->set_time_limit_us(999); },
                "the time limit is 999us, 1ms to 8760h are possible"},
        BadSpec{"TimeOfAges",
                [](JobSpec& s) {
                  s.mutable_run()->set_time_limit_us(
                      absl::ToInt64Microseconds(absl::Hours(9'000)));
                },
                "the time limit is 9000h"},
        BadSpec{"NegativeGrace",
                [](JobSpec& s) {
                  s.mutable_run()->set_grace_us(
                      absl::ToInt64Microseconds(-absl::Seconds(1)));
                },
                "the grace is -1s, 0 to 1h are possible"},
        BadSpec{"LongGrace",
                [](JobSpec& s) {
                  s.mutable_run()->set_grace_us(
                      absl::ToInt64Microseconds(absl::Hours(2)));
                },
                "the grace is 2h"},
        BadSpec{"LongRetryDelay",
                [](JobSpec& s) {
                  s.mutable_run()->set_retry_delay_us(
                      absl::ToInt64Microseconds(absl::Hours(2)));
                },
                "the retry delay is 2h, 0 to 1h are possible"},
        BadSpec{"BadKeep",
                [](JobSpec& s) { s.mutable_run()->set_num_to_keep(-1); },
                "num_to_keep is -1"},
        BadSpec{"LongComment",
                [](JobSpec& s) { s.set_comment(std::string(1'025, 'x')); },
                "the comment is not one line of at most 1024 bytes"},
        BadSpec{"CommentOfLines", [](JobSpec& s) { s.set_comment("a\nb"); },
                "the comment is not one line"},
        BadSpec{"ShortHash",
                [](JobSpec& s) { s.mutable_launch()->set_package_hash("abc"); },
                "32 bytes"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(JobSpecTest, AcceptsWhatIsSensible) {
  JobSpec spec = Good();
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "default"));
  SetResource(spec, kGpu, Amount::FromTenThousandths(2'500));
  spec.mutable_run()->set_storage_path("/mnt/shared");
  spec.mutable_run()->set_max_failures(-1);
  spec.mutable_run()->set_time_limit_us(
      absl::ToInt64Microseconds(absl::Minutes(5)));
  spec.mutable_run()->set_grace_us(
      absl::ToInt64Microseconds(absl::ZeroDuration()));
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Hours(1)));
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "team-a"));
  SetResource(spec, kGpu, Amount::FromUnits(8));
  spec.clear_name();
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "default"));
  spec.set_name("caf\u00e9 \u6f22 \U0001f600 \U0010ffff");
  (*spec.mutable_launch()->mutable_environment())["COHORT_DATA"] = "/data";
  (*spec.mutable_launch()->mutable_environment())["COHORT_LOG"] = "debug";
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "default"));
}

TEST(JobSpecTest, TheBudgetThatWasLeftOutIsThatOfThePolicy) {
  const auto budget = [](RestartPolicy policy) {
    JobSpec spec;
    spec.mutable_run()->set_restart(policy);
    FillJobSpec(spec);
    return spec.run().max_failures();
  };
  EXPECT_EQ(budget(v1::RESTART_POLICY_UNSPECIFIED), 0);
  EXPECT_EQ(budget(v1::RESTART_POLICY_ALL), 0);
  EXPECT_EQ(budget(v1::RESTART_POLICY_NONE), 0);
  EXPECT_EQ(budget(v1::RESTART_POLICY_ONE), -1) << "unlimited";
  EXPECT_EQ(OneWorker().run().restart(), v1::RESTART_POLICY_ALL);
}

// Of bytes that a sanitizer's allocator does not tell this sees nothing.
size_t BytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Protobuf keeps a map that reflection has looked at twice.
TEST(JobSpecTest, FillingItMakesNoSecondCopyOfTheEnvironment) {
  constexpr size_t kBytes = 900 << 10;
  JobSpec spec = OneWorker();
  auto& environment = *spec.mutable_launch()->mutable_environment();
  environment["A"] = std::string(kBytes, 'x');
  const size_t before = BytesInUse();
  FillJobSpec(spec);
  EXPECT_LT(BytesInUse(), before + (kBytes / 2));
  EXPECT_EQ(spec.launch().environment_size(), 1);
}

TEST(JobSpecTest, RefusesANamespaceThatCannotBe) {
  EXPECT_THAT(ValidateJobSpec(Good(), ""),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort::head
