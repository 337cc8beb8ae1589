#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/host_port.h"
#include "head/http/http_message.h"
#include "rpc/certificate.h"

namespace cohort::head {

struct HttpServerOptions {
  HostPort address;
  // Shown with TLS 1.3; none: plaintext.
  std::optional<rpc::Identity> identity;
  // A scraper, some dashboards, and scripts.  A newcomer beyond them takes the
  // place of the one that has been sending its request the longest.  While all
  // of them are being answered it gets a spare one, for one request, which is
  // marked as crowded.
  size_t connections_max = 256;
  size_t spare_connections = 64;
  // A request is a few hundred bytes: a peer that takes longer is not a client.
  absl::Duration read_timeout = absl::Seconds(10);
  // 8 MiB over 1 MB/s, and some.
  absl::Duration write_timeout = absl::Seconds(30);
  // Answers that clients have not taken yet, together: 8 of the largest.
  size_t unsent_bytes_max = 64 << 20;
};

// An HTTP/1.1 server for requests without bodies: Boost.Beast on one thread of
// its own, with bounds and time; what is answered is the handler's.
//
//   HS-1: a slow, silent or hostile client costs its connection and nothing
//         else: no thread waits for it, and its time and memory are bounded.
//   HS-2: each request is answered once, in the order of its connection.
//
// Thread-safe.
class HttpServer {
 public:
  // The one answer to a request, from any thread; dropped when the client has
  // gone.  May outlive the server.
  using Reply = absl::AnyInvocable<void(HttpResponse response) &&>;
  // Runs on the server's thread, must not block, and answers then or later.
  using Handler = absl::AnyInvocable<void(HttpRequest request, Reply reply)>;

  // Binds and serves.  AlreadyExists: the port is taken; otherwise what the
  // system said of the address.  `clock` outlives the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      HttpServerOptions options, const Clock& clock, Handler handler);
  // Closes what is open; the handler is not called again.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // What new connections are shown from now on.  REQUIRES: it serves TLS.
  void Show(const rpc::Identity& identity);

  // HOST:PORT with the port that it got.
  const std::string& address() const;

 private:
  class Loop;

  explicit HttpServer(std::shared_ptr<Loop> loop);

  // Shared: this and replies.
  const std::shared_ptr<Loop> loop_;
};

}  // namespace cohort::head
