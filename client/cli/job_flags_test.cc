#include "client/cli/job_flags.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/cli/errors.h"
#include "common/testing/status_matchers.h"

namespace cohort::cli {
namespace {

using ::testing::HasSubstr;

std::string ResourcesOf(const JobFlags& flags) {
  const auto spec = ToJobSpec(flags, {"true"});
  if (!spec.ok()) return std::string(spec.status().message());
  return ResourcesPerWorker(spec->scaling_config)->ToString();
}

void ExpectUsage(const JobFlags& flags, const char* part) {
  const absl::Status status = ToJobSpec(flags, {"true"}).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part)));
  EXPECT_EQ(ExitCodeFor(status), 2);
}

TEST(JobFlags, MeanOneWorkerWithOneCpuByDefault) {
  const auto spec = ToJobSpec({}, {"prog", "-x"});
  COHORT_ASSERT_OK(spec);
  EXPECT_EQ(spec->scaling_config.num_workers, 1);
  EXPECT_EQ(spec->scaling_config.placement_strategy, PlacementStrategy::kPack);
  EXPECT_EQ(spec->run_config.failure_config.restart, RestartPolicy::kAll);
  EXPECT_EQ(spec->run_config.failure_config.max_failures, std::nullopt);
  EXPECT_EQ(spec->run_config.checkpoint_config.num_to_keep, std::nullopt);
  EXPECT_THAT(spec->command, ::testing::ElementsAre("prog", "-x"));
  EXPECT_EQ(ResourcesOf({}), "CPU 1");
}

TEST(JobFlags, AddUpToResources) {
  EXPECT_EQ(ResourcesOf({.cpus = "0.5"}), "CPU 0.5");
  EXPECT_EQ(ResourcesOf({.cpus = "0"}), "nothing");
  EXPECT_EQ(ResourcesOf({.use_gpu = true}), "CPU 1, GPU 1");
  EXPECT_EQ(ResourcesOf({.gpus = "2"}), "CPU 1, GPU 2");
  EXPECT_EQ(ResourcesOf({.gpus = "2", .use_gpu = true}), "CPU 1, GPU 2");
  EXPECT_EQ(ResourcesOf({.gpus = "0"}), "CPU 1");
  EXPECT_EQ(ResourcesOf({.memory = "64GiB", .resources = "license=1.5"}),
            "CPU 1, license 1.5, memory 64GiB");
  EXPECT_EQ(ResourcesOf({.resources = "CPU=0,GPU=1"}), "GPU 1");
}

TEST(JobFlags, RefuseNamesThatMeanTheNewestJob) {
  const auto named = [](const char* name) {
    JobFlags flags;
    flags.spec.run_config.name = name;
    return flags;
  };
  for (const char* name : {"last", "last~1"})
    ExpectUsage(named(name), "--name");
  for (const char* name : {"lasting", "last~x", "last.1"}) {
    COHORT_EXPECT_OK(ToJobSpec(named(name), {"true"}));
  }
}

TEST(JobFlags, RefuseContradictions) {
  ExpectUsage({.gpus = "0", .use_gpu = true}, "--use-gpu");
  ExpectUsage({.use_gpu = true, .resources = "GPU=0"}, "--use-gpu");
  ExpectUsage({.cpus = "1", .resources = "CPU=1"}, "--cpus and --resources");
  ExpectUsage({.memory = "1k", .resources = "memory=1k"},
              "--memory and --resources");
}

TEST(JobFlags, RefuseNegativeAndAbsurdNumbers) {
  for (const char* text : {"0", "-1", "1.5", "10001", "99999999999999999999",
                           " 2", "2 ", "+2", "two"}) {
    ExpectUsage({.num_workers = text}, "--num-workers");
  }
  for (const char* text : {"-1", "1e9", "inf", "nan", "0.00001", "2 000"}) {
    ExpectUsage({.cpus = text}, "--cpus");
    ExpectUsage({.gpus = text}, "--gpus");
  }
  ExpectUsage({.gpus = "1.5"}, "only whole GPUs");
  for (const char* text : {"-1", "64XiB", "99999999999999999999", "8000P"}) {
    ExpectUsage({.memory = text}, "--memory");
  }
  ExpectUsage({.max_failures = "-2"}, "--max-failures");
  ExpectUsage({.restart = "some"}, "all, one, none");
  ExpectUsage({.num_to_keep = "0"}, "--num-to-keep");
  ExpectUsage({.resources = "license"}, "--resources");
  ExpectUsage({.resources = "license=-1"}, "--resources");
  ExpectUsage({.strategy = "tight"}, "STRICT_SPREAD");
  ExpectUsage({.environment = {"=x"}}, "--env");
  ExpectUsage({.environment = {"A-B=x"}}, "A-B");
  ExpectUsage({.secret_env = {"A=x"}}, "takes a name alone");
  ExpectUsage({.secret_env = {"COHORT_TEST_UNSET"}}, "it is not set here");
  ExpectUsage({.environment = {"HOME=x"}, .secret_env = {"HOME"}},
              "HOME has a value already");
  ExpectUsage({.secret_file = {"A"}}, "write NAME=FILE");
  ExpectUsage({.secret_file = {"A=/no/such"}}, "/no/such");
}

TEST(JobFlags, TakeEnvironmentAndPathsAsTyped) {
  const auto spec = ToJobSpec(
      {.storage_path = "here/../there", .environment = {"A=b=c", "EMPTY="}},
      {"true"});
  COHORT_ASSERT_OK(spec);
  EXPECT_EQ(spec->environment.at("A"), "b=c");
  EXPECT_EQ(spec->environment.at("EMPTY"), "");
  EXPECT_EQ(spec->run_config.storage_path,
            (std::filesystem::current_path() / "there").string());
}

TEST(JobFlags, SayHowManyAsTorchrunDoes) {
  const auto spec = ToJobSpec({.nnodes = "3", .nproc_per_node = "4"}, {"true"});
  COHORT_ASSERT_OK(spec);
  EXPECT_EQ(spec->scaling_config.num_workers, 12);
  EXPECT_EQ(spec->scaling_config.workers_per_node, 4);
  const auto one_each = ToJobSpec({.nnodes = "3"}, {"true"});
  COHORT_ASSERT_OK(one_each);
  EXPECT_EQ(one_each->scaling_config.num_workers, 3);
  EXPECT_EQ(one_each->scaling_config.workers_per_node, 1);
  ExpectUsage({.num_workers = "2", .nnodes = "2"}, "exclude each other");
  ExpectUsage({.nnodes = "0"}, "--nnodes");
  ExpectUsage({.nproc_per_node = "65"}, "--nproc-per-node");
  ExpectUsage({.nnodes = "10000", .nproc_per_node = "2"}, "num_workers");
}

TEST(JobFlags, RunInADirectoryOfTheWorkers) {
  const auto spec = ToJobSpec({.working_directory = "."}, {"true"});
  COHORT_ASSERT_OK(spec);
  EXPECT_EQ(spec->working_directory, std::filesystem::current_path().string());
}

TEST(JobFlags, SayWhenAndWhereTheJobStarts) {
  const std::string job(32, 'a');
  JobFlags flags;
  flags.time_limit = "90m";
  flags.grace = "30s";
  flags.retry_delay = "250ms";
  flags.begin = "+90s";
  flags.after = {job, "eval:any"};
  flags.spec.array = "0-99%8";
  flags.labels = {"team=vision", "x=a=b"};
  flags.spec.name_space = "research";
  flags.priority = "-5";
  flags.spec.hold = true;
  flags.spec.run_config.preflight = true;
  flags.selectors = {"zone in (a,b)"};
  flags.tolerations = {"gpu", "team=vision"};
  flags.accelerator = "H100";
  flags.same = "rack";
  const auto spec = ToJobSpec(flags, {"true"});
  COHORT_ASSERT_OK(spec);
  EXPECT_EQ(spec->run_config.time_limit, absl::Minutes(90));
  EXPECT_EQ(spec->run_config.grace, absl::Seconds(30));
  EXPECT_EQ(spec->run_config.failure_config.retry_delay,
            absl::Milliseconds(250));
  EXPECT_EQ(spec->begin_in, absl::Seconds(90));
  EXPECT_EQ(spec->array, "0-99%8");
  EXPECT_EQ(spec->labels.at("x"), "a=b");
  EXPECT_EQ(spec->name_space, "research");
  EXPECT_EQ(spec->priority, -5);
  EXPECT_TRUE(spec->hold);
  EXPECT_TRUE(spec->run_config.preflight);
  EXPECT_EQ(spec->scaling_config.tolerations.size(), 2u);
  EXPECT_TRUE(spec->scaling_config.topology.required);
  EXPECT_EQ(spec->scaling_config.topology.level, "rack");
}

TEST(JobFlags, AfterNamesAJobAndHowItEnds) {
  const auto ok = ParseAfter("eval");
  COHORT_ASSERT_OK(ok);
  EXPECT_EQ(ok->job, "eval");
  EXPECT_EQ(ok->kind, DependencyKind::kOk);
  const auto any = ParseAfter("last~2:any");
  COHORT_ASSERT_OK(any);
  EXPECT_EQ(any->job, "last~2");
  EXPECT_EQ(any->kind, DependencyKind::kAny);
}

TEST(JobFlags, NameTheFlagAndTheColumnOfWhatDoesNotParse) {
  const std::string job(32, 'a');
  ExpectUsage({.time_limit = "soon"}, "--time-limit: \"soon\"");
  ExpectUsage({.time_limit = "0"}, "--time-limit: ");
  ExpectUsage({.begin = "+"}, "--begin +: write how long");
  ExpectUsage({.begin = "+soon"}, "--begin: \"soon\"");
  ExpectUsage({.begin = "+366d"}, "365 days");
  ExpectUsage({.begin = "tomorrow"}, "--begin: \"tomorrow\", column 1");
  ExpectUsage({.begin = "2026-13-24T10:00:00Z"}, "column 6");
  ExpectUsage({.time_limit = "1h3x"}, "column 4: expected a unit");
  ExpectUsage({.grace = "2h"}, "--grace: ");
  ExpectUsage({.retry_delay = "x"}, "--retry-delay: ");
  ExpectUsage({.after = {job + ":now"}}, "column 34: expected ok or any");
  ExpectUsage({.spec = {.array = "0-9%"}},
              "--array: the array \"0-9%\": column 5");
  ExpectUsage({.spec = {.array = "0-999999999"}}, "more than 100000 elements");
  ExpectUsage({.labels = {"team"}}, "--label team: write KEY=VALUE");
  ExpectUsage({.labels = {"a=1", "a=2"}}, "--label a=2");
  ExpectUsage({.priority = "1001"}, "--priority 1001");
  ExpectUsage({.spec = {.array = "0-100000"}},
              "column 1: with it there are more than");
  ExpectUsage({.selectors = {"zone in a"}}, "--selector zone in a: column 9");
  ExpectUsage({.selectors = {" "}}, "a selector is blank");
  ExpectUsage({.accelerator = " "}, "--accelerator: ");
  ExpectUsage({.same = "a=b"}, "--same: the level \"a=b\" is an expression");
  ExpectUsage({.prefer_same = "a=b"}, "--prefer-same: ");
  ExpectUsage({.environment = {"A=1", "A=2"}}, "--env A=2: A has a value");
  ExpectUsage({.tolerations = {"=x"}}, "--tolerate =x: column 1");
  ExpectUsage({.same = "rack", .prefer_same = "rack"},
              "--same and --prefer-same");
}

TEST(JobFlags, DoNotSayAgainInFullWhatIsTooLong) {
  const std::string huge(70'000, 'x');
  for (const JobFlags& flags :
       {JobFlags{.spec = {.run_config = {.name = huge}}},
        JobFlags{.num_workers = huge}, JobFlags{.cpus = huge},
        JobFlags{.memory = huge}, JobFlags{.resources = huge},
        JobFlags{.strategy = huge}, JobFlags{.environment = {huge}},
        JobFlags{.time_limit = huge}, JobFlags{.after = {"a:" + huge}},
        JobFlags{.spec = {.array = huge}}, JobFlags{.labels = {huge}},
        JobFlags{.spec = {.name_space = huge}}, JobFlags{.priority = huge},
        JobFlags{.selectors = {huge}}, JobFlags{.tolerations = {huge}},
        JobFlags{.accelerator = huge}, JobFlags{.same = huge}}) {
    const absl::Status status = ToJobSpec(flags, {"true"}).status();
    EXPECT_EQ(ExitCodeFor(status), 2) << status;
    EXPECT_THAT(status.message(), HasSubstr("xxx..."));
    EXPECT_LT(status.message().size(), 1'000u);
  }
}

}  // namespace
}  // namespace cohort::cli
