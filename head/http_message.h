#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// HTTP/1.1 as bytes: what a client sent, and what it gets.  Pure functions.
namespace cohort::head {

// A request without its body, which nothing here has a use for.
struct HttpRequest {
  std::string method;  // "GET", as sent
  // Percent-decoded; begins with a slash.
  std::string path;
  // Decoded pairs in the order of the query.
  std::vector<std::pair<std::string, std::string>> query;
  // Header fields; empty when absent.
  std::string authorization;
  std::string accept;
  // The client wants the connection kept for another request.
  bool keep_alive = true;
  // A body follows, which is not read.
  bool has_body = false;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  // Further header fields, such as Retry-After.
  std::vector<std::pair<std::string, std::string>> headers;
};

// The largest head of a request, and the most header fields in it.  Browsers
// and scrapers stay below 2 KiB.
inline constexpr size_t kHttpHeadBytesMax = 16 << 10;
inline constexpr size_t kHttpFieldsMax = 100;

// Where the head of a request ends in `bytes`: after its empty line, or npos
// while more has to come.
size_t EndOfHttpHead(absl::string_view bytes);

// Reads a head up to and with its empty line.  InvalidArgument, saying what is
// wrong with it: the sender is no HTTP/1 client or a hostile one (HM-1: what
// two readers could read differently is refused).
absl::StatusOr<HttpRequest> ParseHttpHead(absl::string_view head);

// The bytes of an answer.  `close`: the connection ends with it; `head_only`:
// the answer to HEAD.
std::string RenderHttpResponse(const HttpResponse& response, absl::Time now,
                               bool close, bool head_only);

// "Not Found".
absl::string_view HttpReason(int status);

}  // namespace cohort::head
