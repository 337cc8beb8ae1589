#include "head/http_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::head {
namespace {

// What epoll says of; connections count from kFirstConnection.
constexpr uint64_t kListener = 0;
constexpr uint64_t kWake = 1;
constexpr uint64_t kFirstConnection = 2;

constexpr size_t kReadBytes = 16 << 10;
// A connection that is closed with an answer reads on this long, because
// closing over unread bytes would take the answer back.
constexpr absl::Duration kLinger = absl::Seconds(1);
// Without a free descriptor the listener rests, instead of spinning.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(200);

struct AddressList {
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
  addrinfo* first = nullptr;
};

absl::StatusOr<UniqueFd> Listen(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  AddressList list;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(),
                  &hints, &list.first);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.host, ": ", gai_strerror(error)));
  }
  const addrinfo& to = *list.first;
  UniqueFd fd(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                     to.ai_protocol));
  if (!fd) return ErrnoStatus(errno, "socket");
  // A port that a head left a moment ago can be taken again; one that somebody
  // listens on cannot.
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), to.ai_addr, to.ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE) {
      return SetReason(absl::AlreadyExistsError(absl::StrCat(
                           "another program listens on ", address.ToString())),
                       "busy_port");
    }
    return ErrnoStatus(errno, absl::StrCat("listen on ", address.ToString()));
  }
  return fd;
}

uint16_t PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return 0;
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

HttpResponse Problem(int status, absl::string_view what) {
  HttpResponse response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = absl::StrCat(what, "\n");
  return response;
}

}  // namespace

// The thread and its connections.  Replies reach it by Answer, from anywhere.
class HttpServer::Loop {
 public:
  Loop(HttpServerOptions options, const Clock& clock, Handler handler,
       UniqueFd listener, UniqueFd epoll, UniqueFd wake)
      : options_(std::move(options)),
        clock_(clock),
        address_(
            HostPort{options_.address.host, PortOf(listener.get())}.ToString()),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        handler_(std::move(handler)) {
    Watch(listener_.get(), EPOLLIN, kListener, EPOLL_CTL_ADD);
    Watch(wake_.get(), EPOLLIN, kWake, EPOLL_CTL_ADD);
  }

  const std::string& address() const { return address_; }

  // `self` is kept by replies.
  void Start(const std::shared_ptr<Loop>& self) {
    self_ = self;
    thread_ = std::thread([this] { Run(); });
  }

  void Stop() {
    stopping_.store(true, std::memory_order_release);
    Wake();
    thread_.join();
  }

  // From any thread.
  void Answer(uint64_t connection, HttpResponse response) {
    {
      MutexLock lock(mutex_);
      answers_.emplace_back(connection, std::move(response));
    }
    Wake();
  }

 private:
  enum class State { kReading, kHandling, kWriting, kLingering };

  struct Connection {
    UniqueFd fd;
    State state = State::kReading;
    absl::Duration deadline;  // of the state; on the monotonic clock
    absl::Duration since;     // when its request began to be read
    std::string in;
    std::string out;
    size_t sent = 0;
    bool head_only = false;
    bool close_after = false;
  };

  void Run() {
    while (!stopping_.load(std::memory_order_acquire)) {
      epoll_event events[64];
      const int count = epoll_wait(epoll_.get(), events, 64, Timeout());
      for (int i = 0; i < count; ++i) {
        const uint64_t id = events[i].data.u64;
        if (id == kListener) {
          Accept();
        } else if (id == kWake) {
          uint64_t ignored = 0;
          (void)!read(wake_.get(), &ignored, sizeof(ignored));
        } else {
          OnReady(id);
        }
      }
      TakeAnswers();
      CloseLate();
    }
    connections_.clear();
    listener_.Reset();
  }

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
  }

  void Watch(int fd, uint32_t events, uint64_t id, int operation) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = id;
    const int error = epoll_ctl(epoll_.get(), operation, fd, &event);
    COHORT_CHECK(error == 0) << "epoll_ctl: " << errno;
  }

  // Until the first deadline, in milliseconds.
  int Timeout() const {
    absl::Duration first = accept_again_;
    for (const auto& [id, connection] : connections_) {
      first = std::min(first, connection.deadline);
    }
    if (first == absl::InfiniteDuration()) return -1;
    const absl::Duration left =
        absl::Ceil(first - clock_.Monotonic(), absl::Milliseconds(1));
    return static_cast<int>(
        std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 0, 60'000));
  }

  // ---- connections ----

  void Accept() {
    for (;;) {
      UniqueFd fd(accept4(listener_.get(), nullptr, nullptr,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (!fd) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) PauseAccepting();
        return;
      }
      if (connections_.size() >= options_.connections_max && !MakeRoom()) {
        continue;  // Every one of them is being answered: this one is closed.
      }
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const uint64_t id = next_connection_++;
      Watch(fd.get(), EPOLLIN, id, EPOLL_CTL_ADD);
      Connection& connection = connections_[id];
      connection.fd = std::move(fd);
      Read(connection);
    }
  }

  void PauseAccepting() {
    accept_again_ = clock_.Monotonic() + kAcceptPause;
    Watch(listener_.get(), 0, kListener, EPOLL_CTL_MOD);
  }

  // HS-1: whoever has been sending its request the longest goes.
  bool MakeRoom() {
    auto slowest = connections_.end();
    for (auto it = connections_.begin(); it != connections_.end(); ++it) {
      if (it->second.state == State::kHandling ||
          it->second.state == State::kWriting) {
        continue;
      }
      if (slowest == connections_.end() ||
          it->second.since < slowest->second.since) {
        slowest = it;
      }
    }
    if (slowest == connections_.end()) return false;
    Close(slowest->first);
    return true;
  }

  // The connection may read its next request.
  void Read(Connection& connection) {
    connection.state = State::kReading;
    connection.since = clock_.Monotonic();
    connection.deadline = connection.since + options_.read_timeout;
  }

  void Close(uint64_t id) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    unsent_bytes_ -= it->second.out.size();
    connections_.erase(it);
  }

  void CloseLate() {
    const absl::Duration now = clock_.Monotonic();
    if (now >= accept_again_) {
      accept_again_ = absl::InfiniteDuration();
      Watch(listener_.get(), EPOLLIN, kListener, EPOLL_CTL_MOD);
    }
    std::vector<uint64_t> late;
    for (const auto& [id, connection] : connections_) {
      if (now >= connection.deadline) late.push_back(id);
    }
    for (const uint64_t id : late) {
      Connection& connection = connections_.at(id);
      if (connection.state == State::kReading && !connection.in.empty()) {
        connection.close_after = true;
        Send(id, connection, Problem(408, "the request took too long"));
      } else {
        Close(id);
      }
    }
  }

  void OnReady(uint64_t id) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;  // closed in this very round
    switch (it->second.state) {
      case State::kReading:
        return OnReadable(id, it->second);
      case State::kHandling:
        // Only an error or a hang-up is said of it.
        return Close(id);
      case State::kWriting:
        return Write(id, it->second);
      case State::kLingering:
        return Discard(id, it->second);
    }
  }

  // ---- a request ----

  void OnReadable(uint64_t id, Connection& connection) {
    char buffer[kReadBytes];
    const ssize_t count = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return Close(id);
    connection.in.append(buffer, static_cast<size_t>(count));
    Handle(id, connection);
  }

  // Answers the request that has come, if a whole one has.
  void Handle(uint64_t id, Connection& connection) {
    const size_t end = EndOfHttpHead(connection.in);
    if (end == absl::string_view::npos || end > kHttpHeadBytesMax) {
      if (connection.in.size() <= kHttpHeadBytesMax) return;
      connection.close_after = true;
      return Send(id, connection,
                  Problem(431, "the request's head is over 16 KiB"));
    }
    absl::StatusOr<HttpRequest> request =
        ParseHttpHead(absl::string_view(connection.in).substr(0, end));
    if (!request.ok()) {
      connection.close_after = true;
      return Send(id, connection, Problem(400, request.status().message()));
    }
    connection.in.erase(0, end);
    connection.head_only = request->method == "HEAD";
    connection.close_after = !request->keep_alive || request->has_body;
    connection.state = State::kHandling;
    connection.deadline = absl::InfiniteDuration();
    Watch(connection.fd.get(), 0, id, EPOLL_CTL_MOD);
    handler_(*std::move(request),
             [loop = self_, id](HttpResponse response) mutable {
               if (const auto alive = loop.lock()) {
                 alive->Answer(id, std::move(response));
               }
             });
  }

  void TakeAnswers() {
    std::vector<std::pair<uint64_t, HttpResponse>> answers;
    {
      MutexLock lock(mutex_);
      answers.swap(answers_);
    }
    for (auto& [id, response] : answers) {
      const auto it = connections_.find(id);
      if (it == connections_.end()) continue;
      Send(id, it->second, std::move(response));
    }
  }

  // ---- an answer ----

  void Send(uint64_t id, Connection& connection, HttpResponse response) {
    if (unsent_bytes_ + response.body.size() > options_.unsent_bytes_max) {
      response = Problem(503, "too many answers wait for slow readers");
      response.headers.emplace_back("Retry-After", "1");
    }
    connection.out = RenderHttpResponse(
        response, clock_.Wall(), connection.close_after, connection.head_only);
    connection.sent = 0;
    unsent_bytes_ += connection.out.size();
    connection.state = State::kWriting;
    connection.deadline = clock_.Monotonic() + options_.write_timeout;
    Write(id, connection);
  }

  void Write(uint64_t id, Connection& connection) {
    while (connection.sent < connection.out.size()) {
      const ssize_t count =
          send(connection.fd.get(), connection.out.data() + connection.sent,
               connection.out.size() - connection.sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return Watch(connection.fd.get(), EPOLLOUT, id, EPOLL_CTL_MOD);
      }
      if (count <= 0) return Close(id);
      connection.sent += static_cast<size_t>(count);
    }
    unsent_bytes_ -= connection.out.size();
    connection.out = std::string();
    Watch(connection.fd.get(), EPOLLIN, id, EPOLL_CTL_MOD);
    if (connection.close_after) {
      shutdown(connection.fd.get(), SHUT_WR);
      connection.state = State::kLingering;
      connection.deadline = clock_.Monotonic() + kLinger;
      connection.in = std::string();
      return;
    }
    Read(connection);
    // Another request may have come with the last one.
    Handle(id, connection);
  }

  void Discard(uint64_t id, Connection& connection) {
    char buffer[kReadBytes];
    const ssize_t count = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
      Close(id);
    }
  }

  // Set in the constructor or by Start.
  const HttpServerOptions options_;
  const Clock& clock_;
  const std::string address_;
  UniqueFd listener_;
  const UniqueFd epoll_;
  const UniqueFd wake_;
  std::weak_ptr<Loop> self_;
  std::thread thread_;

  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::vector<std::pair<uint64_t, HttpResponse>> answers_
      ABSL_GUARDED_BY(mutex_);

  // The thread's.
  Handler handler_;
  std::map<uint64_t, Connection> connections_;
  uint64_t next_connection_ = kFirstConnection;
  size_t unsent_bytes_ = 0;
  absl::Duration accept_again_ = absl::InfiniteDuration();
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    HttpServerOptions options, const Clock& clock, Handler handler) {
  COHORT_ASSIGN_OR_RETURN(UniqueFd listener, Listen(options.address));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) return ErrnoStatus(errno, "epoll");
  auto loop = std::make_shared<Loop>(std::move(options), clock,
                                     std::move(handler), std::move(listener),
                                     std::move(epoll), std::move(wake));
  loop->Start(loop);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
}

HttpServer::HttpServer(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}

HttpServer::~HttpServer() { loop_->Stop(); }

const std::string& HttpServer::address() const { return loop_->address(); }

}  // namespace cohort::head
