#include "trainer/preflight/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"

namespace cohort::trainer {
namespace {

// Empty for what is no internet address.
std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return "";
  }
  inet_ntop(address->sa_family, bytes, text, sizeof(text));
  return text;
}

std::set<std::string> AddressesOf(const std::string& host) {
  std::set<std::string> addresses;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found,
                                                             &freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    addresses.insert(AddressText(each->ai_addr));
  }
  return addresses;
}

std::optional<int64_t> SpeedOf(const std::string& name) {
  const absl::StatusOr<std::string> text =
      ReadFile(absl::StrCat("/sys/class/net/", name, "/speed"));
  int64_t speed = 0;
  if (!text.ok() ||
      !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &speed) ||
      speed <= 0) {
    return std::nullopt;
  }
  return speed;
}

}  // namespace

std::optional<NetworkInterface> InterfaceOf(absl::string_view host) {
  const std::set<std::string> addresses = AddressesOf(std::string(host));
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, &freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const std::string address = AddressText(each->ifa_addr);
    if (address.empty() || !addresses.contains(address)) continue;
    return NetworkInterface{.name = each->ifa_name,
                            .address = address,
                            .megabits_per_second = SpeedOf(each->ifa_name)};
  }
  return std::nullopt;
}

}  // namespace cohort::trainer
