#include "common/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"

namespace cohort {
namespace {

bool IsIpv6(absl::string_view host) {
  in6_addr address;
  return ::inet_pton(AF_INET6, std::string(host).c_str(), &address) == 1;
}

// Letters a DNS name or an IPv4 address is made of, and "_", which some use.
bool IsNameOrIpv4(absl::string_view host) {
  return !host.empty() && host.size() <= 253 &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
         });
}

std::optional<uint16_t> ParsePort(absl::string_view text) {
  uint32_t port = 0;
  const bool digits =
      !text.empty() && text.size() <= 5 &&
      std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &port) || port > 65535) {
    return std::nullopt;
  }
  return static_cast<uint16_t>(port);
}

std::optional<HostPort> Parse(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  absl::string_view host = text.substr(0, colon);
  const std::optional<uint16_t> port = ParsePort(text.substr(colon + 1));
  if (!port.has_value()) return std::nullopt;
  const bool bracketed =
      host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!(bracketed ? IsIpv6(host) : IsNameOrIpv4(host))) return std::nullopt;
  return HostPort{std::string(host), *port};
}

}  // namespace

std::string HostPort::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", port)
              : absl::StrCat(host, ":", port);
}

bool HostPort::IsLoopback() const {
  if (absl::AsciiStrToLower(host) == "localhost") return true;
  in_addr v4;
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  in6_addr v6;
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsHost(absl::string_view text) {
  return IsNameOrIpv4(text) || IsIpv6(text);
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  std::optional<HostPort> parsed = Parse(absl::StripAsciiWhitespace(text));
  if (parsed.has_value()) return *std::move(parsed);
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text),
                   " is not HOST:PORT: write 127.0.0.1:7710, node-7:7710 or "
                   "[::1]:7710"));
}

}  // namespace cohort
