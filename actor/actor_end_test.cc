#include "actor/actor_end.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::actor {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

v1::ActorStanding Standing(const std::string& name, const std::string& type) {
  v1::ActorStanding standing;
  standing.set_job_id(std::string(16, '\x2a'));
  standing.set_name(name);
  standing.set_class_name(type);
  standing.set_state(v1::JOB_STATE_PENDING);
  standing.set_reason("no node has 64 CPU");
  return standing;
}

TEST(ActorEndTest, NamesTheActorAndTheMethod) {
  const auto text = [](const v1::ActorStanding& standing) {
    return std::string(OfCall(NotStarted(standing), "Add").message());
  };
  EXPECT_THAT(text(Standing("counter-7", "7Counter")),
              StartsWith("actor counter-7 (Counter) is dead and did not run "
                         "Add: no node"));
  EXPECT_THAT(text(Standing("", "7Counter")),
              StartsWith("actor 2a2a2a2a2a2a (Counter) is dead and"));
  EXPECT_THAT(text(Standing("", kExecutorClass)),
              StartsWith("task executor 2a2a2a2a2a2a is dead and"));
}

TEST(ActorEndTest, NamesAMethodOnce) {
  const absl::Status named =
      OfCall(NotStarted(Standing("a", "7Counter")), "Add");
  EXPECT_TRUE(IsActorEnd(named));
  EXPECT_EQ(GetReason(named), kReasonNotStarted);
  EXPECT_EQ(OfCall(named, "Other"), named);
  const absl::Status other = absl::AbortedError("the call");
  EXPECT_EQ(OfCall(other, "Add"), other);
}

TEST(ActorEndTest, SaysHowTheProcessEndedOnce) {
  v1::ActorStanding standing = Standing("a", "7Counter");
  standing.set_ended_incarnation(1);
  standing.mutable_exit()->set_code(125);
  const auto text = [&](const std::string& reason) {
    standing.set_reason(reason);
    return std::string(NotStarted(standing).message());
  };
  EXPECT_EQ(text("attempt 1: rank 0 exited with code 125"),
            "actor a (Counter) is dead and did not run the call: its process "
            "exited with status 125");
  EXPECT_THAT(text("attempt 1: storage path: full"),
              EndsWith("exited with status 125: storage path: full"));
  EXPECT_THAT(text("attempt 2: rank 1 exited with code 3; 2 of 2 restarts"),
              EndsWith(": rank 1 exited with code 3; 2 of 2 restarts"));
}

TEST(ActorEndTest, SaysWhereTheLastWordsAre) {
  v1::ActorStanding standing = Standing("a", "7Counter");
  standing.set_ended_incarnation(1);
  standing.set_reason("");
  const auto text = [&] {
    return std::string(EndedDuringCall(standing, standing).message());
  };
  EXPECT_THAT(text(),
              EndsWith(" (`cohort logs 2a2a2a2a2a2a` shows what it wrote)"));
  standing.set_stderr_tail("boom");
  EXPECT_THAT(text(), EndsWith("; the end of its stderr: boom"));
}

TEST(ActorEndTest, SaysWhatOneWithoutAPlaceWaitsFor) {
  v1::ActorStanding standing = Standing("a", "7Counter");
  EXPECT_EQ(WaitText(standing),
            "actor a (Counter) waits: no node has 64 CPU (`cohort explain "
            "2a2a2a2a2a2a` says more)");
  standing.set_state(v1::JOB_STATE_RUNNING);
  EXPECT_EQ(WaitText(standing), "");
}

}  // namespace
}  // namespace cohort::actor
