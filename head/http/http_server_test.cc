// Real sockets: what only they show of a server.

#include "head/http/http_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/real_clock.h"
#include "common/testing/status_matchers.h"
#include "common/unique_fd.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    options.address = {.host = "127.0.0.1", .port = 0};
    auto server = HttpServer::Start(
        options, clock_, [this](HttpRequest request, HttpServer::Reply reply) {
          if (request.path == "/later") {
            MutexLock lock(mutex_);
            later_.push_back(std::move(reply));
            asked_.SignalAll();
            return;
          }
          HttpResponse response;
          if (request.crowded) response.status = 503;
          response.body = request.path == "/large" ? std::string(4 << 20, 'x')
                                                   : request.path;
          std::move(reply)(std::move(response));
        });
    COHORT_ASSERT_OK(server);
    server_ = *std::move(server);
  }

  UniqueFd Connect() {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = ParseHostPort(server_->address());
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(address->port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              0);
    return fd;
  }
  static void Say(const UniqueFd& fd, const std::string& text) {
    EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Until the server closes or `end` has come.
  static std::string Hear(const UniqueFd& fd, const std::string& end = "") {
    std::string text;
    char buffer[65536];
    while (end.empty() || text.find(end) == std::string::npos) {
      const ssize_t count = recv(fd.get(), buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  std::string Ask(const std::string& path) {
    const UniqueFd fd = Connect();
    Say(fd, "GET " + path + " HTTP/1.0\r\n\r\n");
    return Hear(fd);
  }

  MachineClock clock_;
  Mutex mutex_;
  CondVar asked_;
  std::vector<HttpServer::Reply> later_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start();
  const UniqueFd fd = Connect();
  Say(fd, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(Hear(fd, "/a"), StartsWith("HTTP/1.1 200 OK\r\n"));
  // Two at once, the first in pieces.
  Say(fd, "GET /b HT");
  Say(fd,
      "TP/1.1\r\nHost: x\r\n\r\nGET /c HTTP/1.1\r\nHost: x\r\n"
      "Connection: close\r\n\r\n");
  const std::string both = Hear(fd);
  EXPECT_THAT(both, HasSubstr("/b"));
  EXPECT_THAT(both, EndsWith("/c"));
}

TEST_F(HttpServerTest, SendsALargeAnswerWhole) {
  Start();
  EXPECT_EQ(Ask("/large").size() - Ask("/").find("\r\n\r\n") - 4 - 6,
            size_t{4 << 20});
}

TEST_F(HttpServerTest, RefusesGarbageAndGoesOn) {
  Start();
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string(20'000, 'a')}) {
    const UniqueFd fd = Connect();
    Say(fd, garbage);
    EXPECT_THAT(Hear(fd), AllOf(StartsWith("HTTP/1.1 4"),
                                HasSubstr("Content-Type: application/json"),
                                HasSubstr("\"message\":")));
  }
  EXPECT_THAT(Ask("/a"), EndsWith("/a"));
}

TEST_F(HttpServerTest, AnswersARequestWithABodyThatItDoesNotRead) {
  Start();
  const UniqueFd fd = Connect();
  Say(fd, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" +
              std::string(50'000, 'b'));
  EXPECT_THAT(Hear(fd),
              AllOf(HasSubstr("Connection: close\r\n"), EndsWith("\r\n/a")));
}

TEST_F(HttpServerTest, RefusesABodyThatIsTooLarge) {
  Start();
  const UniqueFd fd = Connect();
  Say(fd, "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
  EXPECT_THAT(Hear(fd),
              AllOf(StartsWith("HTTP/1.1 413 "), HasSubstr("99999999999"),
                    HasSubstr("\"body_too_large\"")));
}

TEST_F(HttpServerTest, SaysThatAHeadIsTooLarge) {
  Start();
  const UniqueFd fd = Connect();
  Say(fd, "GET /a HTTP/1.1\r\nX: " + std::string(20'000, 'a') + "\r\n\r\n");
  EXPECT_THAT(Hear(fd), AllOf(StartsWith("HTTP/1.1 431 "),
                              HasSubstr("\"head_too_large\"")));
}

// HS-1.
TEST_F(HttpServerTest, EndsASilentClient) {
  Start({.read_timeout = absl::Milliseconds(50)});
  const UniqueFd silent = Connect();
  const UniqueFd slow = Connect();
  Say(slow, "GET /a HT");
  EXPECT_EQ(Hear(silent), "");
  EXPECT_EQ(Hear(slow), "");
}

// HS-1.
TEST_F(HttpServerTest, GivesTheSlowestsPlaceToANewcomer) {
  Start({.connections_max = 3, .spare_connections = 0});
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 10; ++i) {
    slow.push_back(Connect());
    Say(slow.back(), "GET /");
    EXPECT_THAT(Ask("/a"), EndsWith("/a")) << i;
  }
}

TEST_F(HttpServerTest, TellsTheHandlerThatAllIsTaken) {
  Start({.connections_max = 1, .spare_connections = 1});
  const UniqueFd answered = Connect();
  Say(answered, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
  HttpServer::Reply reply;
  {
    MutexLock lock(mutex_);
    while (later_.empty()) asked_.Wait(mutex_);
    reply = std::move(later_[0]);
  }
  EXPECT_THAT(Ask("/a"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask("/a"), StartsWith("HTTP/1.1 503 "));
  // Who was there before is not crowded.
  std::move(reply)(HttpResponse());
  EXPECT_THAT(Hear(answered, "\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  Say(answered, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(Hear(answered, "/a"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, RefusesAnswersBeyondWhatSlowReadersLeave) {
  Start({.unsent_bytes_max = 1 << 20});
  EXPECT_THAT(Ask("/large"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask("/a"), EndsWith("/a"));
}

TEST_F(HttpServerTest, DropsAnAnswerWhoseClientOrServerIsGone) {
  Start();
  const auto wait = [this](size_t count) {
    for (;;) {
      {
        MutexLock lock(mutex_);
        if (later_.size() == count) return;
      }
      Ask("/a");
    }
  };
  {
    const UniqueFd gone = Connect();
    Say(gone, "GET /later HTTP/1.0\r\n\r\n");
    wait(1);
  }
  const UniqueFd here = Connect();
  Say(here, "GET /later HTTP/1.0\r\n\r\n");
  wait(2);
  std::vector<HttpServer::Reply> replies;
  {
    MutexLock lock(mutex_);
    replies = std::move(later_);
  }
  std::move(replies[0])(HttpResponse());
  EXPECT_THAT(Ask("/a"), EndsWith("/a"));
  server_.reset();
  std::move(replies[1])(HttpResponse());
  EXPECT_EQ(Hear(here), "");
}

TEST_F(HttpServerTest, NamesAPortThatIsTaken) {
  Start();
  HttpServerOptions options;
  options.address = *ParseHostPort(server_->address());
  const auto second =
      HttpServer::Start(options, clock_, [](HttpRequest, HttpServer::Reply) {});
  EXPECT_THAT(second.status(), StatusIs(absl::StatusCode::kAlreadyExists,
                                        HasSubstr(server_->address())));
}

}  // namespace
}  // namespace cohort::head
