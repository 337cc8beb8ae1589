// Both ends of calls over a network with faults and a head whose word comes
// early or late: what must hold of every call (AC-3 to AC-5).

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
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

namespace cohort::actor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Where and when a call ran.
struct Run {
  uint64_t incarnation = 0;
  size_t order = 0;  // of all runs
};

// One process of the actor.
struct Process {
  Process(ManualExecutor& executor, uint64_t incarnation,
          const rpc::Credential& secret, ActorService::Invoke invoke)
      : strand(executor),
        router({}, rpc::Authenticator(secret), executor),
        runner(executor),
        service({.job_id = "job", .incarnation = incarnation},
                {{.runner = &runner}}, std::move(invoke)) {
    service.Register(router, strand);
  }

  Strand strand;
  rpc::Router router;
  Strand runner;
  ActorService service;
};

class CallsSim {
 public:
  CallsSim(uint64_t seed, int retries)
      : random_(seed), network_({}, executor_, executor_, random_) {
    channel_ = std::make_unique<CallChannel>(
        CallChannelOptions{.job_id = "job", .max_task_retries = retries},
        [this](const std::vector<std::string>& addresses,
               const std::string& secret)
            -> absl::StatusOr<std::unique_ptr<rpc::Channel>> {
          return network_.Connect("caller", addresses[0],
                                  *rpc::Credential::FromBytes(secret));
        },
        executor_, executor_, random_);
    network_.SetBreakProbability(0.005);
    StartProcess();
  }

  ~CallsSim() {
    channel_.reset();
    Wait(absl::Seconds(10));
    if (process_ != nullptr) network_.Unlisten("actor");
    process_.reset();
    executor_.RunUntilIdle();
  }

  void Wait(absl::Duration time) { executor_.AdvanceBy(time); }

  void Step() {
    const uint64_t dice = random_.Below(100);
    if (dice < 80) {
      const uint64_t burst = 1 + random_.Below(20);
      for (uint64_t i = 0; i < burst; ++i) Call();
    } else if (dice < 90 && !ids_.empty()) {
      // One of the last.
      const size_t back = random_.Below(std::min<size_t>(50, ids_.size()));
      channel_->Cancel(ids_[ids_.size() - 1 - back]);
    } else if (dice < 92) {
      network_.BreakAll("actor");
    } else if (dice < 93) {
      if (process_ != nullptr) KillProcess();
    }
    if (process_ == nullptr && random_.Below(10) == 0) StartProcess();
    Wait(absl::Microseconds(static_cast<int64_t>(random_.Below(20'000))));
  }

  // The actor stays dead.
  void Finish() {
    if (process_ != nullptr) KillProcess();
    for (int i = 0; i < 3; ++i) Call();
    v1::ActorStanding over = Standing();
    over.set_state(v1::JOB_STATE_FAILED);
    TellLater(over);
    Wait(absl::Minutes(1));
  }

  // Then everything that can run does.
  void Calm() {
    network_.SetBreakProbability(0);
    if (process_ == nullptr) StartProcess();
    Wait(absl::Minutes(5));
  }

  const std::vector<std::vector<absl::StatusOr<std::string>>>& ends() const {
    return ends_;
  }
  const std::map<size_t, std::vector<Run>>& runs() const { return runs_; }
  rpc::LoopbackFaults faults() const { return network_.faults(); }

 private:
  void Call() {
    const size_t call = ends_.size();
    ends_.emplace_back();
    ids_.push_back(channel_->Call(
        "Run", absl::StrCat(call),
        [this, call](auto end) { ends_[call].push_back(std::move(end)); }));
  }

  absl::StatusOr<std::string> Ran(uint64_t incarnation,
                                  absl::string_view arguments) {
    size_t call = 0;
    COHORT_CHECK(absl::SimpleAtoi(arguments, &call));
    runs_[call].push_back({incarnation, ran_++});
    if (random_.Below(10) == 0) return absl::AbortedError("no");
    return absl::StrCat(arguments, " in ", incarnation);
  }

  void StartProcess() {
    ++incarnation_;
    process_ = std::make_unique<Process>(
        executor_, incarnation_, secret_,
        [this, incarnation = incarnation_](const std::string& /*method*/,
                                           absl::string_view arguments) {
          return Ran(incarnation, arguments);
        });
    network_.Listen("actor", &process_->router);
    v1::ActorStanding standing = Standing();
    standing.set_incarnation(incarnation_);
    standing.add_addresses("actor");
    standing.set_secret(secret_.bytes());
    TellLater(standing);
  }

  void KillProcess() {
    network_.Kill("actor");
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
    constexpr int64_t kDelaysMs[] = {1, 1, 100, 2'000};
    const absl::Duration delay =
        absl::Milliseconds(kDelaysMs[random_.Below(4)]) * random_.Double() +
        absl::Microseconds(1);
    told_at_ = std::max(told_at_, executor_.Monotonic() + delay);
    executor_.PostAfter(told_at_ - executor_.Monotonic(), [this, standing] {
      if (channel_ != nullptr) channel_->SetStanding(standing);
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
  std::vector<uint64_t> ids_;
  std::vector<std::vector<absl::StatusOr<std::string>>> ends_;
  size_t ran_ = 0;
  std::map<size_t, std::vector<Run>> runs_;
  std::unique_ptr<CallChannel> channel_;
};

// How often each end came, by reason.
void CheckEnds(const CallsSim& sim, std::map<std::string, int>& reasons) {
  for (size_t call = 0; call < sim.ends().size(); ++call) {
    EXPECT_EQ(sim.ends()[call].size(), 1u) << "call " << call;
    if (sim.ends()[call].empty()) continue;
    const absl::StatusOr<std::string>& end = sim.ends()[call][0];
    const auto ran = sim.runs().find(call);
    const size_t times = ran == sim.runs().end() ? 0 : ran->second.size();
    const std::string reason = end.ok() || absl::IsAborted(end.status())
                                   ? "ran"
                                   : GetReason(end.status());
    if (reason == "ran") {
      EXPECT_GE(times, 1u) << "call " << call;
    }
    if (end.ok() && times > 0) {
      // The value is that of its last run.
      EXPECT_EQ(*end,
                absl::StrCat(call, " in ", ran->second.back().incarnation));
    }
    if (reason == kReasonNotStarted) {
      EXPECT_EQ(times, 0u) << "call " << call;
    }
    // Neither end takes the other's words for garbage.
    EXPECT_THAT(std::string(end.status().message()),
                Not(HasSubstr("cannot be sent")));
    ++reasons[reason];
  }
}

// In one incarnation calls run in the order in which they were made.
void CheckOrder(const CallsSim& sim) {
  std::map<uint64_t, size_t> last;
  for (const auto& [call, runs] : sim.runs()) {
    for (const Run& run : runs) {
      const auto [entry, is_new] = last.emplace(run.incarnation, run.order);
      EXPECT_TRUE(is_new || entry->second < run.order)
          << "call " << call << " in incarnation " << run.incarnation;
      entry->second = std::max(entry->second, run.order);
    }
  }
}

TEST(CallsSimTest, AtMostOnceAndInOrderWhateverBreaks) {
  const uint64_t seed = TestSeed();
  std::map<std::string, int> reasons;
  int64_t streams_broken = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " + ", i));
    CallsSim sim(seed + i, /*retries=*/0);
    for (int step = 0; step < 500; ++step) sim.Step();
    if (i % 2 == 0) sim.Calm();
    sim.Finish();
    CheckEnds(sim, reasons);
    CheckOrder(sim);
    for (const auto& [call, runs] : sim.runs()) {
      EXPECT_EQ(runs.size(), 1u) << "call " << call;
    }
    streams_broken += sim.faults().streams_broken;
  }
  EXPECT_GT(reasons["ran"], 1000);
  EXPECT_GT(reasons[kReasonMayHaveRun], 0);
  EXPECT_GT(reasons[kReasonNotStarted], 0);
  EXPECT_GT(reasons[kReasonCancelled], 0);
  EXPECT_GT(streams_broken, 0);
}

TEST(CallsSimTest, CallsThatMayBeSentAgainRunWhateverBreaks) {
  const uint64_t seed = TestSeed();
  std::map<std::string, int> reasons;
  size_t twice = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " + ", i));
    CallsSim sim(seed + i, /*retries=*/-1);
    for (int step = 0; step < 500; ++step) sim.Step();
    sim.Calm();
    CheckEnds(sim, reasons);
    for (const auto& [call, runs] : sim.runs()) twice += runs.size() > 1;
  }
  EXPECT_GT(reasons["ran"], 5'000);
  EXPECT_EQ(reasons[kReasonMayHaveRun], 0);
  EXPECT_EQ(reasons[kReasonNotStarted], 0);
  EXPECT_GT(twice, 0u);
}

}  // namespace
}  // namespace cohort::actor
