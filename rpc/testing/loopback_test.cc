// The faults of the simulation's network, on a ManualExecutor: every test is
// one schedule.

#include "rpc/testing/loopback.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/wrappers.pb.h"
#include "gtest/gtest.h"

#include "common/check.h"
#include "common/random.h"
#include "common/strand.h"
#include "common/testing/manual_executor.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"

namespace cohort::rpc {
namespace {

using google::protobuf::StringValue;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr UnaryMethod<StringValue, StringValue> kEcho{"/cohort.v1.T/Echo"};
constexpr UnaryMethod<StringValue, StringValue> kHold{"/cohort.v1.T/Hold"};
constexpr StreamMethod<StringValue, StringValue> kChat{"/cohort.v1.T/Chat"};
constexpr CallOptions kMinute{.deadline = absl::Minutes(1)};
constexpr CallOptions kForever{.deadline = absl::InfiniteDuration()};

// A daemon that one can kill: everything it knows is in here.
class Server {
 public:
  Server(ManualExecutor& executor, const Credential& credential,
         std::vector<std::string>& log)
      : strand_(executor),
        log_(log),
        router_({}, Authenticator(credential), executor) {
    router_.Handle(
        kEcho, strand_,
        [this](const std::shared_ptr<CallContext>& context,
               const StringValue& request, Reply<StringValue> reply) {
          last_ = context;
          log_.push_back(absl::StrCat("echo ", request.value()));
          std::move(reply)(request);
        });
    router_.Handle(kHold, strand_,
                   [this](const std::shared_ptr<CallContext>& context,
                          const StringValue&, Reply<StringValue> reply) {
                     context->OnCancel([this] { log_.push_back("cancel"); });
                     held_.push_back(std::move(reply));
                   });
    router_.HandleStream(
        kChat, strand_,
        [this](const auto&, std::unique_ptr<StreamWriter<StringValue>> writer)
            -> absl::StatusOr<std::unique_ptr<StreamReader<StringValue>>> {
          writer_ = writer.get();
          return std::make_unique<Chat>(*this, std::move(writer));
        });
  }

  Router& router() { return router_; }
  StreamWriter<StringValue>* writer() { return writer_; }

 private:
  class Chat final : public StreamReader<StringValue> {
   public:
    Chat(Server& server, std::unique_ptr<StreamWriter<StringValue>> writer)
        : server_(server), writer_(std::move(writer)) {}
    ~Chat() override { server_.log_.push_back("reader gone"); }

    void OnMessage(const StringValue& message) override {
      server_.log_.push_back(absl::StrCat("got ", message.value()));
      writer_->Write(message).IgnoreError();
    }
    void OnClosed(absl::Status status) override {
      server_.log_.push_back(
          absl::StrCat("closed ", absl::StatusCodeToString(status.code())));
    }

   private:
    Server& server_;
    const std::unique_ptr<StreamWriter<StringValue>> writer_;
  };

  Strand strand_;
  std::vector<std::string>& log_;
  std::vector<Reply<StringValue>> held_;
  std::shared_ptr<CallContext> last_;
  StreamWriter<StringValue>* writer_ = nullptr;
  Router router_;
};

class LoopbackTest : public ::testing::Test {
 protected:
  explicit LoopbackTest(uint64_t seed = 1)
      : random_(seed),
        credential_(*Credential::FromBytes(std::string(32, 'c'))),
        network_({}, executor_, executor_, random_),
        client_strand_(executor_),
        channel_(network_.Connect("client", "server", credential_)) {
    StartServer();
  }

  ~LoopbackTest() override {
    stream_.reset();
    channel_.reset();
    executor_.RunUntilIdle();
    if (server_ != nullptr) network_.Unlisten("server");
    executor_.RunUntilIdle();
    EXPECT_EQ(BugCount(), bugs_before_);
  }

  void StartServer() {
    server_ = std::make_unique<Server>(executor_, credential_, server_log_);
    network_.Listen("server", &server_->router());
  }

  void Start(const UnaryMethod<StringValue, StringValue>& method,
             const std::string& text, CallOptions options = kMinute) {
    StringValue request;
    request.set_value(text);
    Call(*channel_, method, request, options, client_strand_,
         [this, text](absl::StatusOr<StringValue> response) {
           client_log_.push_back(absl::StrCat(
               text, " ",
               response.ok()
                   ? response->value()
                   : absl::StatusCodeToString(response.status().code())));
         });
  }

  void OpenChat() {
    stream_ = OpenStream(
        *channel_, kChat, kForever, client_strand_,
        {.on_message =
             [this](const StringValue& message) {
               client_log_.push_back(absl::StrCat("got ", message.value()));
             },
         .on_closed =
             [this](absl::Status status, std::optional<Stamp>) {
               client_log_.push_back(absl::StrCat(
                   "closed ", absl::StatusCodeToString(status.code())));
             },
         .on_drained = nullptr});
  }

  void Say(const std::string& text) {
    StringValue message;
    message.set_value(text);
    COHORT_EXPECT_OK(stream_->Write(message));
  }

  // Long enough for any exchange, short against deadlines.
  void Settle() { executor_.AdvanceBy(absl::Seconds(1)); }

  const int64_t bugs_before_ = BugCount();
  ManualExecutor executor_;
  SeededRandom random_;
  const Credential credential_;
  LoopbackNetwork network_;
  Strand client_strand_;
  std::vector<std::string> client_log_;
  std::vector<std::string> server_log_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<TypedStream<StringValue>> stream_;
};

TEST_F(LoopbackTest, TakesTime) {
  Start(kEcho, "a");
  executor_.RunUntilIdle();
  EXPECT_THAT(client_log_, IsEmpty());
  Settle();
  EXPECT_THAT(client_log_, ElementsAre("a a"));
}

// Also while it is still held: by a handler, or gRPC until it has sent the
// answer.
TEST_F(LoopbackTest, ACallThatWasAnsweredHasNoPlace) {
  Start(kEcho, "a");
  Start(kHold, "b");
  Settle();
  EXPECT_THAT(client_log_, ElementsAre("a a"));
  EXPECT_EQ(server_->router().calls_in_flight(), 1);
}

TEST_F(LoopbackTest, RefusesWhenNobodyListens) {
  network_.Unlisten("server");
  Start(kEcho, "a");
  OpenChat();
  Settle();
  EXPECT_THAT(client_log_, testing::UnorderedElementsAre("a UNAVAILABLE",
                                                         "closed UNAVAILABLE"));
  EXPECT_EQ(network_.faults().refused, 2);
  StartServer();
  Start(kEcho, "b");
  Settle();
  EXPECT_EQ(client_log_.back(), "b b");
}

TEST_F(LoopbackTest, APartitionHealedInTimeLosesNothing) {
  OpenChat();
  Say("1");
  Settle();
  network_.Partition("server", "client");
  Say("2");
  Say("3");
  Start(kEcho, "a");
  executor_.AdvanceBy(absl::Seconds(20));
  EXPECT_THAT(client_log_, ElementsAre("got 1"));
  EXPECT_GT(network_.faults().held, 0);
  network_.Heal("client", "server");
  Say("4");
  Settle();
  // Streams stay in order; between calls there is none.
  std::vector<std::string> chat;
  for (const std::string& line : client_log_) {
    if (line != "a a") chat.push_back(line);
  }
  EXPECT_EQ(client_log_.size(), 5u);
  EXPECT_THAT(chat, ElementsAre("got 1", "got 2", "got 3", "got 4"));
  EXPECT_EQ(network_.faults().broken, 0);
}

TEST_F(LoopbackTest, ALongPartitionBreaksIdleConnections) {
  OpenChat();
  Settle();
  network_.Partition("client", "server");
  executor_.AdvanceBy(absl::Seconds(31));
  EXPECT_THAT(client_log_, ElementsAre("closed UNAVAILABLE"));
  EXPECT_THAT(server_log_, ElementsAre("closed UNAVAILABLE", "reader gone"));
  EXPECT_EQ(network_.faults().partition_timeouts, 1);
  EXPECT_EQ(network_.faults().streams_broken, 1);
}

TEST_F(LoopbackTest, ADeadlineEndsACallInAPartition) {
  network_.Partition("client", "server");
  Start(kEcho, "a", {.deadline = absl::Seconds(5)});
  executor_.AdvanceBy(absl::Seconds(6));
  EXPECT_THAT(client_log_, ElementsAre("a DEADLINE_EXCEEDED"));
  network_.HealAll();
  Settle();
  EXPECT_THAT(server_log_, IsEmpty()) << "RT-2: late work does not run";
}

TEST_F(LoopbackTest, ABreakEndsBothEnds) {
  OpenChat();
  Start(kHold, "h");
  Settle();
  network_.BreakAll("client");
  executor_.RunUntilIdle();
  EXPECT_THAT(client_log_, testing::UnorderedElementsAre("closed UNAVAILABLE",
                                                         "h UNAVAILABLE"));
  EXPECT_THAT(server_log_, testing::UnorderedElementsAre(
                               "closed UNAVAILABLE", "reader gone", "cancel"));
  EXPECT_EQ(network_.faults().replies_lost, 1);
  EXPECT_EQ(network_.faults().streams_broken, 1);
  // The next call connects again.
  Start(kEcho, "a");
  Settle();
  EXPECT_EQ(client_log_.back(), "a a");
}

TEST_F(LoopbackTest, AKilledServerHearsNothingAndItsQueueDoesNotRun) {
  OpenChat();
  Start(kHold, "h");
  Settle();
  // On its way when the server dies.
  Start(kEcho, "a");
  Say("x");
  network_.Kill("server");
  EXPECT_THAT(server_log_, ElementsAre("reader gone"));
  server_.reset();
  Settle();
  EXPECT_THAT(server_log_, ElementsAre("reader gone"));
  EXPECT_THAT(client_log_,
              testing::UnorderedElementsAre("closed UNAVAILABLE",
                                            "h UNAVAILABLE", "a UNAVAILABLE"));
  EXPECT_EQ(network_.faults().requests_lost, 1);
  EXPECT_EQ(network_.faults().replies_lost, 1);
  StartServer();
  Start(kEcho, "b");
  Settle();
  EXPECT_EQ(client_log_.back(), "b b");
}

TEST_F(LoopbackTest, ASilencedServerSaysSoMuchAndNoMoreUntilItsDeath) {
  OpenChat();
  Settle();
  network_.SilenceAfter("server", 1);
  Say("1");
  Say("2");
  Settle();
  EXPECT_THAT(server_log_, ElementsAre("got 1", "got 2"));
  EXPECT_THAT(client_log_, ElementsAre("got 1"));
  EXPECT_EQ(network_.faults().silenced, 1);
  network_.Kill("server");
  server_.reset();
  StartServer();
  Start(kEcho, "b");
  Settle();
  EXPECT_EQ(client_log_.back(), "b b");
}

TEST_F(LoopbackTest, AKilledClientHearsNothing) {
  OpenChat();
  Start(kHold, "h");
  Settle();
  network_.Kill("client");
  Settle();
  EXPECT_THAT(client_log_, IsEmpty());
  EXPECT_THAT(server_log_, testing::UnorderedElementsAre(
                               "closed UNAVAILABLE", "reader gone", "cancel"));
}

// Random calls, streams, breaks and restarts; what happened, as one text.
std::string Trace(uint64_t seed, LoopbackFaults& faults) {
  ManualExecutor executor;
  SeededRandom random(seed);
  SeededRandom script(seed + 1);
  const Credential credential = *Credential::FromBytes(std::string(32, 'c'));
  std::vector<std::string> log;
  LoopbackNetwork network({.break_probability = 0.02}, executor, executor,
                          random);
  auto server = std::make_unique<Server>(executor, credential, log);
  network.Listen("server", &server->router());
  Strand strand(executor);
  auto channel = network.Connect("client", "server", credential);
  int begun = 0;
  int ended = 0;
  for (int step = 0; step < 300; ++step) {
    const uint64_t what = script.Below(20);
    if (what == 0) {
      network.Kill("server");
      server = std::make_unique<Server>(executor, credential, log);
      network.Listen("server", &server->router());
    } else if (what == 1) {
      network.Partition("client", "server");
    } else if (what == 2) {
      network.HealAll();
    } else {
      StringValue request;
      request.set_value(absl::StrCat(++begun));
      Call(*channel, kEcho, request, {.deadline = absl::Seconds(40)}, strand,
           [&, n = begun](absl::StatusOr<StringValue> response) {
             ++ended;
             log.push_back(absl::StrCat(
                 n, " ",
                 response.ok()
                     ? "ok"
                     : absl::StatusCodeToString(response.status().code()),
                 " at ", absl::FormatDuration(executor.Monotonic())));
           });
    }
    executor.AdvanceBy(absl::Milliseconds(script.Below(3)) *
                       (what == 3 ? 20000 : 1));
  }
  network.HealAll();
  executor.AdvanceBy(absl::Minutes(2));
  EXPECT_EQ(ended, begun) << "CH-1";
  faults = network.faults();
  network.Unlisten("server");
  executor.RunUntilIdle();
  std::string text;
  for (const std::string& line : log) absl::StrAppend(&text, line, "\n");
  return text;
}

TEST(LoopbackTraceTest, OneSeedIsOneScheduleAndEveryFaultFires) {
  const uint64_t seed = TestSeed();
  LoopbackFaults sum;
  for (uint64_t i = 0; i < 20; ++i) {
    LoopbackFaults faults;
    const std::string trace = Trace(seed + i, faults);
    LoopbackFaults again;
    ASSERT_EQ(trace, Trace(seed + i, again)) << "seed " << seed + i;
    sum.broken += faults.broken;
    sum.requests_lost += faults.requests_lost;
    sum.replies_lost += faults.replies_lost;
    sum.held += faults.held;
    sum.partition_timeouts += faults.partition_timeouts;
  }
  EXPECT_GT(sum.broken, 0);
  EXPECT_GT(sum.requests_lost, 0);
  EXPECT_GT(sum.replies_lost, 0);
  EXPECT_GT(sum.held, 0);
  EXPECT_GT(sum.partition_timeouts, 0);
}

}  // namespace
}  // namespace cohort::rpc
