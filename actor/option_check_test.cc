#include "actor/option_check.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::actor {
namespace {

using ::testing::HasSubstr;

MATCHER_P(IsRefused, why, "") {
  return ExplainMatchResult(
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)), arg,
      result_listener);
}

TEST(OptionCheckTest, TakesWhatRayMeansByThem) {
  COHORT_EXPECT_OK(CheckOptions(ActorOptions(), /*is_group=*/false));
  COHORT_EXPECT_OK(CheckOptions(TaskOptions()));
  COHORT_EXPECT_OK(CheckOptions(
      ActorOptions{
          .max_restarts = -1, .max_task_retries = -1, .max_pending_calls = -1},
      /*is_group=*/false));
  COHORT_EXPECT_OK(CheckOptions(ActorOptions{.restart = RestartPolicy::kAll},
                                /*is_group=*/true));
  COHORT_EXPECT_OK(CheckOptions(TaskOptions{.max_retries = -1}));
}

TEST(OptionCheckTest, NamesTheOption) {
  const auto check = [](const ActorOptions& options) {
    return CheckOptions(options, /*is_group=*/false);
  };
  EXPECT_THAT(check({.max_restarts = -2}), IsRefused("max_restarts is -2: "));
  EXPECT_THAT(check({.max_restarts = 1'000'001}), IsRefused("max_restarts"));
  EXPECT_THAT(check({.max_task_retries = -2}),
              IsRefused("max_task_retries is -2: "));
  EXPECT_THAT(check({.max_pending_calls = -2}),
              IsRefused("max_pending_calls is -2: "));
  EXPECT_THAT(check({.resources = {{"CPU", 1}}}), IsRefused("set num_cpus"));
  EXPECT_THAT(check({.restart = RestartPolicy::kNone}),
              IsRefused("restart is for groups"));
  EXPECT_THAT(check({.env_vars = {{"COHORT_JOB_ID", "1"}}}),
              IsRefused("env_vars sets COHORT_JOB_ID"));
  EXPECT_THAT(CheckOptions(TaskOptions{.max_retries = -2}),
              IsRefused("max_retries is -2: "));
  EXPECT_THAT(CheckOptions(TaskOptions{.resources = {{"GPU", 1}}}),
              IsRefused("set num_gpus"));
}

}  // namespace
}  // namespace cohort::actor
