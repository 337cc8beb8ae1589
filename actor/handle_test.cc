#include "actor/handle.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "actor/options.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::handle_test {

using ::testing::ElementsAre;

struct StepStats {
  std::string phase;
  std::vector<float> losses;
  std::map<std::string, int64_t> counters;
  COHORT_FIELDS(phase, losses, counters)
};

struct Unwritable {
  std::optional<std::unique_ptr<Unwritable>> next;
  COHORT_FIELDS(next)
};

class Trainer {
 public:
  explicit Trainer(int width) : width_(width) {}

  int Add(int n) { return step_ += n; }
  absl::StatusOr<StepStats> Train(const std::vector<float>& batch) {
    if (batch.empty()) return absl::InvalidArgumentError("empty batch");
    return StepStats{"train", batch, {{"width", width_}}};
  }
  float First(std::span<const float> view) const noexcept { return view[0]; }
  size_t Load(std::unique_ptr<StepStats> stats) { return stats->losses.size(); }
  std::unique_ptr<int> Own() { return std::make_unique<int>(width_); }
  void Take(const Unwritable& /*value*/) {}
  double Scale(double by) { return by * step_; }
  int Scale(int by) { return by * step_; }
  void Reset() { step_ = 0; }
  absl::Status Check() { return absl::AbortedError("no"); }

 private:
  int width_;
  int step_ = 0;
};

// An actor in this process.  Calls wait while it is held.
class LocalTarget final : public actor::CallTarget {
 public:
  explicit LocalTarget(int width) : instance_(New(width)) {}

  uint64_t Call(actor::CalledMethod method, std::string arguments,
                Done done) override {
    calls_[++last_] = {method.name, std::move(arguments), std::move(done)};
    if (!held) Run();
    return last_;
  }

  void Cancel(uint64_t call) override {
    const auto at = calls_.find(call);
    if (at == calls_.end()) return;
    Done done = std::move(at->second.done);
    calls_.erase(at);
    std::move(done)(
        SetReason(absl::CancelledError("by the caller"), kReasonCancelled));
  }

  void Run() {
    while (!calls_.empty()) {
      Pending call = std::move(calls_.begin()->second);
      calls_.erase(calls_.begin());
      std::move(call.done)(instance_.Invoke(call.method, call.arguments));
    }
  }

  bool held = false;

 private:
  struct Pending {
    const char* method;
    std::string arguments;
    Done done;
  };

  static actor::Instance New(int width) {
    const actor::ConstructorCall call =
        actor::EncodeConstructor<Trainer>(width);
    return *actor::Instance::Construct(call.name, *call.arguments);
  }

  actor::Instance instance_;
  uint64_t last_ = 0;
  std::map<uint64_t, Pending> calls_;
};

class HandleTest : public ::testing::Test {
 protected:
  const std::shared_ptr<LocalTarget> target_ =
      std::make_shared<LocalTarget>(64);
  SeededRandom random_{1};
  const Handle<Trainer> trainer_{target_, JobId::New(random_)};
};

TEST_F(HandleTest, CallsMethods) {
  const Future<int> sum = trainer_.Call<&Trainer::Add>(32);
  EXPECT_THAT(sum.Get(), IsOkAndHolds(32));
  EXPECT_THAT(trainer_.Call<&Trainer::Add>(short{1}).Get(), IsOkAndHolds(33));
  const Future<void> reset = trainer_.Call<&Trainer::Reset>();
  COHORT_EXPECT_OK(reset.Get());
  EXPECT_THAT(trainer_.Call<&Trainer::Add>(2).Get(), IsOkAndHolds(2));
  EXPECT_THAT(
      trainer_.Call<Overload<double(double)>(&Trainer::Scale)>(0.5).Get(),
      IsOkAndHolds(1));
}

TEST_F(HandleTest, PassesStructsViewsAndWhatCanOnlyBeMoved) {
  const std::vector<float> batch = {1, 2, 3};
  const auto stats = trainer_.Call<&Trainer::Train>(batch).Get();
  COHORT_ASSERT_OK(stats);
  EXPECT_THAT(stats->losses, ElementsAre(1, 2, 3));
  EXPECT_EQ(stats->counters.at("width"), 64);
  EXPECT_THAT(trainer_.Call<&Trainer::First>(batch).Get(), IsOkAndHolds(1));
  EXPECT_THAT(
      trainer_.Call<&Trainer::Load>(std::make_unique<StepStats>(*stats)).Get(),
      IsOkAndHolds(3u));
  EXPECT_EQ(**trainer_.Call<&Trainer::Own>().Get(), 64);
}

TEST_F(HandleTest, HoldsTheStatusThatAMethodReturned) {
  EXPECT_THAT(trainer_.Call<&Trainer::Check>().Get(),
              StatusIs(absl::StatusCode::kAborted, "no"));
  EXPECT_THAT(trainer_.Call<&Trainer::Train>(std::vector<float>()).Get(),
              StatusIs(absl::StatusCode::kInvalidArgument, "empty batch"));
}

TEST_F(HandleTest, SaysThatArgumentsCannotBeWritten) {
  Unwritable value;
  Unwritable* last = &value;
  for (int i = 0; i < 100; ++i) {
    last->next = std::make_unique<Unwritable>();
    last = last->next->get();
  }
  EXPECT_THAT(trainer_.Call<&Trainer::Take>(value).Get(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(HandleTest, CancelsACallThatWaits) {
  target_->held = true;
  const Future<int> first = trainer_.Call<&Trainer::Add>(1);
  const Future<int> second = trainer_.Call<&Trainer::Add>(2);
  first.Cancel();
  first.Cancel();
  EXPECT_EQ(GetReason(first.Get().status()), kReasonCancelled);
  EXPECT_FALSE(second.IsReady());
  target_->Run();
  EXPECT_THAT(second.Get(), IsOkAndHolds(2));
}

TEST_F(HandleTest, LetsFuturesBeDropped) {
  target_->held = true;
  trainer_.Call<&Trainer::Add>(1);
  target_->Run();
  EXPECT_THAT(trainer_.Call<&Trainer::Add>(1).IsReady(), false);
  target_->Run();
}

TEST_F(HandleTest, IsOfTheSameActorWhenCopied) {
  const Handle<Trainer> copy = trainer_;
  EXPECT_EQ(copy.id(), trainer_.id());
  COHORT_EXPECT_OK(copy.Call<&Trainer::Add>(5).Get());
  EXPECT_THAT(trainer_.Call<&Trainer::Add>(1).Get(), IsOkAndHolds(6));
}

TEST(EmptyHandleTest, NamesNoActor) {
  const Handle<Trainer> none;
  EXPECT_TRUE(none.id().IsNil());
  EXPECT_THAT(none.Call<&Trainer::Add>(1).Get(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Never called: that it is there registers the method.
[[maybe_unused]] void NeverCalled(const Handle<Trainer>& trainer) {
  trainer.Call<Overload<int(int)>(&Trainer::Scale)>(1);
}

TEST_F(HandleTest, RegistersWhatIsNeverCalled) {
  using Tag = actor::MethodTag<Trainer, Overload<int(int)>(&Trainer::Scale)>;
  absl::StatusOr<std::string> bytes;
  target_->Call(typeid(Tag).name(), *EncodeValue(3),
                [&bytes](absl::StatusOr<std::string> result) {
                  bytes = std::move(result);
                });
  COHORT_EXPECT_OK(bytes);
}

template <typename T>
int AddInATemplate(const Handle<T>& handle) {
  return *handle.template Call<&T::Add>(1).Get();
}

TEST_F(HandleTest, IsCalledInATemplate) {
  EXPECT_EQ(AddInATemplate(trainer_), 1);
}

TEST(ActorOptionsTest, TakesVariablesOfAnyNumberType) {
  const int n = 2;
  const double part = 0.25;
  const ActorOptions options = {.num_cpus = n,
                                .num_gpus = part,
                                .resources = {{"license", 1}},
                                .name = "ps",
                                .lifetime = Lifetime::kDetached,
                                .max_restarts = -1};
  EXPECT_EQ(options.num_cpus, 2);
  EXPECT_EQ(options.num_gpus.units(), 0.25);
  EXPECT_EQ(options.max_task_retries, 0);
  EXPECT_EQ(options.max_pending_calls, 10'000);
}

}  // namespace cohort::handle_test
