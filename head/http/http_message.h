#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// What a client asks over HTTP, and what it gets.  Plain values.
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
  // It came while all connections were being answered: only what is cheap and
  // matters most should be.
  bool crowded = false;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  // Further header fields, such as Retry-After.
  std::vector<std::pair<std::string, std::string>> headers;
};

// Reads the target of a request line into path and query.  InvalidArgument for
// one that is not a path, or has escapes that are none or of control
// characters.
absl::Status ParseHttpTarget(absl::string_view target, HttpRequest& request);

}  // namespace cohort::head
