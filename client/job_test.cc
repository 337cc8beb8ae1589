#include "client/job.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

JobSpec GoodSpec() {
  JobSpec spec;
  spec.command = {"true"};
  return spec;
}

void ExpectInvalid(const JobSpec& spec, const char* what) {
  EXPECT_THAT(ValidateJobSpec(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
}

// As Ray's ScalingConfig.
TEST(ScalingConfig, DefaultsToOneCpuOrOneGpu) {
  EXPECT_EQ(ResourcesPerWorker({})->ToString(), "CPU 1");
  EXPECT_EQ(ResourcesPerWorker({.use_gpu = true})->ToString(), "GPU 1");
}

TEST(ScalingConfig, AddsAGpuToResourcesThatNameNone) {
  ResourceSet cpus;
  cpus.Set(kCpu, Amount::FromUnits(3));
  EXPECT_EQ(ResourcesPerWorker({.use_gpu = true, .resources_per_worker = cpus})
                ->ToString(),
            "CPU 3, GPU 1");
  EXPECT_EQ(ResourcesPerWorker({.resources_per_worker = cpus})->ToString(),
            "CPU 3");
}

TEST(ScalingConfig, RefusesGpusWithoutUseGpu) {
  ResourceSet gpus;
  gpus.Set(kGpu, Amount::FromUnits(1));
  EXPECT_THAT(
      ResourcesPerWorker({.resources_per_worker = gpus}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("set use_gpu")));
}

TEST(PlacementStrategy, ReadsItsOwnNamesInEitherCase) {
  EXPECT_THAT(ParsePlacementStrategy("STRICT_SPREAD"),
              IsOkAndHolds(PlacementStrategy::kStrictSpread));
  EXPECT_THAT(ParsePlacementStrategy("pack"),
              IsOkAndHolds(PlacementStrategy::kPack));
  EXPECT_THAT(
      ParsePlacementStrategy("tight"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("STRICT_PACK")));
}

TEST(JobSpec, RefusesWhatCanNeverRun) {
  COHORT_EXPECT_OK(ValidateJobSpec(GoodSpec()));

  JobSpec spec = GoodSpec();
  spec.command.clear();
  ExpectInvalid(spec, "command is empty");
  spec.command = {std::string("a\0b", 3)};
  ExpectInvalid(spec, "NUL");

  spec = GoodSpec();
  spec.environment["1X"] = "y";
  ExpectInvalid(spec, "\"1X\"");

  spec = GoodSpec();
  spec.scaling_config.num_workers = 0;
  ExpectInvalid(spec, "num_workers is 0");
  spec.scaling_config.num_workers = 1'000'000;
  ExpectInvalid(spec, "num_workers is 1000000");

  spec = GoodSpec();
  spec.scaling_config.use_gpu = true;
  spec.scaling_config.resources_per_worker.emplace();
  spec.scaling_config.resources_per_worker->Set(
      kGpu, Amount::FromTenThousandths(15'000));
  ExpectInvalid(spec, "only whole GPUs");

  spec = GoodSpec();
  spec.run_config.storage_path = "relative";
  ExpectInvalid(spec, "not absolute");
  spec = GoodSpec();
  spec.run_config.failure_config.max_failures = -2;
  ExpectInvalid(spec, "max_failures is -2");
  spec = GoodSpec();
  spec.run_config.checkpoint_config.num_to_keep = 0;
  ExpectInvalid(spec, "num_to_keep is 0");
  spec = GoodSpec();
  spec.run_config.name = "two\nlines";
  ExpectInvalid(spec, "not one line");
}

}  // namespace
}  // namespace cohort
