#include "rpc/grpc_listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/file_limit.h"
#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/connection_shares.h"

namespace cohort::rpc {
namespace {

// Without a free descriptor the thread rests, instead of spinning.
constexpr int kPause_ms = 100;
// Of CheckTakesConnections: to connect, and for what is closed at once.
constexpr int kConnect_ms = 1000;
constexpr int kClosed_ms = 50;

// How many more connections the process may have.
size_t RoomBeside(int fd) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  // The system gives the lowest free number: those below are all taken.
  const rlim_t taken =
      static_cast<rlim_t>(fd) + static_cast<rlim_t>(FilesKeptFree());
  return taken < limit.rlim_cur ? limit.rlim_cur - taken : 0;
}

ino_t InodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// What a host is known by: an IPv4 address, or the network that one gets of
// IPv6.  Empty for a unix socket, which has none.
std::string HostOf(const sockaddr_storage& peer) {
  const auto bytes = [](const void* at, size_t size) {
    return std::string(static_cast<const char*>(at), size);
  };
  if (peer.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&peer);
    return bytes(&v4->sin_addr, sizeof(v4->sin_addr));
  }
  if (peer.ss_family != AF_INET6) return "";
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&peer);
  const uint8_t* const address = v6->sin6_addr.s6_addr;
  return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? bytes(address + 12, 4)
                                              : bytes(address, 8);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Listen(
    GrpcAddress& address) {
  COHORT_ASSIGN_OR_RETURN(UniqueFd socket, ListenAt(address));
  return absl::WrapUnique(new GrpcListener(std::move(socket)));
}

GrpcListener::~GrpcListener() { Stop(); }

void GrpcListener::Start(Take take) {
  thread_ = std::thread([this, take = std::move(take)] { Run(take); });
}

void GrpcListener::Stop() {
  if (stopped_.exchange(true)) return;
  shutdown(socket_.get(), SHUT_RDWR);  // ends accept
  if (thread_.joinable()) thread_.join();
}

void GrpcListener::Run(const Take& take) {
  const MachineClock clock;
  bool was_short = false;
  bool was_shared_out = false;
  ConnectionShares shares(
      [](int fd, ino_t inode) { return InodeOf(fd) == inode; });
  while (!stopped_) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    UniqueFd connection(accept4(socket_.get(),
                                reinterpret_cast<sockaddr*>(&peer), &size,
                                SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (stopped_) return;
    const bool is_short = connection ? RoomBeside(connection.get()) == 0
                                     : errno == EMFILE || errno == ENFILE ||
                                           errno == ENOBUFS || errno == ENOMEM;
    if (is_short && !was_short) {
      COHORT_LOG(kError, "connections_refused",
                 {"why",
                  "few descriptors are left: raise the hard limit of "
                  "open files (LimitNOFILE=, ulimit -Hn)"});
    }
    was_short = is_short;
    if (!connection && is_short) poll(nullptr, 0, kPause_ms);
    // Another error is a connection's that went while it waited.
    if (!connection || is_short) continue;
    const std::string host = HostOf(peer);
    const bool has_share =
        host.empty() ||
        shares.Admit(connection.get(), InodeOf(connection.get()), host,
                     RoomBeside(connection.get()), clock.Monotonic());
    if (has_share) take(connection.Release());
    if (!has_share && !was_shared_out) {
      COHORT_LOG(kWarning, "connections_of_a_host_refused",
                 {"host", absl::BytesToHexString(host)},
                 {"why",
                  "it has as many as descriptors are left: raise the hard "
                  "limit of open files if they are yours"});
    }
    was_shared_out = !has_share;
  }
}

absl::Status CheckTakesConnections(const GrpcAddress& address) {
  const auto fails = [&address](absl::string_view why) {
    return SetReason(
        absl::UnavailableError(absl::StrCat(
            address.ToString(), " takes no connections: ", why,
            " (if it has too many, raise the hard limit of open files)")),
        kNoConnectionsReason);
  };
  const absl::StatusOr<UniqueFd> socket = ConnectTo(address);
  if (!socket.ok()) return fails(socket.status().message());
  pollfd there = {socket->get(), POLLOUT, 0};
  if (poll(&there, 1, kConnect_ms) != 1) return fails("no answer");
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket->get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fails(ErrnoStatus(error, "connect").message());
  there.events = POLLIN;
  char byte = 0;
  // One that is taken hears something, or nothing yet.
  if (poll(&there, 1, kClosed_ms) == 1 &&
      recv(socket->get(), &byte, 1, MSG_DONTWAIT) <= 0) {
    return fails("they are closed at once");
  }
  return absl::OkStatus();
}

}  // namespace cohort::rpc
