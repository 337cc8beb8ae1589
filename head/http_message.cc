#include "head/http_message.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/status_macros.h"

namespace cohort::head {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("not an HTTP request: ", what));
}

// RFC 9110's token: methods and names of fields.
bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1));
  });
}

bool HasControl(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
  });
}

// None for a bad escape, or one of a control character.
std::optional<std::string> PercentDecoded(absl::string_view text,
                                          bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      const absl::string_view digits = text.substr(i + 1, 2);
      if (digits.size() != 2 || !absl::ascii_isxdigit(digits[0]) ||
          !absl::ascii_isxdigit(digits[1])) {
        return std::nullopt;
      }
      c = absl::HexStringToBytes(digits)[0];
      i += 2;
    }
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

absl::Status ParseTarget(absl::string_view target, HttpRequest& request) {
  // A proxy's form: http://host/path.
  if (absl::ConsumePrefix(&target, "http://")) {
    const size_t slash = target.find_first_of("/?");
    target = slash == absl::string_view::npos ? "/" : target.substr(slash);
  }
  if (!absl::StartsWith(target, "/")) return Bad("its target is not a path");
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  std::optional<std::string> path =
      PercentDecoded(target.substr(0, mark), /*plus_is_space=*/false);
  if (!path.has_value()) return Bad("a bad %-escape in its path");
  request.path = *std::move(path);
  if (mark == absl::string_view::npos) return absl::OkStatus();
  for (const absl::string_view pair :
       absl::StrSplit(target.substr(mark + 1), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    auto name = PercentDecoded(parts.first, /*plus_is_space=*/true);
    auto value = PercentDecoded(parts.second, /*plus_is_space=*/true);
    if (!name.has_value() || !value.has_value()) {
      return Bad("a bad %-escape in its query");
    }
    request.query.emplace_back(*std::move(name), *std::move(value));
  }
  return absl::OkStatus();
}

absl::Status ParseRequestLine(absl::string_view line, HttpRequest& request) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3) return Bad("its first line has not three words");
  if (!IsToken(words[0])) return Bad("its method is not a word");
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") {
    return Bad("its version is not HTTP/1.1 or HTTP/1.0");
  }
  request.method = std::string(words[0]);
  request.keep_alive = words[2] == "HTTP/1.1";
  return ParseTarget(words[1], request);
}

// The fields that mean something here; each may come once, because two of them
// could be read in two ways.
struct Fields {
  std::optional<std::string> host;
  std::optional<std::string> authorization;
  std::optional<std::string> accept;
  std::optional<std::string> connection;
  std::optional<std::string> content_length;
  std::optional<std::string> transfer_encoding;

  std::optional<std::string>* Find(const std::string& name) {
    if (name == "host") return &host;
    if (name == "authorization") return &authorization;
    if (name == "accept") return &accept;
    if (name == "connection") return &connection;
    if (name == "content-length") return &content_length;
    if (name == "transfer-encoding") return &transfer_encoding;
    return nullptr;
  }
};

absl::Status ParseField(absl::string_view line, Fields& fields) {
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos || !IsToken(line.substr(0, colon))) {
    return Bad("a header field has no name");
  }
  const absl::string_view value =
      absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (HasControl(value)) return Bad("a control character in a header field");
  const std::string name = absl::AsciiStrToLower(line.substr(0, colon));
  std::optional<std::string>* field = fields.Find(name);
  if (field == nullptr) return absl::OkStatus();
  if (field->has_value() && (name == "accept" || name == "connection")) {
    absl::StrAppend(&**field, ",", value);
    return absl::OkStatus();
  }
  if (field->has_value()) return Bad(absl::StrCat("two fields ", name));
  *field = std::string(value);
  return absl::OkStatus();
}

absl::Status ApplyFields(const Fields& fields, HttpRequest& request) {
  // HTTP/1.1 asks for it.
  if (request.keep_alive && !fields.host.has_value()) return Bad("no Host");
  request.authorization = fields.authorization.value_or("");
  request.accept = fields.accept.value_or("");
  const std::string connection =
      absl::AsciiStrToLower(fields.connection.value_or(""));
  for (const absl::string_view word : absl::StrSplit(connection, ',')) {
    if (absl::StripAsciiWhitespace(word) == "close") request.keep_alive = false;
  }
  request.has_body = fields.transfer_encoding.has_value();
  if (!fields.content_length.has_value()) return absl::OkStatus();
  uint64_t length = 0;
  const std::string& text = *fields.content_length;
  if (text.empty() ||
      !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &length)) {
    return Bad("its Content-Length is not a number");
  }
  if (request.has_body) return Bad("two lengths of its body");
  request.has_body = length > 0;
  return absl::OkStatus();
}

}  // namespace

size_t EndOfHttpHead(absl::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  return end == absl::string_view::npos ? end : end + 4;
}

absl::StatusOr<HttpRequest> ParseHttpHead(absl::string_view head) {
  if (!absl::ConsumeSuffix(&head, "\r\n\r\n")) return Bad("no empty line");
  const std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  if (lines.size() - 1 > kHttpFieldsMax) return Bad("too many header fields");
  HttpRequest request;
  COHORT_RETURN_IF_ERROR(ParseRequestLine(lines[0], request));
  Fields fields;
  for (size_t i = 1; i < lines.size(); ++i) {
    COHORT_RETURN_IF_ERROR(ParseField(lines[i], fields));
  }
  COHORT_RETURN_IF_ERROR(ApplyFields(fields, request));
  return request;
}

std::string RenderHttpResponse(const HttpResponse& response, absl::Time now,
                               bool close, bool head_only) {
  std::string text = absl::StrCat("HTTP/1.1 ", response.status, " ",
                                  HttpReason(response.status), "\r\n");
  const auto add = [&text](absl::string_view name, absl::string_view value) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  };
  add("Date",
      absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now, absl::UTCTimeZone()));
  add("Content-Type", response.content_type);
  add("Content-Length", absl::StrCat(response.body.size()));
  add("Cache-Control", "no-store");
  add("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) add(name, value);
  if (close) add("Connection", "close");
  text.append("\r\n");
  if (!head_only) text.append(response.body);
  return text;
}

absl::string_view HttpReason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

}  // namespace cohort::head
