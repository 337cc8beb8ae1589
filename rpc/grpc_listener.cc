#include "rpc/grpc_listener.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

#include "common/file_limit.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::rpc {
namespace {

// Without a free descriptor the thread rests, instead of spinning.
constexpr int kPause_ms = 100;
// Of CheckTakesConnections: to connect, and for what is closed at once.
constexpr int kConnect_ms = 1000;
constexpr int kClosed_ms = 50;

bool HasRoom(int fd) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  // The system gives the lowest free number: those below are all taken.
  return limit.rlim_cur == RLIM_INFINITY ||
         static_cast<rlim_t>(fd) + static_cast<rlim_t>(FilesKeptFree()) <
             limit.rlim_cur;
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
  bool was_short = false;
  while (!stopped_) {
    UniqueFd connection(
        accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (stopped_) return;
    const bool is_short = connection ? !HasRoom(connection.get())
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
    if (connection && !is_short) take(connection.Release());
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
