// The target of an HTTP request: refused, or read as something harmless.

#include <cstdint>

#include "absl/strings/ascii.h"

#include "common/check.h"
#include "head/http/http_message.h"
#include "tests/fuzz/fuzz.h"

namespace {

void CheckText(const std::string& text) {
  for (const char c : text) {
    COHORT_CHECK(!absl::ascii_iscntrl(static_cast<unsigned char>(c)));
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {"/v1/jobs?state=RUNNING&name=a%20b+c", "http://head:1/x?since=10m",
          "/v1/jobs/%7e#part"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view target(reinterpret_cast<const char*>(data), size);
  cohort::head::HttpRequest request;
  if (!cohort::head::ParseHttpTarget(target, request).ok()) return 0;
  COHORT_CHECK(!request.path.empty() && request.path[0] == '/');
  CheckText(request.path);
  for (const auto& [name, value] : request.query) {
    CheckText(name);
    CheckText(value);
  }
  return 0;
}
