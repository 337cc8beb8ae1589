// What every transport must do, over each of them: gRPC over TCP, gRPC over a
// unix socket, and the simulation's loopback.  Real threads, no faults;
// loopback_test has the faults.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/wrappers.pb.h"
#include "gtest/gtest.h"

#include "common/check.h"
#include "common/latch.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_util.h"
#include "common/strand.h"
#include "common/thread_pool.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/router.h"
#include "rpc/testing/inbox.h"
#include "rpc/testing/transport.h"

namespace cohort::rpc {
namespace {

using google::protobuf::StringValue;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr UnaryMethod<StringValue, StringValue> kEcho{
    "/cohort.v1.TestService/Echo"};
constexpr UnaryMethod<StringValue, StringValue> kFail{
    "/cohort.v1.TestService/Fail"};
constexpr UnaryMethod<StringValue, StringValue> kHold{
    "/cohort.v1.TestService/Hold"};
constexpr UnaryMethod<StringValue, StringValue> kBlock{
    "/cohort.v1.TestService/Block"};
constexpr UnaryMethod<StringValue, StringValue> kForget{
    "/cohort.v1.TestService/Forget"};
constexpr UnaryMethod<StringValue, StringValue> kWhoAmI{
    "/cohort.v1.TestService/WhoAmI", kEverybodyInside};
constexpr UnaryMethod<StringValue, StringValue> kMissing{
    "/cohort.v1.TestService/Missing"};
constexpr StreamMethod<StringValue, StringValue> kChat{
    "/cohort.v1.TestService/Chat"};

// Long enough for a loaded machine; no test waits for it.
constexpr CallOptions kLongDeadline{.deadline = absl::Seconds(50)};

using Response = absl::StatusOr<StringValue>;

StringValue Text(std::string text) {
  StringValue value;
  value.set_value(std::move(text));
  return value;
}

// The server's end of a Chat, as the test sees it.
struct Chat {
  std::shared_ptr<CallContext> context;
  std::unique_ptr<StreamWriter<StringValue>> writer;
  Inbox<std::string> messages;
  Inbox<bool> half_closed;
  Inbox<absl::Status> closed;
  std::atomic<int> closed_count = 0;
  // Held open by tests that want a slow strand.
  Latch* slow = nullptr;
  bool echo = false;
};

class ChatReader final : public StreamReader<StringValue> {
 public:
  explicit ChatReader(std::shared_ptr<Chat> chat) : chat_(std::move(chat)) {}

  void OnMessage(const StringValue& message) override {
    if (chat_->slow != nullptr) chat_->slow->Wait();
    if (chat_->echo) {
      EXPECT_TRUE(chat_->writer->Write(message).ok());
    } else {
      chat_->messages.Put(message.value());
    }
  }
  void OnHalfClosed() override { chat_->half_closed.Put(true); }
  void OnClosed(absl::Status status) override {
    ++chat_->closed_count;
    chat_->closed.Put(std::move(status));
  }

 private:
  const std::shared_ptr<Chat> chat_;
};

// The client's end.
struct Client {
  Inbox<std::string> messages;
  Inbox<std::pair<absl::Status, std::optional<Stamp>>> closed;
  Inbox<bool> drained;
  // Destroyed first: then no event uses the others.
  std::unique_ptr<TypedStream<StringValue>> stream;
};

class ConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  ConformanceTest()
      : pool_(4),
        strand_(std::make_unique<Strand>(pool_)),
        other_strand_(std::make_unique<Strand>(pool_)),
        client_strand_(std::make_unique<Strand>(pool_)),
        transport_(NewTestTransport(GetParam(), pool_)),
        random_(7),
        credential_(*Credential::FromBytes(random_.Bytes(32))) {}

  ~ConformanceTest() override {
    channel_.reset();
    if (router_ != nullptr) transport_->Stop();
    strand_->Drain();
    client_strand_->Drain();
    EXPECT_EQ(expected_bugs_, BugCount() - bugs_before_);
  }

  void Serve(RouterOptions options = {}) {
    router_ =
        std::make_unique<Router>(options, Authenticator(credential_), clock_);
    router_->SetStamp({.cluster_id = std::string(16, '\x81'), .term = 7});
    AddUnaryMethods();
    router_->HandleStream(
        kChat, *strand_,
        [this](const std::shared_ptr<CallContext>& context,
               std::unique_ptr<StreamWriter<StringValue>> writer)
            -> absl::StatusOr<std::unique_ptr<StreamReader<StringValue>>> {
          if (!refuse_chats_.ok()) return refuse_chats_;
          auto chat = std::make_shared<Chat>();
          chat->context = context;
          chat->writer = std::move(writer);
          chat->slow = slow_chats_;
          chat->echo = echo_chats_;
          chats_.Put(chat);
          return std::make_unique<ChatReader>(chat);
        },
        {.delay = batching_delay_, .may_wait = [](const StringValue& message) {
           return absl::StartsWith(message.value(), "later");
         }});
    transport_->Serve(*router_);
    channel_ = transport_->Connect(credential_, channel_options_);
  }

  void AddUnaryMethods() {
    router_->Handle(kEcho, *strand_,
                    [this](const auto&, const StringValue& request,
                           Reply<StringValue> reply) {
                      strand_->AssertHeld();
                      ++echoes_;
                      std::move(reply)(request);
                    });
    router_->Handle(
        kFail, *strand_,
        [](const auto&, const StringValue&, Reply<StringValue> reply) {
          std::move(reply)(SetReason(
              absl::FailedPreconditionError("the lease is stale\n\xc3\xa9"),
              "stale_lease"));
        });
    router_->Handle(kHold, *other_strand_,
                    [this](const std::shared_ptr<CallContext>& context,
                           const StringValue&, Reply<StringValue> reply) {
                      context->OnCancel([this] { cancelled_.Put(true); });
                      held_.Put({context, std::move(reply)});
                    });
    router_->Handle(kBlock, *strand_,
                    [this](const auto&, const StringValue& request,
                           Reply<StringValue> reply) {
                      blocked_.Put(true);
                      latch_->Wait();
                      std::move(reply)(request);
                    });
    router_->Handle(kForget, *strand_,
                    [](const auto&, const StringValue&, Reply<StringValue>) {});
    router_->Handle(kWhoAmI, *strand_,
                    [](const std::shared_ptr<CallContext>& context,
                       const StringValue&, Reply<StringValue> reply) {
                      EXPECT_FALSE(context->peer().empty());
                      EXPECT_GT(context->DeadlineLeft(), absl::Seconds(1));
                      EXPECT_LE(context->DeadlineLeft(), absl::Seconds(60));
                      std::move(reply)(Text(context->principal().name));
                    });
  }

  Response Ask(const UnaryMethod<StringValue, StringValue>& method,
               const std::string& text) {
    return CallAndWait(*channel_, method, Text(text), kLongDeadline).response;
  }

  // Starts a call whose answer goes to `answers_`.
  CallHandle Start(const UnaryMethod<StringValue, StringValue>& method,
                   CallOptions options = kLongDeadline) {
    return Call(*channel_, method, Text("x"), options, *client_strand_,
                [this](Response response) {
                  client_strand_->AssertHeld();
                  answers_.Put(std::move(response));
                });
  }

  absl::Status SendRaw(const char* path, std::string bytes) {
    Inbox<absl::Status> result;
    channel_->StartUnary(
        path, std::move(bytes), kLongDeadline, *client_strand_,
        [&result](CallResult r) { result.Put(r.response.status()); });
    return result.Take();
  }

  std::unique_ptr<Client> Open(CallOptions options = {
                                   .deadline = absl::InfiniteDuration()}) {
    auto client = std::make_unique<Client>();
    Client* const c = client.get();
    client->stream =
        OpenStream(*channel_, kChat, options, *client_strand_,
                   {.on_message =
                        [this, c](const StringValue& message) {
                          client_strand_->AssertHeld();
                          if (slow_client_ != nullptr) slow_client_->Wait();
                          c->messages.Put(message.value());
                        },
                    .on_closed =
                        [c](absl::Status status, std::optional<Stamp> stamp) {
                          c->closed.Put({std::move(status), std::move(stamp)});
                        },
                    .on_drained = [c] { c->drained.Put(true); }});
    return client;
  }

  using Held = std::pair<std::shared_ptr<CallContext>, Reply<StringValue>>;

  MachineClock clock_;
  ThreadPool pool_;
  std::unique_ptr<Strand> strand_;
  std::unique_ptr<Strand> other_strand_;
  std::unique_ptr<Strand> client_strand_;
  std::unique_ptr<TestTransport> transport_;
  SeededRandom random_;
  const Credential credential_;
  ChannelOptions channel_options_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<Channel> channel_;
  const int64_t bugs_before_ = BugCount();
  int64_t expected_bugs_ = 0;

  std::atomic<int> echoes_ = 0;
  Inbox<Held> held_;
  Inbox<bool> cancelled_;
  Inbox<bool> blocked_;
  std::unique_ptr<Latch> latch_ = std::make_unique<Latch>();
  Inbox<Response> answers_;
  Inbox<std::shared_ptr<Chat>> chats_;
  absl::Status refuse_chats_;
  // How long a Chat's "later" may wait; for ever unless a test says otherwise.
  absl::Duration batching_delay_ = absl::Hours(1);
  Latch* slow_chats_ = nullptr;
  bool echo_chats_ = false;
  Latch* slow_client_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Transports, ConformanceTest,
                         ::testing::Values("tcp", "unix", "loopback"),
                         [](const auto& param) { return param.param; });

TEST_P(ConformanceTest, AnswersAUnaryCall) {
  Serve();
  const Response response = Ask(kEcho, "hello");
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->value(), "hello");
  EXPECT_TRUE(Ask(kEcho, "").ok()) << "an empty message is a message";
}

TEST_P(ConformanceTest, AnswersManyCallsAtOnceEachWithItsOwn) {
  Serve();
  Inbox<std::pair<int, Response>> answers;
  for (int i = 0; i < 500; ++i) {
    Call(*channel_, kEcho, Text(absl::StrCat(i)), kLongDeadline,
         *client_strand_, [i, &answers](Response response) {
           answers.Put({i, std::move(response)});
         });
  }
  for (int i = 0; i < 500; ++i) {
    const auto [number, response] = answers.Take();
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->value(), absl::StrCat(number));
  }
}

TEST_P(ConformanceTest, CarriesAnErrorWithItsReason) {
  Serve();
  const absl::Status status = Ask(kFail, "x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "the lease is stale\n\xc3\xa9");
  EXPECT_EQ(GetReason(status), "stale_lease");
}

TEST_P(ConformanceTest, StampsAnswersAndErrors) {
  Serve();
  const Stamp stamp{.cluster_id = std::string(16, '\x81'), .term = 7};
  EXPECT_EQ(CallAndWait(*channel_, kEcho, Text("x"), kLongDeadline).stamp,
            stamp);
  EXPECT_EQ(CallAndWait(*channel_, kFail, Text("x"), kLongDeadline).stamp,
            stamp);
  EXPECT_EQ(CallAndWait(*channel_, kMissing, Text("x"), kLongDeadline).stamp,
            stamp);
  router_->SetStamp({.cluster_id = std::string(16, '\0'), .term = 8});
  const Stamp next{.cluster_id = std::string(16, '\0'), .term = 8};
  EXPECT_EQ(CallAndWait(*channel_, kEcho, Text("x"), kLongDeadline).stamp,
            next);
}

TEST_P(ConformanceTest, EndsACallByItsDeadlineAndTellsTheHandler) {
  Serve();
  // Long enough to reach the handler on a machine that is busy.
  Start(kHold, {.deadline = absl::Seconds(1)});
  EXPECT_EQ(answers_.Take().status().code(),
            absl::StatusCode::kDeadlineExceeded);
  Held held = held_.Take();
  EXPECT_TRUE(cancelled_.Take());
  EXPECT_TRUE(held.first->IsCancelled());
  EXPECT_LT(held.first->DeadlineLeft(), absl::Seconds(1));
  std::move(held.second)(Text("too late"));
}

TEST_P(ConformanceTest, CancelEndsACallAndTellsTheHandler) {
  Serve();
  const CallHandle call = Start(kHold);
  Held held = held_.Take();
  EXPECT_FALSE(held.first->IsCancelled());
  call.Cancel();
  EXPECT_EQ(answers_.Take().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(cancelled_.Take());
  EXPECT_TRUE(held.first->IsCancelled());
  // A reply that is dropped after the caller has gone is not a bug.
}

TEST_P(ConformanceTest, TellsAHandlerThatAsksAfterTheCancel) {
  Serve();
  const CallHandle call = Start(kHold);
  Held held = held_.Take();
  call.Cancel();
  EXPECT_TRUE(cancelled_.Take());
  held.first->OnCancel([this] { cancelled_.Put(false); });
  EXPECT_FALSE(cancelled_.Take());
}

TEST_P(ConformanceTest, ACancelledCallInTheQueueDoesNotRun) {
  Serve();
  // When the cancel reaches the server is the transport's affair, so a round
  // may come too late; a server that runs cancelled work fails all of them.
  for (int round = 0; round < 20; ++round) {
    latch_ = std::make_unique<Latch>();
    const int echoes_before = echoes_;
    Start(kBlock);
    blocked_.Take();
    const CallHandle queued = Start(kEcho);
    const CallHandle witness = Start(kHold);
    const Held held = held_.Take();
    queued.Cancel();
    witness.Cancel();
    EXPECT_EQ(answers_.Take().status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(answers_.Take().status().code(), absl::StatusCode::kCancelled);
    cancelled_.Take();
    latch_->Open();
    EXPECT_TRUE(answers_.Take().ok());
    strand_->Drain();
    if (echoes_ == echoes_before) return;
  }
  FAIL() << "cancelled calls ran in every round";
}

TEST_P(ConformanceTest, RefusesAWrongCredential) {
  Serve();
  const Credential wrong = *Credential::FromBytes(random_.Bytes(32));
  channel_ = transport_->Connect(wrong, {});
  const absl::Status status = Ask(kEcho, "x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(status.message(), HasSubstr("COHORT_CREDENTIAL_FILE"));
  EXPECT_THAT(status.message(), Not(HasSubstr(wrong.ToHex())));
  EXPECT_THAT(status.message(), Not(HasSubstr(credential_.ToHex())));
  EXPECT_EQ(echoes_, 0);
  const auto client = Open();
  EXPECT_EQ(client->closed.Take().first.code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(chats_.empty());
}

TEST_P(ConformanceTest, LetsARankInWhereRanksMay) {
  Serve();
  const ProcessId process = {AttemptId::New(random_), 3, 9};
  channel_ = transport_->Connect(MintRankCredential(credential_, process), {});
  const Response name = Ask(kWhoAmI, "x");
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(name->value(), absl::StrCat("rank/", process.ToText()));
  EXPECT_EQ(Ask(kEcho, "x").status().code(),
            absl::StatusCode::kPermissionDenied);
  channel_ = transport_->Connect(credential_, {});
  EXPECT_EQ(Ask(kWhoAmI, "x")->value(), "cluster");
}

TEST_P(ConformanceTest, RefusesGarbageAndServesOthers) {
  Serve();
  EXPECT_EQ(SendRaw(kEcho.path, "\xff\xff\xff").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(echoes_, 0);
  EXPECT_TRUE(Ask(kEcho, "x").ok());
}

TEST_P(ConformanceTest, RefusesAnUnknownPathByName) {
  Serve();
  const absl::Status status = Ask(kMissing, "x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr(kMissing.path));
}

TEST_P(ConformanceTest, RefusesOversizedMessagesEitherWay) {
  channel_options_.message_bytes_max = 30 << 10;
  Serve({.message_bytes_max = 64 << 10});
  EXPECT_EQ(Ask(kEcho, std::string(70 << 10, 'x')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(echoes_, 0);
  // Within the server's limit, over the client's.
  EXPECT_EQ(Ask(kEcho, std::string(40 << 10, 'x')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Ask(kEcho, std::string(20 << 10, 'x')).ok());
}

TEST_P(ConformanceTest, CarriesMessagesUpToTheLimit) {
  Serve();
  const std::string large((8 << 20) - 64, 'x');
  const Response response = Ask(kEcho, large);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->value().size(), large.size());
}

TEST_P(ConformanceTest, AnswersForAHandlerThatForgets) {
  Serve();
  expected_bugs_ = 1;
  EXPECT_EQ(Ask(kForget, "x").status().code(), absl::StatusCode::kInternal);
}

TEST_P(ConformanceTest, RefusesCallsBeyondTheBound) {
  Serve({.calls = {.brief = 4}});
  Start(kHold);
  Start(kHold);
  Held first = held_.Take();
  Held second = held_.Take();
  EXPECT_EQ(Ask(kEcho, "x").status().code(),
            absl::StatusCode::kResourceExhausted);
  std::move(first.second)(Text("x"));
  EXPECT_TRUE(answers_.Take().ok());
  std::move(second.second)(Text("x"));
  EXPECT_TRUE(answers_.Take().ok());
}

TEST_P(ConformanceTest, EndsCallsAndStreamsWhenTheServerStops) {
  Serve();
  Start(kHold);
  const Held held = held_.Take();
  const auto client = Open();
  const auto chat = chats_.Take();
  transport_->Stop();
  EXPECT_FALSE(answers_.Take().ok());
  EXPECT_FALSE(client->closed.Take().first.ok());
  EXPECT_EQ(chat->closed.Take().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(held.first->IsCancelled());
  EXPECT_EQ(chat->writer->Write(Text("x")).code(),
            absl::StatusCode::kUnavailable);
  const absl::Status status = Ask(kEcho, "x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  transport_->Serve(*router_);
}

TEST_P(ConformanceTest, MeetsARestartedServer) {
  Serve();
  EXPECT_TRUE(Ask(kEcho, "x").ok());
  transport_->Stop();
  EXPECT_EQ(Ask(kEcho, "x").status().code(), absl::StatusCode::kUnavailable);
  transport_->Serve(*router_);
  const absl::Duration give_up = clock_.Monotonic() + absl::Seconds(50);
  while (!Ask(kEcho, "x").ok()) ASSERT_LT(clock_.Monotonic(), give_up);
}

TEST_P(ConformanceTest, ADestroyedChannelEndsItsCalls) {
  Serve();
  Start(kHold);
  const Held held = held_.Take();
  channel_.reset();
  EXPECT_EQ(answers_.Take().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(cancelled_.Take());
}

TEST_P(ConformanceTest, KeepsTheOrderOfAStreamBothWays) {
  echo_chats_ = true;
  Serve();
  const auto client = Open();
  constexpr int kMessages = 3000;
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(client->stream->Write(Text(absl::StrCat(i))).ok());
  }
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(client->messages.Take(), absl::StrCat(i));
  }
  EXPECT_TRUE(client->drained.Take());
  chats_.Take()->writer->Close(absl::OkStatus());
  const auto [status, stamp] = client->closed.Take();
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_TRUE(stamp.has_value());
  EXPECT_EQ(stamp->term, 7u);
}

// RT-8
TEST_P(ConformanceTest, HandlesWhatMayWaitBeforeWhatComesAfterIt) {
  Serve();
  const auto client = Open();
  ASSERT_TRUE(client->stream->Write(Text("later 1")).ok());
  ASSERT_TRUE(client->stream->Write(Text("later 2")).ok());
  ASSERT_TRUE(client->stream->Write(Text("now")).ok());
  const auto chat = chats_.Take();
  EXPECT_EQ(chat->messages.Take(), "later 1");
  EXPECT_EQ(chat->messages.Take(), "later 2");
  EXPECT_EQ(chat->messages.Take(), "now");
  ASSERT_TRUE(client->stream->Write(Text("later 3")).ok());
  client->stream->HalfClose();
  EXPECT_EQ(chat->messages.Take(), "later 3");
  EXPECT_TRUE(chat->half_closed.Take());
}

TEST_P(ConformanceTest, HandlesWhatMayWaitOnceItHasWaited) {
  batching_delay_ = absl::Milliseconds(1);
  Serve();
  const auto client = Open();
  const auto other = Open();
  ASSERT_TRUE(client->stream->Write(Text("later 1")).ok());
  ASSERT_TRUE(other->stream->Write(Text("later 2")).ok());
  const auto chat = chats_.Take();
  const auto other_chat = chats_.Take();
  const std::string heard = chat->messages.Take();
  EXPECT_THAT(heard, ::testing::StartsWith("later"));
  EXPECT_NE(other_chat->messages.Take(), heard);
  ASSERT_TRUE(client->stream->Write(Text("later")).ok());
  ASSERT_TRUE(other->stream->Write(Text("later")).ok());
  EXPECT_EQ(chat->messages.Take(), "later");
  EXPECT_EQ(other_chat->messages.Take(), "later");
}

TEST_P(ConformanceTest, DoesNotWaitWithAFullWindow) {
  RouterOptions options;
  options.stream_window_messages = 4;
  Serve(options);
  const auto client = Open();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client->stream->Write(Text(absl::StrCat("later ", i))).ok());
  }
  const auto chat = chats_.Take();
  // The last three may leave room.
  for (int i = 0; i < 97; ++i) {
    EXPECT_EQ(chat->messages.Take(), absl::StrCat("later ", i));
  }
}

TEST_P(ConformanceTest, StreamsToAClientThatHalfClosed) {
  Serve();
  const auto client = Open();
  ASSERT_TRUE(client->stream->Write(Text("request")).ok());
  client->stream->HalfClose();
  EXPECT_EQ(client->stream->Write(Text("more")).code(),
            absl::StatusCode::kFailedPrecondition);
  const auto chat = chats_.Take();
  EXPECT_EQ(chat->messages.Take(), "request");
  EXPECT_TRUE(chat->half_closed.Take());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(chat->writer->Write(Text(absl::StrCat(i))).ok());
  }
  // Close comes after what is queued.
  chat->writer->Close(absl::OkStatus());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(client->messages.Take(), absl::StrCat(i));
  }
  EXPECT_TRUE(client->closed.Take().first.ok());
  EXPECT_TRUE(chat->closed.Take().ok());
}

TEST_P(ConformanceTest, TellsTheClientWhyItsStreamWasClosed) {
  Serve();
  const auto client = Open();
  const auto chat = chats_.Take();
  chat->writer->Close(
      SetReason(absl::AbortedError("a newer stream"), "replaced"));
  const absl::Status status = client->closed.Take().first;
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetReason(status), "replaced");
  EXPECT_EQ(chat->closed.Take().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client->stream->Write(Text("x")).code(),
            absl::StatusCode::kUnavailable);
}

TEST_P(ConformanceTest, TellsTheClientWhyItsStreamWasRefused) {
  refuse_chats_ = SetReason(absl::NotFoundError("no such log"), "no_log");
  Serve();
  const auto client = Open();
  const absl::Status status = client->closed.Take().first;
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetReason(status), "no_log");
}

TEST_P(ConformanceTest, ADroppedWriterClosesItsStream) {
  Serve();
  const auto client = Open();
  const auto chat = chats_.Take();
  chat->writer.reset();
  EXPECT_EQ(client->closed.Take().first.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(chat->closed.Take().code(), absl::StatusCode::kUnavailable);
}

TEST_P(ConformanceTest, TellsTheServerOnceThatTheClientLeft) {
  Serve();
  auto client = Open();
  const auto chat = chats_.Take();
  client->stream->Cancel();
  EXPECT_EQ(client->closed.Take().first.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(chat->closed.Take().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(chat->context->IsCancelled());
  chat->writer->Close(absl::OkStatus());
  strand_->Drain();
  EXPECT_EQ(chat->closed_count, 1);
}

TEST_P(ConformanceTest, ADestroyedStreamHearsNothingMore) {
  Serve();
  auto client = Open();
  const auto chat = chats_.Take();
  ASSERT_TRUE(chat->writer->Write(Text("x")).ok());
  client->messages.Take();
  client->stream.reset();
  EXPECT_EQ(chat->closed.Take().code(), absl::StatusCode::kUnavailable);
  client_strand_->Drain();
  EXPECT_TRUE(client->closed.empty());
}

TEST_P(ConformanceTest, AStreamMayBeDestroyedWithinItsEvent) {
  Serve();
  Inbox<bool> destroyed;
  std::unique_ptr<TypedStream<StringValue>> stream;
  stream = OpenStream(
      *channel_, kChat, {.deadline = absl::InfiniteDuration()}, *client_strand_,
      {.on_message =
           [&](const StringValue& message) {
             EXPECT_EQ(message.value(), "bye");
             stream.reset();
             destroyed.Put(true);
           },
       .on_closed = [](absl::Status, std::optional<Stamp>) { FAIL(); },
       .on_drained = nullptr});
  const auto chat = chats_.Take();
  ASSERT_TRUE(chat->writer->Write(Text("bye")).ok());
  EXPECT_TRUE(destroyed.Take());
  EXPECT_EQ(chat->closed.Take().code(), absl::StatusCode::kUnavailable);
}

TEST_P(ConformanceTest, AStreamEndsByItsDeadline) {
  Serve();
  const auto client = Open({.deadline = absl::Milliseconds(50)});
  EXPECT_EQ(client->closed.Take().first.code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_P(ConformanceTest, GarbageOnAStreamEndsThatStream) {
  Serve();
  const auto other = Open();
  const auto other_chat = chats_.Take();
  Inbox<absl::Status> closed;
  const auto raw = channel_->OpenStream(
      kChat.path, {.deadline = absl::InfiniteDuration()}, *client_strand_,
      {.on_message = [](absl::string_view) { return absl::OkStatus(); },
       .on_closed =
           [&closed](absl::Status status, std::optional<Stamp>) {
             closed.Put(std::move(status));
           },
       .on_drained = nullptr});
  ASSERT_TRUE(raw->Write("\xff\xff\xff").ok());
  EXPECT_EQ(closed.Take().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(chats_.Take()->closed.Take().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(other->stream->Write(Text("x")).ok());
  EXPECT_EQ(other_chat->messages.Take(), "x");
}

TEST_P(ConformanceTest, ASlowClientFillsTheServersQueueAndNoMore) {
  Latch latch;
  slow_client_ = &latch;
  Serve({.stream_queue_bytes_max = 1 << 20});
  const auto client = Open();
  const auto chat = chats_.Take();
  const auto drained = std::make_shared<Inbox<bool>>();
  chat->writer->SetOnDrained([drained] { drained->Put(true); });
  // The transport takes some megabytes, then the queue fills.
  const std::string filler(32 << 10, 'x');
  int written = 0;
  absl::Status status;
  while (status.ok() && written < 10000) {
    status = chat->writer->Write(Text(absl::StrCat(written, " ", filler)));
    if (status.ok()) ++written;
    EXPECT_LE(chat->writer->QueuedBytes(), 1u << 20);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  latch.Open();
  for (int i = 0; i < written; ++i) {
    ASSERT_EQ(client->messages.Take(), absl::StrCat(i, " ", filler));
  }
  EXPECT_TRUE(drained->Take());
  EXPECT_EQ(chat->writer->QueuedBytes(), 0u);
  EXPECT_TRUE(chat->writer->Write(Text("again")).ok());
  EXPECT_EQ(client->messages.Take(), "again");
}

TEST_P(ConformanceTest, ASlowServerFillsTheClientsQueueAndNoMore) {
  Latch latch;
  slow_chats_ = &latch;
  channel_options_.stream_queue_bytes_max = 1 << 20;
  Serve();
  const auto client = Open();
  const auto chat = chats_.Take();
  const std::string filler(32 << 10, 'x');
  int written = 0;
  absl::Status status;
  while (status.ok() && written < 10000) {
    status = client->stream->Write(Text(absl::StrCat(written, " ", filler)));
    if (status.ok()) ++written;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  latch.Open();
  for (int i = 0; i < written; ++i) {
    ASSERT_EQ(chat->messages.Take(), absl::StrCat(i, " ", filler));
  }
}

TEST_P(ConformanceTest, ClosingASlowClientsStreamFreesItsQueueAtOnce) {
  Latch latch;
  slow_client_ = &latch;
  Serve({.stream_queue_bytes_max = 1 << 20});
  const auto client = Open();
  const auto chat = chats_.Take();
  const std::string filler(32 << 10, 'x');
  while (chat->writer->Write(Text(filler)).ok()) {
  }
  chat->writer->Close(absl::ResourceExhaustedError("too slow"));
  EXPECT_EQ(chat->writer->QueuedBytes(), 0u);
  EXPECT_EQ(chat->closed.Take().code(), absl::StatusCode::kResourceExhausted);
  latch.Open();
  EXPECT_EQ(client->closed.Take().first.code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cohort::rpc
