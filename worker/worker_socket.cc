#include "worker/worker_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {
WorkerSocket::WorkerSocket(rpc::Router& router, std::string path, mode_t mode)
    : router_(router), path_(std::move(path)), mode_(mode) {}

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
  // A server of gRPC that ends removes what lies at its path, even another's:
  // so its path is one that nobody else has.
  const std::string own = absl::StrCat(path_, ".", getpid());
  auto server =
      rpc::GrpcServer::Start(router_, {.address = absl::StrCat("unix:", own)});
  if (!server.ok()) return server.status();
  file_ = FileAt(own);
  if (chmod(own.c_str(), mode_) != 0 ||
      rename(own.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", path_));
  }
  servers_.push_back(*std::move(server));
  return absl::OkStatus();
}

WorkerSocket::Identity WorkerSocket::FileAt(const std::string& path) {
  struct stat there;
  if (stat(path.c_str(), &there) != 0) return {};
  return {there.st_dev, there.st_ino};
}

void WorkerSocket::Close() {
  std::vector<std::unique_ptr<rpc::GrpcServer>> servers;
  Identity file;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    servers.swap(servers_);
    file = file_;
  }
  if (servers.empty()) return;
  for (const auto& server : servers) server->Shutdown(absl::ZeroDuration());
  // Who took the runtime directory after we lost it has its own there.
  if (FileAt(path_) == file) unlink(path_.c_str());
}

}  // namespace cohort::worker
