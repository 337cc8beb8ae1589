// Both ends of calls over real gRPC on a unix socket, with threads.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/actor_service.h"
#include "actor/call_channel.h"
#include "actor/call_error.h"
#include "actor/connect_actor.h"
#include "actor/inline_executor.h"
#include "actor/testing/patient_spinner.h"
#include "common/executor.h"
#include "common/latch.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_util.h"
#include "common/strand.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "rpc/authenticator.h"
#include "rpc/credential.h"
#include "rpc/grpc_server.h"
#include "rpc/router.h"
#include "rpc/testing/inbox.h"

namespace cohort::actor {
namespace {

using ::testing::SizeIs;

using Ends = rpc::Inbox<absl::StatusOr<std::string>>;

const std::string& Secret() {
  static const auto* const secret = new std::string(32, 's');
  return *secret;
}

// One process of an actor that counts its calls.
class Process {
 public:
  Process(const std::string& socket, uint64_t incarnation, bool is_inline)
      : service_(
            {.job_id = "job", .incarnation = incarnation, .spinner = &spinner_},
            {{.runner = &runner_, .looks_at_rings = true}},
            [this](const std::string& /*method*/, absl::string_view arguments,
                   uint32_t /*actor*/) {
              return Run(std::string(arguments));
            }) {
    if (is_inline) {
      service_.Register(router_, inline_);
    } else {
      service_.Register(router_, strand_);
    }
    auto server =
        rpc::GrpcServer::Start(router_, {.address = "unix:" + socket});
    COHORT_EXPECT_OK(server);
    if (server.ok()) server_ = *std::move(server);
  }
  ~Process() {
    server_->Shutdown(absl::ZeroDuration());
    server_.reset();
    strand_.Drain();
  }

  std::vector<std::string> ran() const {
    MutexLock lock(mutex_);
    return ran_;
  }

 private:
  absl::StatusOr<std::string> Run(const std::string& arguments) {
    MutexLock lock(mutex_);
    ran_.push_back(arguments);
    return arguments;
  }

  mutable Mutex mutex_;
  std::vector<std::string> ran_ ABSL_GUARDED_BY(mutex_);
  const MachineClock clock_;
  PatientSpinner spinner_;
  ThreadPool pool_{2};
  Strand strand_{pool_};
  InlineExecutor inline_{pool_};
  Strand runner_{pool_};
  rpc::Router router_{
      {}, rpc::Authenticator(*rpc::Credential::FromBytes(Secret())), clock_};
  ActorService service_;
  std::unique_ptr<rpc::GrpcServer> server_;
};

// Events are posted to threads, or run on gRPC's.
class CallsOverGrpcTest : public ::testing::TestWithParam<bool> {
 protected:
  v1::ActorStanding Standing(uint64_t incarnation) {
    v1::ActorStanding standing;
    standing.set_job_id("job");
    standing.set_state(v1::JOB_STATE_RUNNING);
    standing.set_incarnation(incarnation);
    standing.add_addresses("unix:" + Socket(incarnation));
    standing.set_secret(Secret());
    return standing;
  }
  std::string Socket(uint64_t incarnation) {
    return directory_.File(absl::StrCat("socket-", incarnation));
  }
  std::unique_ptr<CallChannel> NewChannel() {
    return std::make_unique<CallChannel>(
        CallChannelOptions{.job_id = "job", .spinner = &spinner_},
        ConnectOverGrpc(), GetParam() ? static_cast<Executor&>(inline_) : pool_,
        clock_, random_);
  }
  void Call(const std::string& arguments, Ends& ends) {
    channel_->Call("Run", arguments, [&ends](absl::StatusOr<std::string> end) {
      ends.Put(std::move(end));
    });
  }

  TempDir directory_;
  const MachineClock clock_{};
  SystemRandom random_;
  PatientSpinner spinner_;
  ThreadPool pool_{2};
  InlineExecutor inline_{pool_};
  std::unique_ptr<CallChannel> channel_ = NewChannel();
};

INSTANTIATE_TEST_SUITE_P(Events, CallsOverGrpcTest, ::testing::Bool(),
                         [](const auto& parameter) {
                           return parameter.param ? "Inline" : "Posted";
                         });

TEST_P(CallsOverGrpcTest, CallsOfSeveralThreadsRunInTheirOrder) {
  const Process process(Socket(1), 1, GetParam());
  channel_->SetStanding(Standing(1));
  constexpr int kThreads = 4;
  constexpr int kCalls = 5'000;
  Ends ends;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) Call(absl::StrCat(t, ":", i), ends);
    });
  }
  for (int i = 0; i < kThreads * kCalls; ++i) COHORT_EXPECT_OK(ends.Take());
  for (std::thread& thread : threads) thread.join();

  std::vector<int> next(kThreads);
  for (const std::string& ran : process.ran()) {
    const int t = ran[0] - '0';
    EXPECT_EQ(ran, absl::StrCat(t, ":", next[t]++));
  }
  EXPECT_THAT(next, ::testing::Each(kCalls));
}

TEST_P(CallsOverGrpcTest, GoesOnInTheNextIncarnation) {
  Ends ends;
  auto process = std::make_unique<Process>(Socket(1), 1, GetParam());
  channel_->SetStanding(Standing(1));
  Call("1", ends);
  EXPECT_THAT(ends.Take(), IsOkAndHolds(std::string("1")));
  process.reset();
  Call("2", ends);
  process = std::make_unique<Process>(Socket(2), 2, GetParam());
  channel_->SetStanding(Standing(2));
  // Sent before the break was seen, or after.
  const absl::StatusOr<std::string> second = ends.Take();
  if (!second.ok()) {
    EXPECT_EQ(GetReason(second.status()), kReasonMayHaveRun);
  }
  Call("3", ends);
  EXPECT_THAT(ends.Take(), IsOkAndHolds(std::string("3")));
}

// By rings: most calls come while the process looks.
TEST_P(CallsOverGrpcTest, EachCallOfOneWhoWaitsEndsWhateverDies) {
  std::atomic<bool> is_over = false;
  std::atomic<int> ended = 0;
  std::thread caller([&] {
    while (!is_over) {
      std::atomic<int> ends = 0;
      // Shared: Open may return after Wait.
      const auto answered = std::make_shared<Latch>();
      absl::StatusOr<std::string> result;
      const uint64_t call = channel_->Call("Run", "x", [&, answered](auto end) {
        result = std::move(end);
        ++ends;
        answered->Open();
      });
      channel_->Look(call, [&] { return ends > 0; });
      answered->Wait();
      EXPECT_EQ(ends, 1);
      if (!result.ok()) {
        EXPECT_EQ(GetReason(result.status()), kReasonMayHaveRun);
      }
      ++ended;
    }
  });
  for (uint64_t incarnation = 1; incarnation <= 10; ++incarnation) {
    const Process process(Socket(incarnation), incarnation, GetParam());
    channel_->SetStanding(Standing(incarnation));
    const int until = ended + 500;
    while (ended < until) std::this_thread::yield();
  }
  const Process last(Socket(11), 11, GetParam());
  channel_->SetStanding(Standing(11));
  is_over = true;
  caller.join();
}

TEST_P(CallsOverGrpcTest, RefusesWhoDoesNotKnowTheSecret) {
  const Process process(Socket(1), 1, GetParam());
  v1::ActorStanding standing = Standing(1);
  standing.set_secret(std::string(32, 'x'));
  channel_->SetStanding(standing);
  Ends ends;
  Call("1", ends);
  channel_.reset();
  EXPECT_EQ(GetReason(ends.Take().status()), kReasonSessionOver);
  EXPECT_THAT(process.ran(), SizeIs(0));
}

TEST_P(CallsOverGrpcTest, MayBeDestroyedByTheEndOfACall) {
  const Process process(Socket(1), 1, GetParam());
  channel_->SetStanding(Standing(1));
  Latch called;
  Latch destroyed;
  channel_->Call("Run", "1", [&](const auto& end) {
    COHORT_EXPECT_OK(end);
    called.Wait();
    channel_.reset();
    destroyed.Open();
  });
  called.Open();
  destroyed.Wait();
  // What is left goes while the process still serves.
  Latch later;
  pool_.PostAfter(absl::Milliseconds(20), [&] { later.Open(); });
  later.Wait();
}

TEST_P(CallsOverGrpcTest, MayBeDestroyedWithCallsInFlight) {
  const Process process(Socket(1), 1, GetParam());
  for (int round = 0; round < 20; ++round) {
    channel_ = NewChannel();
    channel_->SetStanding(Standing(1));
    std::atomic<int> ended = 0;
    const int calls = 50 * round;
    for (int i = 0; i < calls; ++i) {
      channel_->Call("Run", "", [&](const auto&) { ++ended; });
    }
    channel_.reset();
    EXPECT_EQ(ended, calls);
  }
}

}  // namespace
}  // namespace cohort::actor
