#include "actor/task_pool.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/actor_end.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/codec.h"
#include "actor/demangle.h"
#include "actor/group_tree.h"
#include "actor/parameter.h"
#include "actor/task_executor.h"
#include "actor/task_shape.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"

namespace cohort::actor {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// How calls to an actor end that has died: they were there, or never were.
absl::Status DiedDuringCall() {
  return EndedDuringCall(v1::ActorStanding(), v1::ActorStanding());
}
absl::Status DiedBefore() { return NotStarted(v1::ActorStanding()); }

// An executor of which a test says every word.
class ScriptedExecutor final : public CallTarget {
 public:
  struct Open {
    std::string function;
    std::string arguments;
    Done done;
  };

  uint64_t Call(CalledMethod method, std::string arguments,
                Done done) override {
    const std::string name = Demangle(method.name);
    if (dead_.has_value()) {
      std::move(done)(*dead_);
    } else if (absl::StrContains(name, "::Begin")) {
      begin_ = std::move(done);
    } else if (absl::StrContains(name, "::Asked")) {
      asked_ = std::move(done);
    } else if (absl::StrContains(name, "::Answer")) {
      answers.push_back(std::move(arguments));
      std::move(done)(std::string());
    } else if (name == kFlushMethod) {
      flush = std::move(done);
    } else {
      tasks.push_back({method.name, std::move(arguments), std::move(done)});
      numbers_[++last_] = tasks.back().arguments;
      return last_;
    }
    return ++last_;
  }
  void Cancel(uint64_t /*call*/) override {}
  void Tell(uint64_t call, CallNotice notice) override {
    (notice == CallNotice::kCancelled ? cancelled : withdrawn)
        .push_back(numbers_.at(call));
  }

  void Begin() { std::exchange(begin_, nullptr)(std::string()); }
  void FailToBegin(const absl::Status& why) {
    std::exchange(begin_, nullptr)(why);
  }
  // One of its tasks, the first.
  void Finish(absl::StatusOr<std::string> result = "done", int which = 0) {
    Open task = std::move(tasks[static_cast<size_t>(which)]);
    tasks.erase(tasks.begin() + which);
    std::move(task.done)(std::move(result));
  }
  bool IsAsked() const { return asked_ != nullptr; }
  void FailAsked(const absl::Status& why) {
    Done done = std::move(asked_);
    asked_ = nullptr;
    std::move(done)(why);
  }
  void Ask(const TaskAsks& asks) {
    std::exchange(asked_, nullptr)(*EncodeValue(asks));
  }
  void Die() {
    dead_ = DiedBefore();
    while (!tasks.empty()) Finish(DiedDuringCall());
    if (asked_ != nullptr) std::exchange(asked_, nullptr)(DiedDuringCall());
    if (begin_ != nullptr) std::exchange(begin_, nullptr)(*dead_);
  }

  std::vector<Open> tasks;
  std::vector<std::string> answers;
  // The arguments of tasks of which it was told.
  std::vector<std::string> cancelled;
  std::vector<std::string> withdrawn;
  Done flush;

 private:
  std::map<uint64_t, std::string> numbers_;
  std::optional<absl::Status> dead_;
  Done begin_;
  Done asked_;
  uint64_t last_ = 0;
};

class TaskPoolTest : public ::testing::Test, public ExecutorSource {
 protected:
  ~TaskPoolTest() override {
    pool_->Stop(absl::CancelledError("the end"));
    // What is called ends, too; else each would own itself by its callback.
    for (const auto& executor : executors) executor->Die();
  }

  void Make(const TaskOptions& options, OnMade on_made) override {
    asked_for.push_back(options.num_cpus.units());
    if (!make_status.ok()) return std::move(on_made)(make_status);
    executors.push_back(std::make_shared<ScriptedExecutor>());
    ids.push_back(JobId::New(random_));
    std::move(on_made)(Made{ids.back(), executors.back()});
  }
  void End(const JobId& id) override { ended.push_back(id); }

  // Its end goes to `ends[name]`.
  uint64_t Run(const std::string& name, const TaskOptions& options = {}) {
    return pool_->Run("task", name, options,
                      [this, name](absl::StatusOr<std::string> result) {
                        EXPECT_FALSE(ends.contains(name)) << name;
                        ends.emplace(name, std::move(result));
                      });
  }
  void Pass(absl::Duration time) { executor_.AdvanceBy(time); }
  std::vector<std::string> Sent(size_t executor) {
    std::vector<std::string> sent;
    for (const auto& each : executors[executor]->tasks) {
      sent.push_back(each.arguments);
    }
    return sent;
  }

  ManualExecutor executor_;
  SeededRandom random_{1};
  absl::Status make_status;
  std::vector<double> asked_for;
  std::vector<std::shared_ptr<ScriptedExecutor>> executors;
  std::vector<JobId> ids;
  std::vector<JobId> ended;
  std::map<std::string, absl::StatusOr<std::string>> ends;
  const std::shared_ptr<TaskPool> pool_ =
      TaskPool::New({.max_waiting = 4}, *this, executor_, executor_);
};

TEST_F(TaskPoolTest, RunsATaskOnAnExecutorThatServes) {
  Run("a");
  ASSERT_THAT(executors, SizeIs(1));
  EXPECT_THAT(Sent(0), IsEmpty());
  executors[0]->Begin();
  EXPECT_THAT(Sent(0), ElementsAre("a"));
  executors[0]->Finish("result");
  EXPECT_EQ(*ends.at("a"), "result");
  // The next one finds it warm.
  Run("b");
  EXPECT_THAT(executors, SizeIs(1));
  EXPECT_THAT(Sent(0), ElementsAre("b"));
}

TEST_F(TaskPoolTest, AsksForAsManyAsWaitButNotForAll) {
  for (const char* name : {"a", "b", "c", "d"}) Run(name);
  EXPECT_THAT(executors, SizeIs(2));
  executors[0]->Begin();
  EXPECT_THAT(executors, SizeIs(3));
  executors[1]->Begin();
  executors[2]->Begin();
  EXPECT_THAT(Sent(0), ElementsAre("a"));
  EXPECT_THAT(Sent(1), ElementsAre("b"));
  EXPECT_THAT(Sent(2), ElementsAre("c"));
}

TEST_F(TaskPoolTest, EachShapeHasItsExecutors) {
  Run("small");
  Run("large", {.num_cpus = 4});
  EXPECT_THAT(asked_for, ElementsAre(1, 4));
  executors[1]->Begin();
  EXPECT_THAT(Sent(1), ElementsAre("large"));
}

TEST_F(TaskPoolTest, AnExecutorThatDiedCostsARetry) {
  Run("a", {.max_retries = 1});
  executors[0]->Begin();
  executors[0]->Die();
  ASSERT_THAT(executors, SizeIs(2));
  EXPECT_THAT(ended, ElementsAre(ids[0]));
  executors[1]->Begin();
  EXPECT_THAT(Sent(1), ElementsAre("a"));
  executors[1]->Die();
  EXPECT_EQ(GetReason(ends.at("a").status()), kReasonMayHaveRun);
}

TEST_F(TaskPoolTest, ExceptionsAreRetriedWhenAsked) {
  const absl::Status thrown =
      SetReason(absl::UnknownError("no"), kReasonException);
  Run("once");
  executors[0]->Begin();
  executors[0]->Finish(thrown);
  EXPECT_EQ(GetReason(ends.at("once").status()), kReasonException);
  Run("again", {.max_retries = 1, .retry_exceptions = true});
  executors[0]->Finish(thrown);
  EXPECT_THAT(Sent(0), ElementsAre("again"));
  executors[0]->Finish("done");
  EXPECT_EQ(*ends.at("again"), "done");
}

TEST_F(TaskPoolTest, ProgramsThatDoNotComeToServeEndTheirTasks) {
  Run("a");
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(executors.size(), i + 1);
    EXPECT_THAT(ends, IsEmpty());
    executors[i]->FailToBegin(DiedBefore());
    Pass(absl::Seconds(1));
  }
  EXPECT_EQ(GetReason(ends.at("a").status()), kReasonNotStarted);
  EXPECT_THAT(executors, SizeIs(3));
}

TEST_F(TaskPoolTest, AHeadThatIsAwayIsAskedAgain) {
  make_status = absl::UnavailableError("away");
  Run("a");
  Pass(absl::Seconds(60));
  EXPECT_THAT(ends, IsEmpty());
  make_status = absl::OkStatus();
  Pass(absl::Seconds(1));
  ASSERT_THAT(executors, SizeIs(1));
  executors[0]->Begin();
  EXPECT_THAT(Sent(0), ElementsAre("a"));
}

TEST_F(TaskPoolTest, WhatCanNeverBeEndsAtOnce) {
  make_status = absl::InvalidArgumentError("num_cpus is -1");
  Run("a", {.num_cpus = -1});
  EXPECT_THAT(ends.at("a").status().message(), HasSubstr("num_cpus is -1"));
}

TEST_F(TaskPoolTest, CancelledTasksAreNotSent) {
  const uint64_t a = Run("a");
  Run("b");
  pool_->Cancel(a);
  EXPECT_EQ(GetReason(ends.at("a").status()), kReasonCancelled);
  executors[0]->Begin();
  EXPECT_THAT(Sent(0), ElementsAre("b"));
  // One that is there runs on, and its end is nobody's.
  const uint64_t c = Run("c");
  executors[1]->Begin();
  EXPECT_THAT(Sent(1), ElementsAre("c"));
  pool_->Cancel(c);
  EXPECT_EQ(GetReason(ends.at("c").status()), kReasonCancelled);
  EXPECT_THAT(executors[1]->cancelled, ElementsAre("c"));
  // It holds its place until it has ended.
  Run("d");
  EXPECT_THAT(Sent(1), ElementsAre("c"));
  executors[1]->Finish(DiedDuringCall());
  EXPECT_THAT(Sent(1), IsEmpty()) << "it is not run again";
}

TEST_F(TaskPoolTest, ForceEndsTheProcessAndSendsTheOthersElsewhere) {
  Run("warm");
  executors[0]->Begin();
  executors[0]->Finish();  // took no time: it is sent many ahead
  const TaskOptions once = {.max_retries = 0};
  const uint64_t a = Run("a", once);
  Run("begun", once);
  Run("not begun", once);
  Run("again");
  ASSERT_THAT(Sent(0), ElementsAre("a", "begun", "not begun", "again"));
  pool_->Cancel(a);
  EXPECT_EQ(GetReason(ends.at("a").status()), kReasonCancelled);
  pool_->ForceCancel(a);
  EXPECT_THAT(executors[0]->withdrawn,
              UnorderedElementsAre("begun", "not begun", "again"));
  EXPECT_THAT(ended, IsEmpty()) << "it has not said what has begun";
  executors[0]->Finish(CallWithdrawn(), 2);
  std::move(executors[0]->flush)(std::string());
  EXPECT_THAT(ended, ElementsAre(ids[0]));
  executors[0]->Die();
  EXPECT_EQ(GetReason(ends.at("begun").status()), kReasonMayHaveRun);
  EXPECT_FALSE(ends.contains("not begun"));
  ASSERT_THAT(executors, SizeIs(Ge(2u)));
  executors[1]->Begin();
  executors[1]->Finish();
  EXPECT_THAT(Sent(1), SizeIs(1));
  executors[1]->Finish();
  COHORT_EXPECT_OK(ends.at("not begun"));
  COHORT_EXPECT_OK(ends.at("again"));
}

TEST_F(TaskPoolTest, ForceDoesNotWaitForAProcessThatHangs) {
  const uint64_t a = Run("a");
  executors[0]->Begin();
  pool_->ForceCancel(a);
  EXPECT_THAT(ended, IsEmpty());
  Pass(absl::Seconds(2));
  EXPECT_THAT(ended, ElementsAre(ids[0]));
}

TEST_F(TaskPoolTest, ActorsAskForTasksToo) {
  const auto actor = std::make_shared<ScriptedExecutor>();
  pool_->Serve(actor);
  TaskAsks asks;
  asks.run.push_back({.id = 7, .function = "task", .arguments = "x"});
  actor->Ask(asks);
  executors[0]->Begin();
  EXPECT_THAT(Sent(0), ElementsAre("x"));
  executors[0]->Finish();
  ASSERT_THAT(actor->answers, SizeIs(1));
  // Its process ends: nobody waits for what it asked for.
  asks.run[0].arguments = "y";
  actor->Ask(asks);
  EXPECT_THAT(Sent(0), ElementsAre("y"));
  actor->FailAsked(DiedDuringCall());
  EXPECT_THAT(executors[0]->cancelled, ElementsAre("y"));
  // The next one is asked; once it is dead nobody is.
  EXPECT_TRUE(actor->IsAsked());
  actor->FailAsked(DiedBefore());
  EXPECT_FALSE(actor->IsAsked());
  executors[0]->Finish();
}

TEST_F(TaskPoolTest, RefusesOrWaitsWhenFull) {
  for (const char* name : {"a", "b", "c", "d"}) Run(name);
  Run("e", {.when_full = WhenFull::kDontWait});
  EXPECT_EQ(GetReason(ends.at("e").status()), kReasonQueueFull);
  std::thread waits([this] { Run("f"); });
  executors[0]->Begin();
  waits.join();
  EXPECT_THAT(ends, SizeIs(1));
}

TEST_F(TaskPoolTest, IdleExecutorsGoAfterAWhile) {
  Run("a");
  executors[0]->Begin();
  executors[0]->Finish();
  Pass(absl::Seconds(1));
  EXPECT_THAT(ended, IsEmpty());
  Pass(absl::Seconds(2));
  EXPECT_THAT(ended, ElementsAre(ids[0]));
}

TEST_F(TaskPoolTest, IdleExecutorsGoSoonWhenOthersWait) {
  Run("a");
  executors[0]->Begin();
  executors[0]->Finish();
  pool_->SetRoomWanted(true);
  Pass(absl::Milliseconds(200));
  EXPECT_THAT(ended, ElementsAre(ids[0]));
}

TEST_F(TaskPoolTest, IdleExecutorsMakeRoomForAShapeThatHasNone) {
  Run("a");
  executors[0]->Begin();
  executors[0]->Finish();
  // Its executor comes soon, as where there is room.
  Run("b", {.num_cpus = 2});
  Pass(absl::Milliseconds(80));
  executors[1]->Begin();
  executors[1]->Finish();
  Pass(absl::Milliseconds(500));
  EXPECT_THAT(ended, IsEmpty());
  Run("c", {.num_cpus = 3});
  Pass(absl::Milliseconds(250));
  EXPECT_THAT(ended, ElementsAre(ids[0], ids[1]));
}

TEST_F(TaskPoolTest, ABusyExecutorIsGivenBackAfterItsTask) {
  Run("a");
  Run("b");
  executors[0]->Begin();
  pool_->SetRoomWanted(true);
  Pass(absl::Seconds(1));
  EXPECT_THAT(ended, IsEmpty());
  executors[0]->Finish();
  EXPECT_THAT(ended, ElementsAre(ids[0]));
  EXPECT_THAT(ends, SizeIs(1));
}

TEST_F(TaskPoolTest, ATaskOfATaskHasAPlaceWhereItsParentWaits) {
  Run("parent");
  executors[0]->Begin();
  TaskAsks asks;
  asks.run.push_back({.id = 7, .function = "child", .arguments = "child"});
  executors[0]->Ask(asks);
  // The parent may go on for long.
  EXPECT_THAT(Sent(0), ElementsAre("parent"));
  executors[0]->Ask({.run = {}, .cancel = {}, .waiting = 1});
  EXPECT_THAT(Sent(0), ElementsAre("parent", "child"));
  auto child = std::move(executors[0]->tasks[1].done);
  executors[0]->tasks.pop_back();
  std::move(child)(std::string("value"));
  EXPECT_THAT(executors[0]->answers,
              ElementsAre(*WriteParameters(
                  uint64_t{7}, absl::StatusOr<std::string>("value"))));
  executors[0]->Finish("sum");
  EXPECT_EQ(*ends.at("parent"), "sum");
}

TEST_F(TaskPoolTest, TasksThatRunOthersAreSentOneByOne) {
  Run("short");
  executors[0]->Begin();
  for (int i = 0; i < 100; ++i) {
    executors[0]->Finish();
    ends.erase("short");
    Run("short");
  }
  executors[0]->Finish();
  for (const char* name : {"a", "b", "c"}) Run(name);
  EXPECT_THAT(Sent(0), ElementsAre("a", "b", "c"));  // short ones go ahead
  TaskAsks asks;
  asks.run.push_back({.id = 1, .function = "f", .arguments = "child"});
  executors[0]->Ask(asks);
  for (int i = 0; i < 3; ++i) executors[0]->Finish();
  EXPECT_THAT(Sent(0), ElementsAre("child"));
}

TEST_F(TaskPoolTest, LittleIsSentAheadOfLargeArguments) {
  const std::string large((4 << 20) - 1, 'x');
  Run("short");
  executors[0]->Begin();
  executors[0]->Finish();
  for (int i = 0; i < 4; ++i) Run(absl::StrCat(i, large));
  EXPECT_THAT(Sent(0), SizeIs(2));
  executors[0]->Finish();
  EXPECT_THAT(Sent(0), SizeIs(2));
}

TEST_F(TaskPoolTest, WhatATaskReturnsIsNotTheEndOfItsExecutor) {
  // As one does that passes on how its own task ended.
  Run("parent", {.max_retries = -1});
  executors[0]->Begin();
  executors[0]->Finish(
      SetReason(absl::UnavailableError("of its child"), kReasonMayHaveRun));
  EXPECT_EQ(GetReason(ends.at("parent").status()), kReasonMayHaveRun);
  EXPECT_THAT(ended, IsEmpty());
  Run("next");
  EXPECT_THAT(Sent(0), ElementsAre("next"));
}

TEST_F(TaskPoolTest, ARefusedAskLeavesWhatOthersWillRun) {
  Run("a");
  executors[0]->Begin();
  make_status = absl::InvalidArgumentError("no more");
  Run("b");
  EXPECT_THAT(ends, IsEmpty());
  executors[0]->Finish();
  EXPECT_THAT(Sent(0), ElementsAre("b"));
}

TEST_F(TaskPoolTest, AChildOutlivesItsParent) {
  Run("parent");
  executors[0]->Begin();
  TaskAsks asks;
  asks.run.push_back(
      {.id = 1, .function = "f", .arguments = "x", .options = {.num_cpus = 2}});
  executors[0]->Ask(asks);
  executors[1]->Begin();
  executors[0]->Finish();
  Pass(absl::Seconds(10));
  EXPECT_THAT(ended, IsEmpty());
  executors[1]->Finish();
  Pass(absl::Seconds(10));
  EXPECT_THAT(ended, SizeIs(2));
}

TEST(TaskShapeTest, ManyThatEndedAreDropped) {
  TaskShape shape;
  for (int i = 0; i < 100; ++i) {
    shape.waiting.push_back(std::make_shared<WaitingTask>());
    if (i % 10 == 0) shape.waiting.back()->done = [](const auto&) {};
  }
  shape.waiting_live = 10;
  DropEnded(shape);
  EXPECT_EQ(shape.waiting.size(), 10);
  shape.waiting.push_back(std::make_shared<WaitingTask>());
  DropEnded(shape);
  EXPECT_EQ(shape.waiting.size(), 11);
}

TEST_F(TaskPoolTest, WhatADeadExecutorsTasksAskedForIsDropped) {
  Run("parent", {.max_retries = 0});
  executors[0]->Begin();
  TaskAsks asks;
  asks.run.push_back(
      {.id = 1, .function = "f", .arguments = "x", .options = {.num_cpus = 2}});
  executors[0]->Ask(asks);
  ASSERT_THAT(executors, SizeIs(2));
  executors[0]->Die();
  executors[1]->Begin();
  EXPECT_THAT(Sent(1), IsEmpty());
}

TEST_F(TaskPoolTest, AllEndsWithTheSession) {
  Run("sent");
  Run("waits");
  executors[0]->Begin();
  pool_->End(absl::CancelledError("over"));
  EXPECT_THAT(ends, SizeIs(2));
  Run("later");
  EXPECT_THAT(ends.at("later").status().message(), HasSubstr("over"));
  executors[0]->Finish();
}

TEST_F(TaskPoolTest, CountsWhatItHas) {
  Run("a");
  Run("b");
  executors[0]->Begin();
  const std::vector<v1::TaskCounts> counts = pool_->Counts();
  ASSERT_THAT(counts, SizeIs(1));
  EXPECT_EQ(counts[0].shape(), "CPU: 1");
  EXPECT_EQ(counts[0].waiting(), 1);
  EXPECT_EQ(counts[0].running(), 1);
  EXPECT_EQ(counts[0].executors(), 1);
}

}  // namespace
}  // namespace cohort::actor
