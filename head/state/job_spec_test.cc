#include "head/state/job_spec.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

JobSpec Good() {
  JobSpec spec;
  spec.name = "mnist";
  spec.command = {"./train", "--epochs", "3"};
  spec.environment = {{"OMP_NUM_THREADS", "1"}};
  spec.num_workers = 2;
  spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
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
        BadSpec{"EmptyCommand", [](JobSpec& s) { s.command.clear(); },
                "command is empty"},
        BadSpec{"EmptyProgram", [](JobSpec& s) { s.command[0] = ""; },
                "command is empty"},
        BadSpec{"NulInArgument",
                [](JobSpec& s) { s.command[1] = std::string("a\0b", 3); },
                "NUL"},
        BadSpec{"LongArgument",
                [](JobSpec& s) { s.command[1] = std::string(1 << 18, 'x'); },
                "pass long input as a file"},
        BadSpec{"ManyArguments",
                [](JobSpec& s) { s.command.resize(5000, "x"); },
                "5000 arguments"},
        BadSpec{"BrokenSelector",
                [](JobSpec& s) {
                  s.selectors = {"zone=a", "rack in (a"};
                },
                "selector \"rack in (a\": column 11: expected , or )"},
        BadSpec{"LongSelectors",
                [](JobSpec& s) { s.selectors.resize(9'000, "a "); },
                "18000 bytes"},
        BadSpec{"EmptyToleration",
                [](JobSpec& s) { s.tolerations = {{.key = "", .value = "x"}}; },
                "the toleration \"\"=\"x\""},
        BadSpec{"LongAccelerator",
                [](JobSpec& s) { s.accelerator_type = std::string(65, 'x'); },
                "64 printable bytes"},
        BadSpec{"BrokenLevel", [](JobSpec& s) { s.topology.level = "a\nb"; },
                "neither \"host\" nor a label"},
        BadSpec{"MoreOnOneHostThanAnyTakes",
                [](JobSpec& s) {
                  s.num_workers = 65;
                  s.topology = {.level = "host", .required = true};
                },
                "all 65 workers are to be on one node, and at most 64"},
        BadSpec{"MorePackedThanAnyNodeTakes",
                [](JobSpec& s) {
                  s.num_workers = 65;
                  s.strategy = PlacementStrategy::kStrictPack;
                },
                "all 65 workers are to be on one node, and at most 64"},
        BadSpec{"SpreadOnOneHost",
                [](JobSpec& s) {
                  s.strategy = PlacementStrategy::kStrictSpread;
                  s.topology = {.level = "host", .required = true};
                },
                "STRICT_SPREAD puts each worker on a node of its own"},
        BadSpec{"NoWorkers", [](JobSpec& s) { s.num_workers = 0; },
                "num_workers is 0"},
        BadSpec{"NegativeWorkers", [](JobSpec& s) { s.num_workers = -3; },
                "num_workers is -3"},
        BadSpec{"TooManyWorkers", [](JobSpec& s) { s.num_workers = 10'001; },
                "1 to 10000"},
        BadSpec{"BrokenGpus",
                [](JobSpec& s) {
                  s.resources_per_worker.Set(
                      kGpu, Amount::FromTenThousandths(15'000));
                },
                "whole GPUs"},
        BadSpec{"NegativeCpu",
                [](JobSpec& s) {
                  s.resources_per_worker.Set(kCpu, Amount::FromUnits(-1));
                },
                "CPU"},
        BadSpec{"AbsurdCpu",
                [](JobSpec& s) {
                  s.resources_per_worker.Set(kCpu,
                                             Amount::FromUnits(2'000'000'000));
                },
                "CPU"},
        BadSpec{
            "UnknownStrategy",
            [](JobSpec& s) { s.strategy = static_cast<PlacementStrategy>(9); },
            "STRICT_SPREAD"},
        BadSpec{"RelativeStorage", [](JobSpec& s) { s.storage_path = "data"; },
                "not absolute"},
        BadSpec{"ControlInStorage",
                [](JobSpec& s) { s.storage_path = "/a\nb"; },
                "control character"},
        BadSpec{"LongStorage",
                [](JobSpec& s) { s.storage_path = std::string(1025, '/'); },
                "1025 bytes"},
        BadSpec{"BadVariable", [](JobSpec& s) { s.environment["A=B"] = ""; },
                "A=B"},
        BadSpec{"DigitVariable", [](JobSpec& s) { s.environment["1A"] = ""; },
                "1A"},
        BadSpec{"RankVariable", [](JobSpec& s) { s.environment["RANK"] = "7"; },
                "RANK is set by the worker"},
        BadSpec{"GpuVariable",
                [](JobSpec& s) { s.environment["CUDA_VISIBLE_DEVICES"] = ""; },
                "CUDA_VISIBLE_DEVICES is set by the worker"},
        BadSpec{"LongName", [](JobSpec& s) { s.name = std::string(257, 'n'); },
                "at most 256"},
        BadSpec{"ControlInName", [](JobSpec& s) { s.name = "a\nb"; },
                "one line"},
        BadSpec{"NameWithLoneBytes", [](JobSpec& s) { s.name = "\xff\xfe"; },
                "not UTF-8"},
        BadSpec{"NameCutShort", [](JobSpec& s) { s.name = "caf\xc3"; },
                "not UTF-8"},
        BadSpec{"NameOverlong", [](JobSpec& s) { s.name = "\xe0\x80\xaf"; },
                "not UTF-8"},
        BadSpec{"NameWithSurrogate",
                [](JobSpec& s) { s.name = "\xed\xa0\x80"; }, "not UTF-8"},
        BadSpec{"BlankName", [](JobSpec& s) { s.name = "  "; },
                "spaces at its ends"},
        BadSpec{"BlankAccelerator",
                [](JobSpec& s) { s.accelerator_type = " "; },
                "the accelerator type \" \""},
        BadSpec{"LevelOfAnExpression",
                [](JobSpec& s) { s.topology = {.level = "a=b"}; },
                "is an expression"},
        BadSpec{"BlankSelector", [](JobSpec& s) { s.selectors = {" "}; },
                "a selector is blank"},
        BadSpec{"HugeSelector",
                [](JobSpec& s) { s.selectors = {std::string(9'000, 'x')}; },
                "xxx...\": column 1"},
        BadSpec{"BlankLabel",
                [](JobSpec& s) {
                  s.labels = {{" ", "x"}};
                },
                "the label \" \""},
        BadSpec{"HugeArray", [](JobSpec& s) { s.array = "0-100000"; },
                "column 1: with it there are more than 100000"},
        BadSpec{"BadFailures", [](JobSpec& s) { s.max_failures = -2; },
                "max_failures is -2"},
        BadSpec{"NoTime",
                [](JobSpec& s) { s.time_limit = absl::ZeroDuration(); },
                "the time limit is 0, 1ms to 8760h are possible"},
        BadSpec{"TimeOfAges",
                [](JobSpec& s) { s.time_limit = absl::Hours(9'000); },
                "the time limit is 9000h"},
        BadSpec{"NegativeGrace",
                [](JobSpec& s) { s.grace = -absl::Seconds(1); },
                "the grace is -1s, 0 to 1h are possible"},
        BadSpec{"LongGrace",
                [](JobSpec& s) { s.grace = absl::InfiniteDuration(); },
                "the grace is inf"},
        BadSpec{"LongRetryDelay",
                [](JobSpec& s) { s.retry_delay = absl::Hours(2); },
                "the retry delay is 2h, 0 to 1h are possible"},
        BadSpec{"BadKeep", [](JobSpec& s) { s.num_to_keep = -1; },
                "num_to_keep is -1"},
        BadSpec{"ShortHash", [](JobSpec& s) { s.package_hash = "abc"; },
                "32 bytes"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(JobSpecTest, AcceptsWhatIsSensible) {
  JobSpec spec = Good();
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "default"));
  spec.resources_per_worker.Set(kGpu, Amount::FromTenThousandths(2'500));
  spec.storage_path = "/mnt/shared";
  spec.max_failures = -1;
  spec.time_limit = absl::Minutes(5);
  spec.grace = absl::ZeroDuration();
  spec.retry_delay = absl::Hours(1);
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "team-a"));
  spec.resources_per_worker.Set(kGpu, Amount::FromUnits(8));
  spec.name.clear();
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "default"));
  spec.name = "caf\u00e9 \u6f22 \U0001f600 \U0010ffff";
  spec.environment = {{"COHORT_DATA", "/data"}, {"COHORT_LOG", "debug"}};
  COHORT_EXPECT_OK(ValidateJobSpec(spec, "default"));
}

TEST(JobSpecTest, RefusesANamespaceThatCannotBe) {
  EXPECT_THAT(ValidateJobSpec(Good(), ""),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort::head
