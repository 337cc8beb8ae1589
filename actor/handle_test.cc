#include "actor/handle.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/actor_finder.h"
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
  Handle<Trainer> Keep(std::vector<Handle<Trainer>> others) {
    return others.at(0);
  }
  int AddAt(const Handle<Trainer>& other, int n) {
    return *other.Call<&Trainer::Add>(n).Get();
  }

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

  absl::StatusOr<actor::ActorRef> Ref() const override {
    return actor::ActorRef{
        .job = job, .slot = 3, .secret = std::string(32, 's')};
  }

  void Run() {
    while (!calls_.empty()) {
      Pending call = std::move(calls_.begin()->second);
      calls_.erase(calls_.begin());
      std::move(call.done)(instance_.Invoke(call.method, call.arguments));
    }
  }

  bool held = false;
  JobId job;

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

// The way to the one actor that there is.
class OneFinder final : public actor::ActorFinder {
 public:
  explicit OneFinder(std::shared_ptr<actor::CallTarget> target)
      : target_(std::move(target)) {}

  std::shared_ptr<actor::CallTarget> TargetOf(
      const actor::ActorRef& ref) override {
    asked.push_back(ref);
    return target_;
  }

  std::vector<actor::ActorRef> asked;

 private:
  const std::shared_ptr<actor::CallTarget> target_;
};

class SentHandleTest : public HandleTest {
 protected:
  SentHandleTest() {
    target_->job = trainer_.id();
    actor::AddActorFinder(finder_);
  }
  ~SentHandleTest() override { actor::RemoveActorFinder(finder_); }

  const std::shared_ptr<LocalTarget> other_ = std::make_shared<LocalTarget>(1);
  const Handle<Trainer> caller_{other_, JobId::New(random_)};
  const std::shared_ptr<OneFinder> finder_ =
      std::make_shared<OneFinder>(target_);
};

TEST_F(SentHandleTest, IsAnArgumentAndAResult) {
  EXPECT_THAT(caller_.Call<&Trainer::AddAt>(trainer_, 5).Get(),
              IsOkAndHolds(5));
  ASSERT_EQ(finder_->asked.size(), 1u);
  EXPECT_EQ(finder_->asked[0].job, trainer_.id());
  EXPECT_EQ(finder_->asked[0].slot, 3u);
  EXPECT_EQ(finder_->asked[0].secret, std::string(32, 's'));

  const auto given =
      caller_.Call<&Trainer::Keep>(std::vector{trainer_, trainer_}).Get();
  COHORT_ASSERT_OK(given);
  EXPECT_EQ(given->id(), trainer_.id());
  EXPECT_THAT(given->Call<&Trainer::Add>(1).Get(), IsOkAndHolds(6));
}

TEST_F(SentHandleTest, ThatNamesNoActorStaysSo) {
  const auto given =
      caller_.Call<&Trainer::Keep>(std::vector{Handle<Trainer>()}).Get();
  COHORT_ASSERT_OK(given);
  EXPECT_TRUE(given->id().IsNil());
  EXPECT_THAT(finder_->asked, ::testing::IsEmpty());
}

TEST_F(SentHandleTest, OfAnotherClassIsRefused) {
  const auto bytes = EncodeValue(trainer_);
  COHORT_ASSERT_OK(bytes);
  COHORT_EXPECT_OK(DecodeValue<Handle<Trainer>>(*bytes));
  EXPECT_FALSE(DecodeValue<Handle<StepStats>>(*bytes).ok());
}

TEST_F(SentHandleTest, AnyBytesAreReadOrRefused) {
  const std::string bytes = *EncodeValue(trainer_);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string broken = bytes;
    broken[i] = static_cast<char>(broken[i] + 1);
    (void)DecodeValue<Handle<Trainer>>(broken);
    EXPECT_FALSE(DecodeValue<Handle<Trainer>>(bytes.substr(0, i)).ok()) << i;
  }
}

TEST_F(SentHandleTest, HasItsGroup) {
  const auto copy =
      DecodeValue<Handle<Trainer>>(*EncodeValue(trainer_.InGroup("io")));
  COHORT_ASSERT_OK(copy);
  EXPECT_EQ(*EncodeValue(*copy), *EncodeValue(trainer_.InGroup("io")));
  EXPECT_NE(*EncodeValue(*copy), *EncodeValue(trainer_));
}

TEST_F(SentHandleTest, SaysSoWhereThereIsNoWay) {
  const std::string bytes = *EncodeValue(trainer_);
  actor::RemoveActorFinder(finder_);
  const auto handle = DecodeValue<Handle<Trainer>>(bytes);
  COHORT_ASSERT_OK(handle);
  EXPECT_EQ(GetReason(handle->Call<&Trainer::Add>(1).Get().status()),
            kReasonSessionOver);
}

TEST_F(SentHandleTest, TheNextWayTakesOverWhenTheFirstEnds) {
  const std::string bytes = *EncodeValue(trainer_);
  const auto next = std::make_shared<OneFinder>(target_);
  actor::AddActorFinder(next);
  COHORT_EXPECT_OK(DecodeValue<Handle<Trainer>>(bytes));
  EXPECT_EQ(next->asked.size(), 0u);
  actor::RemoveActorFinder(finder_);
  COHORT_EXPECT_OK(DecodeValue<Handle<Trainer>>(bytes));
  EXPECT_EQ(next->asked.size(), 1u);
  actor::RemoveActorFinder(next);
  EXPECT_EQ(actor::ProcessActorFinder(), nullptr);
}

// In a process of its own, since names are kept.
TEST_F(SentHandleTest, NamesThatOthersSendAreBounded) {
  const auto keep_too_many = [] {
    for (size_t i = 0; i < actor::kNamesMax; ++i) {
      actor::KeptText(absl::StrCat("#", i));
    }
    std::fprintf(stderr, "%s, <%s>, %s, %s", actor::KeptText("#0"),
                 actor::KeptText(""), actor::KeptText("#x"),
                 actor::KeptText(std::string(1 << 20, 'x')));
    _exit(0);
  };
  const std::string too_many = actor::kNameTooMany;
  EXPECT_EXIT(keep_too_many(), ::testing::ExitedWithCode(0),
              absl::StrCat("#0, <>, ", too_many, ", ", too_many));
}

TEST_F(SentHandleTest, OfAnActorThatWasNeverMadeEndsTheCall) {
  const Handle<Trainer> never(
      actor::NoTarget(absl::AlreadyExistsError("taken")), JobId());
  EXPECT_THAT(caller_.Call<&Trainer::AddAt>(never, 5).Get(),
              StatusIs(absl::StatusCode::kAlreadyExists, "taken"));
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
