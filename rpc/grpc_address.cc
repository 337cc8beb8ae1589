#include "rpc/grpc_address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/status_util.h"

namespace cohort::rpc {
namespace {

absl::Status NotAnAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is no address (", why,
                   "): write HOST:PORT, [IPV6]:PORT or unix:/PATH"));
}

// The inodes of the sockets that listen on `port`, in one of /proc/net/tcp*.
void AddListeners(const char* table, uint16_t port,
                  std::vector<std::string>& inodes) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);  // The heading.
  while (std::getline(in, line)) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    // sl local_address rem_address st ... inode(9)
    if (fields.size() < 10 || fields[3] != "0A") continue;
    const std::pair<std::string, std::string> local =
        absl::StrSplit(fields[1], absl::MaxSplits(':', 1));
    if (std::strtoul(local.second.c_str(), nullptr, 16) != port) continue;
    inodes.push_back(fields[9]);
  }
}

// Numeric entries of a directory: the processes in /proc, the files of one.
std::vector<std::string> NumbersIn(const std::string& path) {
  std::vector<std::string> names;
  DIR* const directory = opendir(path.c_str());
  if (directory == nullptr) return names;
  while (const dirent* const entry = readdir(directory)) {
    int number;
    if (absl::SimpleAtoi(entry->d_name, &number)) {
      names.push_back(entry->d_name);
    }
  }
  closedir(directory);
  return names;
}

bool HoldsSocket(const std::string& pid, const std::string& link_text) {
  const std::string files = absl::StrCat("/proc/", pid, "/fd/");
  for (const std::string& file : NumbersIn(files)) {
    char target[64];
    const ssize_t n = readlink((files + file).c_str(), target, sizeof(target));
    if (n > 0 &&
        absl::string_view(target, static_cast<size_t>(n)) == link_text) {
      return true;
    }
  }
  return false;
}

// ", held by pid 12 (cohort-head)", or nothing when /proc does not tell.
std::string HolderOf(uint16_t port) {
  std::vector<std::string> inodes;
  AddListeners("/proc/net/tcp", port, inodes);
  AddListeners("/proc/net/tcp6", port, inodes);
  for (const std::string& inode : inodes) {
    const std::string link_text = absl::StrCat("socket:[", inode, "]");
    for (const std::string& pid : NumbersIn("/proc")) {
      if (!HoldsSocket(pid, link_text)) continue;
      std::ifstream comm(absl::StrCat("/proc/", pid, "/comm"));
      std::string program;
      std::getline(comm, program);
      return absl::StrCat(", held by pid ", pid, " (", program, ")");
    }
  }
  return "";
}

absl::Status Busy(const GrpcAddress& address, absl::string_view holder) {
  return SetReason(absl::AlreadyExistsError(absl::StrCat(
                       address.ToString(), " is in use", holder,
                       ": stop that program or choose another address")),
                   "busy_port");
}

// A socket address for bind and connect.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

std::optional<SocketAddress> Numeric(const GrpcAddress& address) {
  SocketAddress result;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    result.size = sizeof(sockaddr_in);
    return result;
  }
  if (inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.port);
    result.size = sizeof(sockaddr_in6);
    return result;
  }
  return std::nullopt;
}

// gRPC unlinks a socket that lies at its path, also when somebody listens.
absl::Status CheckUnix(const GrpcAddress& address) {
  SocketAddress target;
  auto* const name = reinterpret_cast<sockaddr_un*>(&target.storage);
  name->sun_family = AF_UNIX;
  memcpy(name->sun_path, address.path.c_str(), address.path.size() + 1);
  target.size = sizeof(sockaddr_un);

  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  const absl::Cleanup close_fd = [fd] { close(fd); };
  if (connect(fd, target.get(), target.size) == 0 || errno == EAGAIN) {
    return Busy(address, " by a program that answers");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GrpcAddress> GrpcAddress::Parse(const std::string& text) {
  GrpcAddress address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    address.path = std::string(rest);
    if (address.path.empty() || address.path[0] != '/') {
      return NotAnAddress(text, "a unix socket's path begins with /");
    }
    const size_t path_max = sizeof(sockaddr_un{}.sun_path) - 1;
    if (address.path.size() > path_max) {
      return NotAnAddress(text, absl::StrCat("a socket's path has at most ",
                                             path_max, " bytes"));
    }
    return address;
  }
  const size_t colon = rest.rfind(':');
  if (colon == absl::string_view::npos) {
    return NotAnAddress(text, "there is no port");
  }
  int port = 0;
  if (!absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return NotAnAddress(text, "a port is a number from 0 to 65535");
  }
  address.port = static_cast<uint16_t>(port);
  absl::string_view host = rest.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) {
      return NotAnAddress(text, "a bracket is missing");
    }
  } else if (absl::StrContains(host, ':')) {
    return NotAnAddress(text, "an IPv6 address stands in brackets");
  }
  if (host.empty()) return NotAnAddress(text, "there is no host");
  address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  return address;
}

bool GrpcAddress::IsLoopback() const {
  if (IsUnix()) return true;
  const std::optional<SocketAddress> numeric = Numeric(*this);
  if (!numeric.has_value()) return false;
  if (numeric->get()->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(numeric->get());
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(numeric->get());
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

std::string GrpcAddress::ToString() const {
  if (IsUnix()) return absl::StrCat("unix:", path);
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

absl::Status CheckCanListen(const GrpcAddress& address) {
  if (address.IsUnix()) return CheckUnix(address);
  const std::optional<SocketAddress> numeric = Numeric(address);
  if (!numeric.has_value()) return absl::OkStatus();  // A name: gRPC resolves.
  const int fd =
      socket(numeric->get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  const absl::Cleanup close_fd = [fd] { close(fd); };
  // As gRPC: a port in TIME_WAIT is free.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, numeric->get(), numeric->size) != 0) {
    if (errno == EADDRINUSE) return Busy(address, HolderOf(address.port));
    if (errno == EADDRNOTAVAIL) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--address ", address.ToString(),
          ": no interface of this machine has that address; name one that it "
          "has, or 127.0.0.1"));
    }
    if (errno == EACCES) {
      return absl::PermissionDeniedError(absl::StrCat(
          "--address ", address.ToString(),
          ": this user may not listen there; take a port from 1024 on"));
    }
    return ErrnoStatus(errno, "bind to " + address.ToString());
  }
  return absl::OkStatus();
}

}  // namespace cohort::rpc
