#include "worker/worker_socket.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/log.h"
#include "common/status_macros.h"

namespace cohort::worker {
namespace {

// Why the socket of this node's id cannot be had: state directory and runtime
// directory are ours, so whoever has it runs on a copy and knows no lock.
absl::Status NoSocket(const absl::Status& why) {
  if (!absl::IsAlreadyExists(why)) return why;
  return absl::FailedPreconditionError(absl::StrCat(
      "another daemon on this machine has this node's id, from a copy of this "
      "--state-dir: if this one is the copy, remove node_id from it and start "
      "again (",
      why.message(), ")"));
}

}  // namespace

WorkerSocket::WorkerSocket(rpc::Router& router, std::string path)
    : router_(router), path_(std::move(path)) {}

WorkerSocket::~WorkerSocket() { Close(); }

absl::Status WorkerSocket::Listen() {
  MutexLock lock(mutex_);
  return ListenLocked();
}

absl::StatusOr<bool> WorkerSocket::Renew() {
  MutexLock lock(mutex_);
  if (closed_ || servers_.empty()) return false;
  if (access(path_.c_str(), F_OK) == 0 || errno != ENOENT) return false;
  COHORT_RETURN_IF_ERROR(ListenLocked());
  COHORT_LOG(kWarning, "socket_made_again", {"socket", path_});
  return true;
}

absl::Status WorkerSocket::ListenLocked() {
  auto server = rpc::GrpcServer::Start(
      router_, {.address = absl::StrCat("unix:", path_)});
  if (!server.ok()) return NoSocket(server.status());
  servers_.push_back(*std::move(server));
  return absl::OkStatus();
}

void WorkerSocket::Close() {
  std::vector<std::unique_ptr<rpc::GrpcServer>> servers;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    servers.swap(servers_);
  }
  if (servers.empty()) return;
  for (const auto& server : servers) server->Shutdown(absl::ZeroDuration());
  unlink(path_.c_str());
}

}  // namespace cohort::worker
