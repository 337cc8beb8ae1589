// Both ends of calls on several threads: what a ThreadSanitizer looks at.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "actor/actor_service.h"
#include "actor/call_channel.h"
#include "actor/testing/patient_spinner.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/strand.h"
#include "common/thread_pool.h"
#include "rpc/authenticator.h"
#include "rpc/credential.h"
#include "rpc/router.h"
#include "rpc/testing/loopback.h"

namespace cohort::actor {
namespace {

class CallsThreadsTest : public ::testing::Test {
 protected:
  CallsThreadsTest() {
    service_.Register(router_, pool_);
    network_.Listen("unix:actor", &router_);
  }
  ~CallsThreadsTest() override {
    network_.Unlisten("unix:actor");
    wires_.Drain();
  }

  std::unique_ptr<CallChannel> NewChannel() {
    return std::make_unique<CallChannel>(
        CallChannelOptions{
            .job_id = "job", .max_task_retries = 2, .spinner = &spinner_},
        [this](const std::vector<std::string>& addresses,
               const std::string& secret) {
          return absl::StatusOr<std::unique_ptr<rpc::Channel>>(network_.Connect(
              "caller", addresses[0], *rpc::Credential::FromBytes(secret)));
        },
        pool_, clock_, system_random_);
  }
  static v1::ActorStanding Standing() {
    v1::ActorStanding standing;
    standing.set_job_id("job");
    standing.set_state(v1::JOB_STATE_RUNNING);
    standing.set_incarnation(1);
    standing.add_addresses("unix:actor");
    standing.set_secret(std::string(32, 's'));
    return standing;
  }

  const MachineClock clock_;
  PatientSpinner spinner_;
  SeededRandom random_{1};
  SystemRandom system_random_;
  // Destroys what it holds last: retired connections, which need the network.
  ThreadPool pool_{3};
  Strand wires_{pool_};
  rpc::LoopbackNetwork network_{
      {.delay_min = absl::ZeroDuration(), .delay_max = absl::Microseconds(100)},
      wires_,
      clock_,
      random_};
  rpc::Router router_{
      {},
      rpc::Authenticator(*rpc::Credential::FromBytes(std::string(32, 's'))),
      clock_};
  Strand runner_{pool_};
  std::atomic<int> running_ = 0;
  ActorService service_{
      {.job_id = "job", .incarnation = 1, .spinner = &spinner_},
      {{.runner = &runner_, .looks_at_rings = true}},
      [this](const std::string&, absl::string_view, uint32_t) {
        EXPECT_EQ(++running_, 1);
        --running_;
        return absl::StatusOr<std::string>("");
      }};
};

TEST_F(CallsThreadsTest, EachCallEndsOnceWhateverThreadsDo) {
  constexpr int kThreads = 3;
  constexpr int kCalls = 2'000;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::atomic<int>> ends(kThreads * kCalls);
    std::atomic<int> ended = 0;
    std::unique_ptr<CallChannel> channel = NewChannel();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kCalls; ++i) {
          const uint64_t call = channel->Call(
              "Run", "", [&, index = t * kCalls + i](const auto&) {
                ++ends[index];
                ++ended;
              });
          if (i % 7 == 0) {
            channel->Look(call, [&] { return ends[t * kCalls + i] > 0; });
          }
          if (i % 50 == 0) channel->Cancel(call);
          if (i % 100 == 0) channel->SetStanding(Standing());
          if (i % 500 == 499) network_.BreakAll("unix:actor");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // The last round leaves calls in flight.
    while (round < 2 && ended < kThreads * kCalls) std::this_thread::yield();
    channel.reset();
    for (const std::atomic<int>& times : ends) EXPECT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace cohort::actor
