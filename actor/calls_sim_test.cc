// Both ends of calls over a network with faults and a head whose word comes
// early or late: what must hold of every call (AC-3 to AC-7).

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/actor_service.h"
#include "actor/call_channel.h"
#include "actor/call_error.h"
#include "actor/call_limits.h"
#include "common/check.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/strand.h"
#include "common/testing/manual_executor.h"
#include "common/testing/seed.h"
#include "rpc/authenticator.h"
#include "rpc/credential.h"
#include "rpc/router.h"
#include "rpc/testing/loopback.h"
#include "shm/spinner.h"

namespace cohort::actor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGroup[] = "io";
constexpr size_t kCallers = 3;
constexpr char kActor[] = "unix:actor";

// Where and when a call ran.
struct Run {
  uint64_t incarnation = 0;
  size_t order = 0;  // of all runs
};

// One process of the actor.
struct Process {
  Process(ManualExecutor& executor, uint64_t incarnation,
          const rpc::Credential& secret, shm::Spinner* spinner,
          ActorService::Invoke invoke)
      : strand(executor),
        router({}, rpc::Authenticator(secret), executor),
        runner(executor),
        service(
            {.job_id = "job", .incarnation = incarnation, .spinner = spinner},
            {{.runner = &runner, .looks_at_rings = true},
             {.runner = &executor,
              .group = kGroup,
              .max_concurrency = 2,
              .looks_at_rings = true}},
            std::move(invoke)) {
    service.Register(router, strand);
  }

  Strand strand;
  rpc::Router router;
  Strand runner;
  ActorService service;
};

struct OneCall {
  size_t caller = 0;
  bool is_of_group = false;
  uint64_t id = 0;  // its caller's
  std::vector<absl::StatusOr<std::string>> ends;
  std::vector<Run> runs;
};

class CallsSim : private shm::Spinner {
 public:
  // With `has_rings` calls and results also go by those.
  CallsSim(uint64_t seed, int retries, bool has_rings)
      : random_(seed),
        network_({}, executor_, executor_, random_),
        spinner_(has_rings ? this : nullptr) {
    for (size_t i = 0; i < kCallers; ++i) {
      channels_.push_back(std::make_unique<CallChannel>(
          CallChannelOptions{.job_id = "job",
                             .max_task_retries = retries,
                             .spinner = spinner_},
          [this, name = NameOf(i)](const std::vector<std::string>& addresses,
                                   const std::string& secret)
              -> absl::StatusOr<std::unique_ptr<rpc::Channel>> {
            return network_.Connect(name, addresses[0],
                                    *rpc::Credential::FromBytes(secret));
          },
          executor_, executor_, random_));
    }
    network_.SetBreakProbability(0.005);
    StartProcess();
  }

  ~CallsSim() override {
    channels_.clear();
    Wait(absl::Minutes(2));
    if (process_ != nullptr) network_.Unlisten(kActor);
    process_.reset();
    executor_.RunUntilIdle();
  }

  void Wait(absl::Duration time) { executor_.AdvanceBy(time); }

  void Step() { TakeStep(random_.Below(200)); }
  // Only streams break, and not for long.
  void StepWithoutDeaths() { TakeStep(random_.Below(186)); }

  // The actor stays dead.
  void Finish() {
    if (process_ != nullptr) KillProcess();
    for (size_t i = 0; i < kCallers; ++i) Call(i);
    v1::ActorStanding over = Standing();
    over.set_state(v1::JOB_STATE_FAILED);
    TellLater(over);
    Wait(absl::Minutes(1));
  }

  // Then everything that can run does.
  void Calm() {
    network_.SetBreakProbability(0);
    network_.HealAll();
    if (process_ == nullptr) StartProcess();
    Wait(absl::Minutes(5));
  }

  // Nothing is left of any call, nor of callers once they are gone.
  void ExpectNothingIsLeft() {
    for (const auto& channel : channels_) EXPECT_EQ(channel->pending(), 0u);
    if (process_ == nullptr) return;
    const ActorServiceUsage calm = process_->service.usage();
    EXPECT_EQ(calm.waiting + calm.running, 0u);
    EXPECT_LE(calm.callers, kCallers);
    EXPECT_EQ(calm.callers, calm.streams);
    // These are short: they take several times what they are on the wire.
    EXPECT_LE(calm.result_bytes, kCallers * 8 * kResultsUntoldBytes);
    channels_.clear();
    Wait(kRememberCaller + absl::Seconds(1));
    const ActorServiceUsage gone = process_->service.usage();
    EXPECT_EQ(gone.callers + gone.streams + gone.result_bytes, 0u);
  }

  const std::vector<OneCall>& calls() const { return calls_; }
  rpc::LoopbackFaults faults() const { return network_.faults(); }
  // Of calls that were answered from what is remembered, or went on.
  int breaks_while_running() const { return breaks_while_running_; }
  int results_while_looking() const { return results_while_looking_; }

 private:
  // shm::Spinner: time passes while somebody looks.
  std::optional<shm::Instant> Begin(bool /*other_looks*/) override {
    if (depth_ > 0 || random_.Below(4) == 0) return std::nullopt;
    return shm::Instant::max();
  }
  bool Pause(shm::Instant /*until*/) override {
    ++depth_;
    Wait(absl::Microseconds(static_cast<int64_t>(random_.Below(1'000))));
    --depth_;
    return random_.Below(4) > 0;
  }

  // A program waits for a result.
  void Look(size_t caller) {
    is_looking_ = true;
    channels_[caller]->Look(0, [this] {
      if (random_.Below(5) == 0 && calls_.size() > 0) {
        Call(random_.Below(kCallers));
      }
      return random_.Below(20) == 0;
    });
    is_looking_ = false;
  }

  static std::string NameOf(size_t caller) {
    return absl::StrCat("caller ", caller);
  }

  void TakeStep(uint64_t dice) {
    if (random_.Below(2) == 0) Look(random_.Below(kCallers));
    if (dice < 160) {
      const uint64_t burst = 1 + random_.Below(20);
      const size_t caller = random_.Below(kCallers);
      for (uint64_t i = 0; i < burst; ++i) Call(caller);
    } else if (dice < 180 && !calls_.empty()) {
      // One of the last.
      const size_t back = random_.Below(std::min<size_t>(50, calls_.size()));
      const OneCall& call = calls_[calls_.size() - 1 - back];
      channels_[call.caller]->Cancel(call.id);
    } else if (dice < 184) {
      network_.BreakAll(kActor);
    } else if (dice < 186) {
      network_.BreakAll(NameOf(random_.Below(kCallers)));
    } else if (dice < 188) {
      if (process_ == nullptr) return;
      // Under calls on their way there and back.
      for (size_t i = 0; i < 30; ++i) Call(i % kCallers);
      Wait(absl::Milliseconds(3));
      KillProcess();
    } else if (dice < 190) {
      SlowDown(NameOf(random_.Below(kCallers)));
    }
    if (process_ == nullptr && random_.Below(10) == 0) StartProcess();
    Wait(absl::Microseconds(static_cast<int64_t>(random_.Below(20'000))));
  }

  void Call(size_t caller) {
    const size_t call = calls_.size();
    const bool is_of_group = random_.Below(3) == 0;
    calls_.push_back({.caller = caller, .is_of_group = is_of_group});
    calls_[call].id =
        channels_[caller]->Call({"Run", is_of_group ? kGroup : ""},
                                absl::StrCat(call), [this, call](auto end) {
                                  calls_[call].ends.push_back(std::move(end));
                                  results_while_looking_ += is_looking_;
                                });
  }

  // Its messages stay on the way, perhaps for so long that its streams break.
  void SlowDown(const std::string& caller) {
    constexpr int64_t kForMs[] = {10, 100, 1'000, 40'000};
    network_.Partition(caller, kActor);
    executor_.PostAfter(absl::Milliseconds(kForMs[random_.Below(4)]),
                        [this, caller] { network_.Heal(caller, kActor); });
  }

  absl::StatusOr<std::string> Ran(uint64_t incarnation,
                                  absl::string_view arguments) {
    size_t call = 0;
    COHORT_CHECK(absl::SimpleAtoi(arguments, &call));
    calls_[call].runs.push_back({incarnation, ran_++});
    if (random_.Below(50) == 0 && depth_ == 0) {
      ++depth_;
      if (random_.Below(2) == 0) {
        network_.BreakAll(kActor);
        ++breaks_while_running_;
      }
      Wait(absl::Microseconds(static_cast<int64_t>(random_.Below(50'000))));
      --depth_;
    }
    if (random_.Below(10) == 0) return absl::AbortedError("no");
    return absl::StrCat(arguments, " in ", incarnation);
  }

  void StartProcess() {
    ++incarnation_;
    process_ = std::make_unique<Process>(
        executor_, incarnation_, secret_, spinner_,
        [this, incarnation = incarnation_](
            const std::string& /*method*/, absl::string_view arguments,
            uint32_t /*actor*/) { return Ran(incarnation, arguments); });
    network_.Listen(kActor, &process_->router);
    v1::ActorStanding standing = Standing();
    standing.set_incarnation(incarnation_);
    standing.add_addresses(kActor);
    standing.set_secret(secret_.bytes());
    TellLater(standing);
  }

  void KillProcess() {
    network_.Kill(kActor);
    process_.reset();
    if (random_.Below(3) == 0) return;  // The head tells of the next only.
    v1::ActorStanding standing = Standing();
    standing.set_ended_incarnation(incarnation_);
    TellLater(standing);
  }

  static v1::ActorStanding Standing() {
    v1::ActorStanding standing;
    standing.set_job_id("job");
    standing.set_state(v1::JOB_STATE_RUNNING);
    return standing;
  }

  // At once, or much later, but in order.
  void TellLater(const v1::ActorStanding& standing) {
    constexpr int64_t kDelaysMs[] = {1, 1, 1, 1, 100, 2'000, 20'000};
    const absl::Duration delay =
        absl::Milliseconds(kDelaysMs[random_.Below(7)]) * random_.Double() +
        absl::Microseconds(1);
    told_at_ = std::max(told_at_, executor_.Monotonic() + delay);
    executor_.PostAfter(told_at_ - executor_.Monotonic(), [this, standing] {
      for (const auto& channel : channels_) channel->SetStanding(standing);
    });
  }

  ManualExecutor executor_;
  SeededRandom random_;
  rpc::LoopbackNetwork network_;
  const rpc::Credential secret_ =
      *rpc::Credential::FromBytes(std::string(32, 's'));
  uint64_t incarnation_ = 0;
  std::unique_ptr<Process> process_;
  absl::Duration told_at_;
  std::vector<OneCall> calls_;
  size_t ran_ = 0;
  int depth_ = 0;
  int breaks_while_running_ = 0;
  shm::Spinner* const spinner_;
  bool is_looking_ = false;
  int results_while_looking_ = 0;
  std::vector<std::unique_ptr<CallChannel>> channels_;
};

// How often each end came, by reason.
void CheckEnds(const CallsSim& sim, std::map<std::string, int>& reasons) {
  for (size_t i = 0; i < sim.calls().size(); ++i) {
    SCOPED_TRACE(absl::StrCat("call ", i));
    const OneCall& call = sim.calls()[i];
    ASSERT_EQ(call.ends.size(), 1u);
    const absl::StatusOr<std::string>& end = call.ends[0];
    const std::string reason = end.ok() || absl::IsAborted(end.status())
                                   ? "ran"
                                   : GetReason(end.status());
    if (reason == "ran") {
      EXPECT_GE(call.runs.size(), 1u);
    }
    if (end.ok() && !call.runs.empty()) {
      // The value is that of its last run.
      EXPECT_EQ(*end, absl::StrCat(i, " in ", call.runs.back().incarnation));
    }
    if (reason == kReasonNotStarted) {
      EXPECT_EQ(call.runs.size(), 0u);
    }
    // Neither end takes the other's words for garbage.
    EXPECT_THAT(std::string(end.status().message()),
                Not(HasSubstr("cannot be sent")));
    ++reasons[reason];
  }
}

// In one incarnation calls of one caller and group run in the order in which
// they were made, those of earlier incarnations first, and each once.
void CheckOrder(const CallsSim& sim) {
  std::map<std::tuple<uint64_t, size_t, bool>, size_t> last;
  for (size_t i = 0; i < sim.calls().size(); ++i) {
    const OneCall& call = sim.calls()[i];
    for (const Run& run : call.runs) {
      const auto [entry, is_new] = last.emplace(
          std::tuple(run.incarnation, call.caller, call.is_of_group),
          run.order);
      EXPECT_TRUE(is_new || entry->second < run.order)
          << "call " << i << " in incarnation " << run.incarnation;
      entry->second = std::max(entry->second, run.order);
    }
    for (size_t j = 1; j < call.runs.size(); ++j) {
      EXPECT_LT(call.runs[j - 1].incarnation, call.runs[j].incarnation)
          << "call " << i;
    }
  }
}

TEST(CallsSimTest, AtMostOnceAndInOrderWhateverBreaks) {
  const uint64_t seed = TestSeed();
  std::map<std::string, int> reasons;
  int64_t streams_broken = 0;
  int breaks_while_running = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " + ", i));
    CallsSim sim(seed + i, /*retries=*/0, /*has_rings=*/i > 0);
    for (int step = 0; step < 1'500; ++step) sim.Step();
    EXPECT_GT(sim.calls().size(), 10'000u);
    if (i % 2 == 0) sim.Calm();
    sim.Finish();
    CheckEnds(sim, reasons);
    CheckOrder(sim);
    for (const OneCall& call : sim.calls()) EXPECT_LE(call.runs.size(), 1u);
    sim.ExpectNothingIsLeft();
    streams_broken += sim.faults().streams_broken;
    breaks_while_running += sim.breaks_while_running();
  }
  EXPECT_GT(reasons["ran"], 10'000);
  EXPECT_GT(reasons[kReasonMayHaveRun], 0);
  EXPECT_GT(reasons[kReasonNotStarted], 0);
  EXPECT_GT(reasons[kReasonCancelled], 0);
  EXPECT_GT(streams_broken, 0);
  EXPECT_GT(breaks_while_running, 0);
}

// AC-7.
TEST(CallsSimTest, NoCallIsLostWithItsStream) {
  const uint64_t seed = TestSeed();
  int64_t streams_broken = 0;  // few with some seeds
  for (uint64_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " + ", i));
    CallsSim sim(seed + i, /*retries=*/0, /*has_rings=*/i > 0);
    std::map<std::string, int> reasons;
    for (int step = 0; step < 1'500; ++step) sim.StepWithoutDeaths();
    sim.Calm();
    CheckEnds(sim, reasons);
    CheckOrder(sim);
    EXPECT_EQ(reasons["ran"] + reasons[kReasonCancelled], sim.calls().size())
        << ::testing::PrintToString(reasons);
    streams_broken += sim.faults().streams_broken;
    sim.ExpectNothingIsLeft();
  }
  EXPECT_GT(streams_broken, 40);
}

TEST(CallsSimTest, CallsThatMayBeSentAgainRunWhateverBreaks) {
  const uint64_t seed = TestSeed();
  std::map<std::string, int> reasons;
  size_t twice = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " + ", i));
    CallsSim sim(seed + i, /*retries=*/-1, /*has_rings=*/i > 0);
    for (int step = 0; step < 1'500; ++step) sim.Step();
    sim.Calm();
    CheckEnds(sim, reasons);
    CheckOrder(sim);
    for (const OneCall& call : sim.calls()) twice += call.runs.size() > 1;
    sim.ExpectNothingIsLeft();
  }
  EXPECT_GT(reasons["ran"], 30'000);
  EXPECT_EQ(reasons[kReasonNotStarted], 0);
  // Streams that were broken for long.
  EXPECT_LT(reasons[kReasonMayHaveRun], reasons["ran"] / 20);
  EXPECT_GT(twice, 0u);
}

}  // namespace
}  // namespace cohort::actor
