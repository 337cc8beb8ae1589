// The head of an HTTP request: refused, or read as something harmless.

#include <cstdint>

#include "absl/strings/ascii.h"

#include "common/check.h"
#include "head/http_message.h"
#include "tests/fuzz/fuzz.h"

namespace {

void CheckText(const std::string& text) {
  for (const char c : text) {
    COHORT_CHECK(!absl::ascii_iscntrl(static_cast<unsigned char>(c)));
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {
      "GET /v1/jobs?state=RUNNING&name=a%20b+c HTTP/1.1\r\n"
      "Host: localhost:7711\r\nAuthorization: Bearer aa\r\n"
      "Accept: application/openmetrics-text;q=0.5\r\n\r\n",
      "PUT http://head:1/x HTTP/1.0\r\nContent-Length: 3\r\n"
      "Connection: close\r\n\r\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = cohort::head::EndOfHttpHead(bytes);
  if (end == absl::string_view::npos) return 0;
  COHORT_CHECK(end <= size);
  const auto request = cohort::head::ParseHttpHead(bytes.substr(0, end));
  if (!request.ok()) return 0;
  COHORT_CHECK(!request->path.empty());
  CheckText(request->method);
  CheckText(request->path);
  for (const auto& [name, value] : request->query) {
    CheckText(name);
    CheckText(value);
  }
  return 0;
}
