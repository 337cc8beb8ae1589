#include "head/http/http_server.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "boost/asio/dispatch.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/ssl.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"
#include "client/json.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using tcp = asio::ip::tcp;
using Error = boost::system::error_code;

// Of a request's first line and header; browsers and scrapers stay below 2 KiB.
constexpr size_t kHeadBytesMax = 16 << 10;
// Nothing here has a use for one; a smaller one is not read, and ignored.
constexpr uint64_t kBodyBytesMax = 1 << 20;
// A connection that is closed with an answer reads on this long, because
// closing over unread bytes would take the answer back.
constexpr absl::Duration kLinger = absl::Seconds(1);
// Without a free descriptor the listener rests, instead of spinning.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(200);

// As HttpService's errors look.
HttpResponse Problem(int status, absl::StatusCode code,
                     absl::string_view reason, absl::string_view what) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrCat(
      ErrorJson(absl::StatusCodeToString(code), reason, what), "\n");
  return response;
}

absl::Status ToStatus(const Error& error, absl::string_view what) {
  return ErrnoStatus(error.value(), what);
}

absl::Status Listen(const HostPort& address, tcp::acceptor& acceptor) {
  Error error;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found = resolver.resolve(address.host, absl::StrCat(address.port),
                                      tcp::resolver::passive, error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.host, ": ", error.message()));
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (error) return ToStatus(error, "socket");
  // A port that a head left a moment ago can be taken again; one that somebody
  // listens on cannot.
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return SetReason(absl::AlreadyExistsError(absl::StrCat(
                         "another program listens on ", address.ToString())),
                     "busy_port");
  }
  if (error) {
    return ToStatus(error, absl::StrCat("listen on ", address.ToString()));
  }
  return absl::OkStatus();
}

std::string FieldOf(const http::request<http::empty_body>& head,
                    http::field field) {
  const auto value = head[field];
  return std::string(value.data(), value.size());
}

}  // namespace

// The thread and its connections.
class HttpServer::Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(HttpServerOptions options, const Clock& clock, Handler handler)
      : options_(std::move(options)),
        clock_(clock),
        handler_(std::move(handler)),
        acceptor_(context_),
        pause_(context_) {}

  absl::Status Start() {
    if (options_.identity.has_value()) UseTls(*options_.identity);
    COHORT_RETURN_IF_ERROR(Listen(options_.address, acceptor_));
    Error ignored;
    address_ = HostPort{options_.address.host,
                        acceptor_.local_endpoint(ignored).port()}
                   .ToString();
    Accept();
    thread_ = std::thread([this] { context_.run(); });
    return absl::OkStatus();
  }

  // Nothing is answered after it.
  void Stop() {
    asio::post(context_, [this] {
      acceptor_.close();
      connections_.clear();
      context_.stop();
    });
    thread_.join();
  }

  void Show(const rpc::Identity& identity) {
    asio::post(context_, [this, identity] { UseTls(identity); });
  }

  const std::string& address() const { return address_; }

 private:
  enum class State { kReading, kHandling, kWriting, kLingering };

  struct Connection {
    explicit Connection(tcp::socket socket) : stream(std::move(socket)) {}

    beast::tcp_stream stream;
    std::optional<ssl::stream<beast::tcp_stream&>> tls;  // over `stream`
    beast::flat_buffer in{kHeadBytesMax};
    std::optional<http::request_parser<http::empty_body>> parser;
    std::optional<http::response<http::string_body>> response;
    std::optional<http::response_serializer<http::string_body>> serializer;
    State state = State::kReading;
    absl::Duration since;  // when its request began to be read
    size_t unsent = 0;
    bool close_after = false;
    bool is_spare = false;  // taken while all regular ones are being answered
  };

  void UseTls(const rpc::Identity& identity) {
    // Connections that are there hold on to what they were shown.
    ssl::context& tls = tls_.emplace(ssl::context::tlsv13_server);
    tls.use_certificate_chain(asio::buffer(identity.certificate));
    tls.use_private_key(asio::buffer(identity.private_key), ssl::context::pem);
  }

  // Runs `operation` with what bytes of the connection go through.
  template <typename Operation>
  static void Through(Connection& connection, Operation operation) {
    if (connection.tls.has_value()) {
      operation(*connection.tls);
    } else {
      operation(connection.stream);
    }
  }

  void Accept() {
    acceptor_.async_accept([this](const Error& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return PauseAccepting();
      Welcome(std::move(socket));
      Accept();
    });
  }

  void PauseAccepting() {
    pause_.expires_after(absl::ToChronoNanoseconds(kAcceptPause));
    pause_.async_wait([this](const Error& error) {
      if (!error) Accept();
    });
  }

  void Welcome(tcp::socket socket) {
    const bool is_spare =
        regular_ >= options_.connections_max && !MakeRoom(/*spare=*/false);
    const size_t spares = connections_.size() - regular_;
    if (is_spare && spares >= options_.spare_connections &&
        !MakeRoom(/*spare=*/true)) {
      return;  // Every one of them is being answered: this one is closed.
    }
    Error ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const uint64_t id = next_connection_++;
    auto connection = std::make_unique<Connection>(std::move(socket));
    connection->is_spare = is_spare;
    if (!is_spare) ++regular_;
    Connection& welcome = *connection;
    connections_.emplace(id, std::move(connection));
    if (!tls_.has_value()) return Read(id);
    welcome.since = clock_.Monotonic();
    welcome.tls.emplace(welcome.stream, *tls_);
    welcome.stream.expires_after(
        absl::ToChronoNanoseconds(options_.read_timeout));
    welcome.tls->async_handshake(ssl::stream_base::server,
                                 [this, id](const Error& error) {
                                   if (Find(id) == nullptr) return;
                                   if (error) return Close(id);
                                   Read(id);
                                 });
  }

  // HS-1: of the regular or the spare ones, the one that has been sending its
  // request the longest goes.
  bool MakeRoom(bool spare) {
    auto slowest = connections_.end();
    for (auto it = connections_.begin(); it != connections_.end(); ++it) {
      const Connection& connection = *it->second;
      if (connection.is_spare != spare ||
          connection.state == State::kHandling ||
          connection.state == State::kWriting) {
        continue;
      }
      if (slowest == connections_.end() ||
          connection.since < slowest->second->since) {
        slowest = it;
      }
    }
    if (slowest == connections_.end()) return false;
    Close(slowest->first);
    return true;
  }

  Connection* Find(uint64_t id) {
    const auto it = connections_.find(id);
    return it == connections_.end() ? nullptr : it->second.get();
  }

  // What is under way on it ends as aborted, and finds it gone.
  void Close(uint64_t id) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    unsent_bytes_ -= it->second->unsent;
    if (!it->second->is_spare) --regular_;
    // Buffers stay until the operations on them were told.
    std::shared_ptr<Connection> gone = std::move(it->second);
    connections_.erase(it);
    gone->stream.close();
    asio::post(context_, [gone] {});
  }

  // ---- a request ----

  void Read(uint64_t id) {
    Connection& connection = *Find(id);
    connection.state = State::kReading;
    connection.since = clock_.Monotonic();
    connection.parser.emplace();
    connection.parser->header_limit(kHeadBytesMax);
    // Handle says what is too large, in our words.
    connection.parser->body_limit(std::numeric_limits<uint64_t>::max());
    connection.stream.expires_after(
        absl::ToChronoNanoseconds(options_.read_timeout));
    Through(connection, [&](auto& stream) {
      http::async_read_header(
          stream, connection.in, *connection.parser,
          [this, id](const Error& error, size_t) { OnRead(id, error); });
    });
  }

  void OnRead(uint64_t id, const Error& error) {
    Connection* const connection = Find(id);
    if (connection == nullptr) return;
    if (error == http::error::header_limit ||
        error == http::error::buffer_overflow) {
      return Refuse(
          id, Problem(431, absl::StatusCode::kInvalidArgument, "head_too_large",
                      "the request's head is over 16 KiB"));
    }
    if (error &&
        error.category() ==
            http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream &&
        error != http::error::partial_message) {
      return Refuse(id, BadRequest(absl::StrCat("not an HTTP request: ",
                                                error.message())));
    }
    if (error) return Close(id);  // it hung up, or took too long
    Handle(id, *connection);
  }

  static HttpResponse BadRequest(absl::string_view what) {
    return Problem(400, absl::StatusCode::kInvalidArgument, "bad_request",
                   what);
  }

  void Refuse(uint64_t id, HttpResponse response) {
    Find(id)->close_after = true;
    Send(id, std::move(response));
  }

  void Handle(uint64_t id, Connection& connection) {
    const http::request<http::empty_body>& head = connection.parser->get();
    const uint64_t body_bytes = connection.parser->content_length().value_or(0);
    const bool has_body = connection.parser->chunked() || body_bytes > 0;
    connection.close_after =
        !head.keep_alive() || has_body || connection.is_spare;
    connection.state = State::kHandling;
    connection.stream.expires_never();
    if (body_bytes > kBodyBytesMax) {
      return Refuse(
          id, Problem(413, absl::StatusCode::kInvalidArgument, "body_too_large",
                      absl::StrCat("the request has a body of ", body_bytes,
                                   " bytes; nothing here takes one")));
    }
    HttpRequest request;
    request.method =
        std::string(head.method_string().data(), head.method_string().size());
    request.authorization = FieldOf(head, http::field::authorization);
    request.accept = FieldOf(head, http::field::accept);
    request.crowded = connection.is_spare;
    const absl::Status target = ParseHttpTarget(
        absl::string_view(head.target().data(), head.target().size()), request);
    if (!target.ok()) return Refuse(id, BadRequest(target.message()));
    handler_(std::move(request), [loop = weak_from_this(),
                                  id](HttpResponse response) mutable {
      const std::shared_ptr<Loop> alive = loop.lock();
      if (alive == nullptr) return;
      asio::post(alive->context_, [alive = alive.get(), id,
                                   response = std::move(response)]() mutable {
        alive->Answer(id, std::move(response));
      });
    });
  }

  void Answer(uint64_t id, HttpResponse response) {
    if (Find(id) != nullptr) Send(id, std::move(response));
  }

  // ---- an answer ----

  void Send(uint64_t id, HttpResponse response) {
    Connection& connection = *Find(id);
    if (unsent_bytes_ + response.body.size() > options_.unsent_bytes_max) {
      response =
          Problem(503, absl::StatusCode::kResourceExhausted, "overloaded",
                  "too many answers wait for slow readers: try again");
      response.headers.emplace_back("Retry-After", "1");
    }
    connection.unsent = response.body.size();
    unsent_bytes_ += connection.unsent;
    connection.state = State::kWriting;
    Fill(connection, std::move(response));
    connection.stream.expires_after(
        absl::ToChronoNanoseconds(options_.write_timeout));
    const auto written = [this, id](const Error& error, size_t) {
      OnWritten(id, error);
    };
    Through(connection, [&](auto& stream) {
      if (connection.parser->get().method() == http::verb::head) {
        http::async_write_header(stream, *connection.serializer, written);
      } else {
        http::async_write(stream, *connection.serializer, written);
      }
    });
  }

  void Fill(Connection& connection, HttpResponse response) {
    http::response<http::string_body>& out = connection.response.emplace();
    out.version(11);
    out.result(static_cast<unsigned>(response.status));
    out.set(http::field::content_type, response.content_type);
    out.set(http::field::date,
            absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", clock_.Wall(),
                             absl::UTCTimeZone()));
    out.set(http::field::cache_control, "no-store");
    out.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : response.headers) out.set(name, value);
    out.keep_alive(!connection.close_after);
    out.body() = std::move(response.body);
    out.prepare_payload();
    connection.serializer.emplace(out);
  }

  void OnWritten(uint64_t id, const Error& error) {
    Connection* const connection = Find(id);
    if (connection == nullptr) return;
    if (error) return Close(id);
    unsent_bytes_ -= std::exchange(connection->unsent, 0);
    connection->serializer.reset();
    connection->response.reset();
    if (!connection->close_after) return Read(id);
    Error ignored;
    connection->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    connection->state = State::kLingering;
    connection->stream.expires_after(absl::ToChronoNanoseconds(kLinger));
    Discard(id);
  }

  void Discard(uint64_t id) {
    Connection& connection = *Find(id);
    connection.in.clear();
    Through(connection, [&](auto& stream) {
      stream.async_read_some(connection.in.prepare(kHeadBytesMax),
                             [this, id](const Error& error, size_t) {
                               if (Find(id) == nullptr) return;
                               if (error) return Close(id);
                               Discard(id);
                             });
    });
  }

  const HttpServerOptions options_;
  const Clock& clock_;
  // The thread's.
  Handler handler_;
  asio::io_context context_{1};
  std::optional<ssl::context> tls_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  // Shared with a task that lets go of one.
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t next_connection_ = 0;
  size_t regular_ = 0;  // of the connections, those that are not spare
  size_t unsent_bytes_ = 0;

  // Set by Start.
  std::string address_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    HttpServerOptions options, const Clock& clock, Handler handler) {
  auto loop =
      std::make_shared<Loop>(std::move(options), clock, std::move(handler));
  COHORT_RETURN_IF_ERROR(loop->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
}

HttpServer::HttpServer(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}

HttpServer::~HttpServer() { loop_->Stop(); }

void HttpServer::Show(const rpc::Identity& identity) { loop_->Show(identity); }

const std::string& HttpServer::address() const { return loop_->address(); }

}  // namespace cohort::head
