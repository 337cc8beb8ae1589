#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/mutex.h"
#include "rpc/grpc_server.h"
#include "rpc/router.h"

namespace cohort::worker {

// The unix socket at which the ranks of this node call its daemon.
//
// Thread-safe.
class WorkerSocket {
 public:
  // `router` outlives it; `path` lies in this node's runtime directory.  Who
  // may connect says `mode`; who may call, the router.
  WorkerSocket(rpc::Router& router, std::string path, mode_t mode = 0600);
  ~WorkerSocket();

  // Errors as GrpcServer::Start.
  absl::Status Listen();
  // Listens again where somebody has removed the file; whether it was gone.
  // Calls that came by the old one go on.
  absl::StatusOr<bool> Renew();
  // Takes no more calls, waits for none, removes the file unless it is
  // another's.
  void Close();

 private:
  using Identity = std::pair<dev_t, ino_t>;

  // Zeros when there is none.
  static Identity FileAt(const std::string& path);
  absl::Status ListenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  rpc::Router& router_;
  const std::string path_;
  const mode_t mode_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Identity file_ ABSL_GUARDED_BY(mutex_);  // of the last one
  // The last one has the file; those before it only what came by them.
  std::vector<std::unique_ptr<rpc::GrpcServer>> servers_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker
