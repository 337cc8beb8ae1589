// What only gRPC does: addresses, ports, sockets, and a stock client.

#include "rpc/grpc_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/impl/client_unary_call.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/sync_stream.h"
#include "gtest/gtest.h"

#include "common/file_limit.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/status_util.h"
#include "common/strand.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "common/unique_fd.h"
#include "rpc/certificate.h"
#include "rpc/credential.h"
#include "rpc/grpc_address.h"
#include "rpc/grpc_channel.h"
#include "rpc/grpc_listener.h"
#include "rpc/router.h"

namespace cohort::rpc {
namespace {

using google::protobuf::StringValue;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr UnaryMethod<StringValue, StringValue> kEcho{
    "/cohort.v1.ClusterService/SubmitJob"};
constexpr StreamMethod<StringValue, StringValue> kCount{
    "/cohort.v1.ClusterService/ReadLog"};

// Answers one message with three.
class Counter final : public StreamReader<StringValue> {
 public:
  explicit Counter(std::unique_ptr<StreamWriter<StringValue>> writer)
      : writer_(std::move(writer)) {}

  void OnMessage(const StringValue& message) override {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(writer_->Write(message).ok());
    writer_->Close(absl::OkStatus());
  }
  void OnClosed(absl::Status /*status*/) override {}

 private:
  const std::unique_ptr<StreamWriter<StringValue>> writer_;
};

class GrpcServerTest : public ::testing::Test {
 protected:
  GrpcServerTest() : router_({}, Authenticator(credential_), clock_) {
    router_.Handle(kEcho, strand_,
                   [](const auto&, const StringValue& request,
                      Reply<StringValue> reply) { std::move(reply)(request); });
    router_.HandleStream(
        kCount, strand_,
        [](const auto&, std::unique_ptr<StreamWriter<StringValue>> writer)
            -> absl::StatusOr<std::unique_ptr<StreamReader<StringValue>>> {
          return std::make_unique<Counter>(std::move(writer));
        });
  }

  absl::StatusOr<std::unique_ptr<GrpcServer>> Start(std::string address) {
    return GrpcServer::Start(router_, {.address = std::move(address)});
  }

  absl::StatusOr<std::unique_ptr<GrpcServer>> StartWith(
      Identity identity, std::string address = "127.0.0.1:0") {
    return GrpcServer::Start(router_, {.address = std::move(address),
                                       .identity = std::move(identity)});
  }

  absl::Status PingWith(const std::string& authority,
                        const GrpcServer& server) {
    return Ping(absl::StrCat("127.0.0.1:", server.port()),
                credential_.For(authority));
  }

  absl::Status Ping(const std::string& address) {
    return Ping(address, credential_);
  }

  absl::Status Ping(const std::string& address, const Credential& credential) {
    auto channel = NewGrpcChannel(address, credential);
    if (!channel.ok()) return channel.status();
    return CallAndWait(**channel, kEcho, StringValue(),
                       {.deadline = absl::Seconds(30)})
        .response.status();
  }

  MachineClock clock_;
  ThreadPool pool_{2};
  Strand strand_{pool_};
  TempDir directory_;
  SeededRandom random_{5};
  const Credential credential_ = *Credential::FromBytes(random_.Bytes(32));
  Router router_;
};

TEST_F(GrpcServerTest, TakesAFreePortAndSaysWhich) {
  const auto server = Start("localhost:0");
  COHORT_ASSERT_OK(server);
  EXPECT_GT((*server)->port(), 0);
  EXPECT_EQ((*server)->address(),
            absl::StrCat("127.0.0.1:", (*server)->port()));
  COHORT_EXPECT_OK(Ping((*server)->address()));
}

TEST_F(GrpcServerTest, NamesWhoHoldsABusyPort) {
  const auto first = Start("127.0.0.1:0");
  COHORT_ASSERT_OK(first);
  const auto second = Start((*first)->address());
  EXPECT_THAT(second,
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr((*first)->address()),
                             HasSubstr(absl::StrCat("pid ", getpid())))));
  EXPECT_EQ(GetReason(second.status()), "busy_port");
}

TEST_F(GrpcServerTest, NeverSharesAPortThatAnotherWouldShare) {
  // A listener with SO_REUSEPORT, as gRPC's default is.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  socklen_t size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  EXPECT_THAT(Start(absl::StrCat("127.0.0.1:", ntohs(name.sin_port))),
              StatusIs(absl::StatusCode::kAlreadyExists));
  close(fd);
}

TEST_F(GrpcServerTest, SpeaksPlaintextOnLoopbackOnly) {
  const auto refused = Start("0.0.0.0:0");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("--insecure")));
  EXPECT_EQ(GetReason(refused.status()), "insecure");
  EXPECT_EQ(GetReason(Ping("192.0.2.1:7710")), "insecure");
}

TEST_F(GrpcServerTest, ServesOverTlsWhereverItListens) {
  const Identity authority = *AuthorityOf(NewPrivateKey());
  const auto server = StartWith(IssueServer(authority), "0.0.0.0:0");
  COHORT_ASSERT_OK(server);
  COHORT_EXPECT_OK(PingWith(authority.certificate, **server));
}

TEST_F(GrpcServerTest, ServesOverTlsOfASecret) {
  const Identity identity = ServerOfSecret(credential_.bytes());
  const auto server = StartWith(identity);
  COHORT_ASSERT_OK(server);
  COHORT_EXPECT_OK(PingWith(identity.certificate, **server));
}

TEST_F(GrpcServerTest, AServerOfAnotherAuthorityIsSentNothing) {
  const auto server = StartWith(IssueServer(*AuthorityOf(NewPrivateKey())));
  COHORT_ASSERT_OK(server);
  const absl::Status status =
      PingWith(AuthorityOf(NewPrivateKey())->certificate, **server);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnauthenticated,
                               AllOf(HasSubstr((*server)->address()),
                                     HasSubstr("<state-dir>/credential"))));
  EXPECT_EQ(GetReason(status), "other_authority");
}

TEST_F(GrpcServerTest, ChangesToAnotherAuthorityWhileItServes) {
  const Identity old = *AuthorityOf(NewPrivateKey());
  const Identity next = NewAuthority();
  const auto server = StartWith(IssueServer(old));
  COHORT_ASSERT_OK(server);
  const std::string address = absl::StrCat("127.0.0.1:", (*server)->port());
  const std::string file = directory_.path() + "/credential";
  COHORT_ASSERT_OK(credential_.For(old.certificate).Save(file));
  const auto channel = NewGrpcChannel(address, *Credential::Load(file));
  COHORT_ASSERT_OK(channel);
  const auto ping = [&] {
    return CallAndWait(**channel, kEcho, StringValue(),
                       {.deadline = absl::Seconds(30)})
        .response.status();
  };
  COHORT_EXPECT_OK(ping());
  EXPECT_EQ(PingWith(next.certificate, **server).code(),
            absl::StatusCode::kUnauthenticated);

  // Both are shown, on the connection that is there the next is announced.
  COHORT_ASSERT_OK(
      (*server)->Show(IssueServer(old), IssueServer(next), next.certificate));
  COHORT_EXPECT_OK(PingWith(old.certificate, **server));
  COHORT_EXPECT_OK(PingWith(next.certificate, **server));
  COHORT_EXPECT_OK(ping());
  EXPECT_EQ(Credential::Load(file)->authority(), next.certificate);

  // Once more, without the old one: who comes again reads the file again.
  COHORT_ASSERT_OK((*server)->Show(IssueServer(next), std::nullopt, ""));
  COHORT_EXPECT_OK(ping());
  const absl::Status refused = PingWith(old.certificate, **server);
  EXPECT_EQ(GetReason(refused), "other_authority");
  EXPECT_THAT(refused.message(), HasSubstr("cohort authority trust"));
  COHORT_EXPECT_OK(PingWith(next.certificate, **server));

  const auto late = NewGrpcChannel(address, credential_.For(old.certificate));
  const auto again = [&](Channel& by) {
    return CallAndWait(by, kEcho, StringValue(),
                       {.deadline = absl::Seconds(30)})
        .response.status();
  };
  EXPECT_EQ(GetReason(again(**late)), "other_authority");
  // One whose file was written meanwhile.
  COHORT_ASSERT_OK(credential_.For(old.certificate).Save(file));
  const auto by_file = NewGrpcChannel(address, *Credential::Load(file));
  COHORT_ASSERT_OK(credential_.For(next.certificate).Save(file));
  EXPECT_EQ(GetReason(again(**by_file)), "authority_changed");
  COHORT_EXPECT_OK(again(**by_file));
}

TEST_F(GrpcServerTest, NamesAServerInPlaintext) {
  const auto server = Start("127.0.0.1:0");
  COHORT_ASSERT_OK(server);
  const absl::Status status =
      PingWith(AuthorityOf(NewPrivateKey())->certificate, **server);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("--insecure")));
  EXPECT_EQ(GetReason(status), "plaintext");
}

TEST_F(GrpcServerTest, AClientInPlaintextIsNotServedByTls) {
  const auto server = StartWith(IssueServer(*AuthorityOf(NewPrivateKey())));
  COHORT_ASSERT_OK(server);
  EXPECT_THAT(Ping((*server)->address()),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(GrpcServerTest, RefusesWhatIsNoAddress) {
  for (const char* const text :
       {"", "localhost", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
        "::1:80", "[::1:80", ":80", "unix:", "unix:relative"}) {
    EXPECT_THAT(Start(text), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
    EXPECT_THAT(NewGrpcChannel(text, credential_),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
  EXPECT_THAT(Start("unix:/" + std::string(120, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(GrpcServerTest, KnowsLoopbackAddresses) {
  EXPECT_TRUE(GrpcAddress::Parse("127.9.9.9:1")->IsLoopback());
  EXPECT_TRUE(GrpcAddress::Parse("[::1]:1")->IsLoopback());
  EXPECT_TRUE(GrpcAddress::Parse("unix:/x")->IsLoopback());
  EXPECT_FALSE(GrpcAddress::Parse("10.0.0.1:1")->IsLoopback());
  EXPECT_FALSE(GrpcAddress::Parse("[::]:1")->IsLoopback());
  EXPECT_FALSE(GrpcAddress::Parse("example.org:1")->IsLoopback());
}

TEST_F(GrpcServerTest, GuardsItsUnixSocket) {
  const std::string address = absl::StrCat("unix:", directory_.File("s"));
  auto server = Start(address);
  COHORT_ASSERT_OK(server);
  struct stat info;
  ASSERT_EQ(stat(directory_.File("s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_THAT(Start(address), StatusIs(absl::StatusCode::kAlreadyExists));
  COHORT_EXPECT_OK(Ping(address));
}

TEST_F(GrpcServerTest, TakesOverASocketThatNobodyAnswers) {
  // What a killed server leaves behind.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  directory_.File("s").copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  close(fd);

  const std::string address = absl::StrCat("unix:", directory_.File("s"));
  const auto server = Start(address);
  COHORT_ASSERT_OK(server);
  COHORT_EXPECT_OK(Ping(address));
}

TEST_F(GrpcServerTest, AnUnreachableServerIsNamed) {
  std::string address;
  {
    const auto server = Start("127.0.0.1:0");
    COHORT_ASSERT_OK(server);
    address = (*server)->address();
  }
  EXPECT_THAT(Ping(address),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
  const std::string path = absl::StrCat("unix:", directory_.File("none"));
  EXPECT_THAT(Ping(path),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
}

// Speaks just enough HTTP/2 to answer the first request of one connection with
// 404, as a web server does.
void AnswerNotFound(int listener) {
  const int fd = accept(listener, nullptr, nullptr);
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  // On stream 1: HEADERS with END_HEADERS and END_STREAM, ":status: 404".
  const std::string not_found("\0\0\1\1\5\0\0\0\1\x8d", 10);
  EXPECT_EQ(write(fd, settings.data(), settings.size()), 9);
  std::string got;
  size_t next = 24;  // after the client's preface
  for (bool answered = false;;) {
    char part[4096];
    const ssize_t n = read(fd, part, sizeof(part));
    if (n <= 0) break;
    got.append(part, static_cast<size_t>(n));
    while (!answered && got.size() >= next + 9) {
      const auto byte = [&](size_t i) {
        return static_cast<size_t>(static_cast<unsigned char>(got[next + i]));
      };
      if (byte(3) == 1) {
        EXPECT_EQ(write(fd, not_found.data(), not_found.size()), 10);
        answered = true;
      }
      next += 9 + (byte(0) << 16) + (byte(1) << 8) + byte(2);
    }
  }
  close(fd);
}

TEST_F(GrpcServerTest, AWebServerIsNamedForWhatItIs) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  directory_.File("s").copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof(name)),
            0);
  ASSERT_EQ(listen(listener, 1), 0);
  std::thread web_server(AnswerNotFound, listener);
  const std::string address = absl::StrCat("unix:", directory_.File("s"));
  EXPECT_THAT(Ping(address), StatusIs(absl::StatusCode::kUnimplemented,
                                      AllOf(HasSubstr(address),
                                            HasSubstr("not a cohort daemon"),
                                            HasSubstr("404"))));
  // Wakes it where nobody connected.
  shutdown(listener, SHUT_RDWR);
  web_server.join();
  close(listener);
}

// Restores the soft limit of open files.
class FileLimit {
 public:
  explicit FileLimit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower = {soft, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

// Whether the server speaks to it, and does not hang up.
bool IsServed(int fd) {
  pollfd there = {fd, POLLIN, 0};
  char byte = 0;
  return poll(&there, 1, 10'000) == 1 && recv(fd, &byte, 1, 0) == 1;
}

// GL-1.  With gRPC's own listener nothing is ever served again.
TEST_F(GrpcServerTest, TakesConnectionsAgainOnceItHasDescriptors) {
  const auto server = Start("127.0.0.1:0");
  COHORT_ASSERT_OK(server);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const FileLimit limit(128);
  const UniqueFd first(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd second(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::vector<UniqueFd> taken;
  while (taken.empty() || taken.back()) taken.emplace_back(open("/", O_PATH));
  ASSERT_EQ(errno, EMFILE);
  const auto connect_to_it = [&name](const UniqueFd& from) {
    return connect(from.get(), reinterpret_cast<sockaddr*>(&name),
                   sizeof(name));
  };
  // Who waits for connections may have a descriptor for the first.
  ASSERT_EQ(connect_to_it(first), 0);
  ASSERT_EQ(connect_to_it(second), 0);
  pollfd there = {second.get(), POLLIN, 0};
  EXPECT_EQ(poll(&there, 1, 200), 0);
  taken.clear();
  EXPECT_TRUE(IsServed(first.get()));
  EXPECT_TRUE(IsServed(second.get()));
  COHORT_EXPECT_OK((*server)->CheckTakesConnections());
  COHORT_EXPECT_OK(Ping((*server)->address()));
}

// GL-2
TEST_F(GrpcServerTest, ConnectionsLeaveDescriptorsToTheProcess) {
  const auto server = Start("127.0.0.1:0");
  COHORT_ASSERT_OK(server);
  GrpcAddress address = *GrpcAddress::Parse((*server)->address());
  const FileLimit limit(256);
  std::vector<UniqueFd> connections;
  do {
    ASSERT_LT(connections.size(), 128u);
    absl::StatusOr<UniqueFd> connection = ConnectTo(address);
    COHORT_ASSERT_OK(connection);
    connections.push_back(*std::move(connection));
  } while (IsServed(connections.back().get()));
  EXPECT_EQ(GetReason((*server)->CheckTakesConnections()),
            kNoConnectionsReason);
  std::vector<UniqueFd> files;
  for (int i = 0; i < FilesKeptFree() - 8; ++i) {
    files.emplace_back(open("/", O_PATH));
    EXPECT_TRUE(files.back()) << i;
  }
  files.clear();
  connections.clear();
  // Once the server has seen that they are gone.
  while (!(*server)->CheckTakesConnections().ok()) {
  }
  COHORT_EXPECT_OK(Ping((*server)->address()));
}

// It would be unpacked before anybody asks who sent it.
TEST_F(GrpcServerTest, UnpacksNothingThatIsCompressed) {
  const auto server = Start("127.0.0.1:0");
  COHORT_ASSERT_OK(server);
  const auto channel = grpc::CreateChannel((*server)->address(),
                                           grpc::InsecureChannelCredentials());
  StringValue request;
  request.set_value(std::string(64 << 20, 'x'));
  const grpc::internal::RpcMethod echo(
      kEcho.path, grpc::internal::RpcMethod::NORMAL_RPC, channel);
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", credential_.AuthorizationHeader());
    context.set_compression_algorithm(algorithm);
    StringValue response;
    const grpc::Status status = grpc::internal::BlockingUnaryCall(
        channel.get(), echo, &context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED)
        << status.error_message();
  }
  COHORT_EXPECT_OK(Ping((*server)->address()));
}

// A frame of HTTP/2.
std::string Frame(char type, char flags, char stream, const std::string& body) {
  std::string frame = {
      0, 0, static_cast<char>(body.size()), type, flags, 0, 0, 0, stream};
  return frame + body;
}

// Who reaches the port would fill its memory so.
TEST_F(GrpcServerTest, RefusesACallBeforeItsMessageIsThere) {
  const auto server = Start("127.0.0.1:0");
  COHORT_ASSERT_OK(server);
  const absl::StatusOr<UniqueFd> connection =
      ConnectTo(*GrpcAddress::Parse((*server)->address()));
  COHORT_ASSERT_OK(connection);
  pollfd connected = {connection->get(), POLLOUT, 0};
  ASSERT_EQ(poll(&connected, 1, 30'000), 1);
  std::string headers;
  const std::pair<std::string, std::string> fields[] = {
      {":method", "POST"},   {":scheme", "http"},
      {":path", kEcho.path}, {":authority", "x"},
      {"te", "trailers"},    {"content-type", "application/grpc"}};
  for (const auto& [name, value] : fields) {
    headers += '\0';  // As it is, with no place in the table.
    headers += static_cast<char>(name.size());
    headers += name;
    headers += static_cast<char>(value.size());
    headers += value;
  }
  const std::string begun = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                            Frame(4, 0, 0, "") + Frame(1, 4, 1, headers) +
                            // Says that it has 4 MiB.
                            Frame(0, 0, 1, std::string("\0\0\x40\0\0some", 9));
  ASSERT_EQ(send(connection->get(), begun.data(), begun.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(begun.size()));
  std::string heard;
  char buffer[4096];
  ssize_t size = 1;
  pollfd there = {connection->get(), POLLIN, 0};
  while (!absl::StrContains(heard, "carries no credential") && size > 0 &&
         poll(&there, 1, 30'000) == 1) {
    size = read(connection->get(), buffer, sizeof(buffer));
    if (size > 0) heard.append(buffer, static_cast<size_t>(size));
  }
  EXPECT_THAT(heard, HasSubstr("carries no credential"));
}

// What the generated stub of a stock client does with a unary and with a server
// streaming method.
TEST_F(GrpcServerTest, ServesAStockClient) {
  const auto server = Start("127.0.0.1:0");
  COHORT_ASSERT_OK(server);
  const auto channel = grpc::CreateChannel((*server)->address(),
                                           grpc::InsecureChannelCredentials());
  StringValue request;
  request.set_value("a job");

  const grpc::internal::RpcMethod submit(
      kEcho.path, grpc::internal::RpcMethod::NORMAL_RPC, channel);
  {
    grpc::ClientContext context;
    context.AddMetadata("authorization", credential_.AuthorizationHeader());
    StringValue response;
    const grpc::Status status = grpc::internal::BlockingUnaryCall(
        channel.get(), submit, &context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.value(), "a job");
  }
  {
    grpc::ClientContext context;
    StringValue response;
    const grpc::Status status = grpc::internal::BlockingUnaryCall(
        channel.get(), submit, &context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  const grpc::internal::RpcMethod read(
      kCount.path, grpc::internal::RpcMethod::SERVER_STREAMING, channel);
  grpc::ClientContext context;
  context.AddMetadata("authorization", credential_.AuthorizationHeader());
  const std::unique_ptr<grpc::ClientReader<StringValue>> reader(
      grpc::internal::ClientReaderFactory<StringValue>::Create(
          channel.get(), read, &context, request));
  StringValue line;
  int lines = 0;
  while (reader->Read(&line)) ++lines;
  EXPECT_EQ(lines, 3);
  EXPECT_TRUE(reader->Finish().ok());
}

}  // namespace
}  // namespace cohort::rpc
