#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

#include "cohort/v1/cluster.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "head/archive/backups.h"
#include "rpc/router.h"

namespace cohort::head {

// The call BackupStore of ClusterService, for holders of the cluster's
// credential.
//
// One backup at a time: a repeat of the running one waits for the same answer,
// another is told to come back.  Strand-bound; HeadCore owns it.  Calls may
// outlive it by a task, and are then answered UNAVAILABLE.
class BackupService final {
 public:
  using Start = absl::AnyInvocable<void(BackupRequest, Backups::Done)>;

  // All outlive the service.
  BackupService(Start start, Executor& strand, const Clock& clock);
  ~BackupService();

  BackupService(const BackupService&) = delete;
  BackupService& operator=(const BackupService&) = delete;

  void RegisterOn(rpc::Router& router);

 private:
  using Reply = rpc::Reply<v1::BackupStoreResponse>;

  void Backup(const v1::BackupStoreRequest& request, Reply reply);
  void Answer(const absl::StatusOr<BackupManifest>& manifest);

  Start start_;
  Executor& strand_;
  const Clock& clock_;

  // Of the running backup; nobody waits when there is none.
  std::string request_id_;
  std::string directory_;
  std::vector<Reply> waiting_;

  // Shared: this and its calls, which find it empty once this is gone.
  const std::shared_ptr<BackupService*> self_;
};

}  // namespace cohort::head
