#include "rpc/grpc_address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::rpc {
namespace {

absl::Status NotAnAddress(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not an address (", why,
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

SocketAddress UnixAddress(const std::string& path) {
  SocketAddress result;
  auto* const name = reinterpret_cast<sockaddr_un*>(&result.storage);
  name->sun_family = AF_UNIX;
  memcpy(name->sun_path, path.c_str(), path.size() + 1);
  result.size = sizeof(sockaddr_un);
  return result;
}

// Of a name the first address that the system knows.
absl::StatusOr<SocketAddress> Resolve(const GrpcAddress& address) {
  if (address.IsUnix()) return UnixAddress(address.path);
  if (const auto numeric = Numeric(address)) return *numeric;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(address.ToString(), ": ",
                                                   gai_strerror(error), " (",
                                                   address.host, ")"));
  }
  SocketAddress result;
  memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.size = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

absl::StatusOr<UniqueFd> MakeSocket(const SocketAddress& address, int flags) {
  UniqueFd fd(::socket(address.get()->sa_family,
                       SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) return ErrnoStatus(errno, "socket");
  return fd;
}

absl::Status BindError(const GrpcAddress& address) {
  if (errno == EADDRINUSE) {
    return Busy(address, address.IsUnix() ? "" : HolderOf(address.port));
  }
  if (errno == EADDRNOTAVAIL) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--address ", address.ToString(),
        ": no interface of this machine has that address; name one that it "
        "has, or 127.0.0.1"));
  }
  if (errno == EACCES && !address.IsUnix()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "--address ", address.ToString(),
        ": this user may not listen there; take a port from 1024 on"));
  }
  return ErrnoStatus(errno, "bind to " + address.ToString());
}

uint16_t PortOf(int fd) {
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size);
  // At the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
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

absl::StatusOr<UniqueFd> ListenAt(GrpcAddress& address) {
  COHORT_ASSIGN_OR_RETURN(const SocketAddress target, Resolve(address));
  COHORT_ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(target, 0));
  const int on = 1;
  const int off = 0;
  if (address.IsUnix()) {
    COHORT_ASSIGN_OR_RETURN(const UniqueFd other,
                            MakeSocket(target, SOCK_NONBLOCK));
    if (connect(other.get(), target.get(), target.size) == 0 ||
        errno == EAGAIN) {
      return Busy(address, " by a program that answers");
    }
    unlink(address.path.c_str());  // of a program that ended
    fchmod(fd.get(), 0600);        // what bind makes has it
  } else {
    // A port in TIME_WAIT is free.
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // Connections inherit it.
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (target.get()->sa_family == AF_INET6) {
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
  }
  if (bind(fd.get(), target.get(), target.size) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return BindError(address);
  }
  if (!address.IsUnix()) address.port = PortOf(fd.get());
  return fd;
}

absl::StatusOr<UniqueFd> ConnectTo(const GrpcAddress& address) {
  COHORT_ASSIGN_OR_RETURN(const SocketAddress target, Resolve(address));
  COHORT_ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(target, SOCK_NONBLOCK));
  if (connect(fd.get(), target.get(), target.size) != 0 &&
      errno != EINPROGRESS) {
    return ErrnoStatus(errno, "connect");
  }
  return fd;
}

}  // namespace cohort::rpc
