#include "head/services/backup_service.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/hex_text.h"
#include "common/job_limits.h"
#include "common/log.h"
#include "common/status_util.h"
#include "head/services/state_host.h"
#include "rpc/methods.h"

namespace cohort::head {
namespace {

// Who repeats the running backup.
constexpr size_t kWaitersMax = 16;

// Who asked would ask again for as long as it is UNAVAILABLE, and a disk is
// full until a person frees space.
absl::Status ForWhoAsked(const absl::Status& status) {
  if (!absl::IsUnavailable(status) || GetReason(status) != kDiskFullReason) {
    return status;
  }
  return SetReason(absl::ResourceExhaustedError(absl::StrCat(
                       "nothing was backed up: ", status.message())),
                   kDiskFullReason);
}

}  // namespace

BackupService::BackupService(Start start, Executor& strand, const Clock& clock)
    : start_(std::move(start)),
      strand_(strand),
      clock_(clock),
      self_(std::make_shared<BackupService*>(this)) {}

BackupService::~BackupService() {
  Answer(Gone());
  *self_ = nullptr;
}

void BackupService::RegisterOn(rpc::Router& router) {
  router.Handle(
      rpc::kBackupStore, strand_,
      [self = self_](const std::shared_ptr<rpc::CallContext>&,
                     const v1::BackupStoreRequest& request, Reply reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        (*self)->Backup(request, std::move(reply));
      });
}

void BackupService::Backup(const v1::BackupStoreRequest& request, Reply reply) {
  const std::string& id = request.request_id();
  if (const absl::Status sound = CheckRequestId(id); !sound.ok()) {
    return std::move(reply)(sound);
  }
  if (!waiting_.empty()) {
    const bool same = id == request_id_ && request.directory() == directory_;
    if (!same || waiting_.size() >= kWaitersMax) {
      return std::move(reply)(
          SetReason(absl::ResourceExhaustedError(absl::StrCat(
                        "a backup to ", absl::CHexEscape(directory_),
                        " is being written: try again after it")),
                    "backup_running"));
    }
    waiting_.push_back(std::move(reply));
    return;
  }
  request_id_ = id;
  directory_ = request.directory();
  waiting_.push_back(std::move(reply));
  COHORT_LOG(kInfo, "backup_started",
             {"directory", absl::CHexEscape(directory_)});
  start_({.directory = directory_, .request_id = id, .at = clock_.Wall()},
         [self = self_](const absl::StatusOr<BackupManifest>& manifest) {
           if (*self == nullptr) return;
           if (manifest.ok()) {
             COHORT_LOG(kInfo, "backup_written",
                        {"directory", (*self)->directory_},
                        {"files", manifest->files.size()},
                        {"bytes", manifest->bytes()});
           } else {
             COHORT_LOG(kWarning, "backup_failed", {"why", manifest.status()});
           }
           (*self)->Answer(manifest);
         });
}

void BackupService::Answer(const absl::StatusOr<BackupManifest>& manifest) {
  v1::BackupStoreResponse response;
  if (manifest.ok()) {
    response.set_files(static_cast<int64_t>(manifest->files.size()));
    response.set_size_bytes(manifest->bytes());
    for (const std::string& hash : manifest->missing_packages) {
      response.add_missing_packages(HexToBytes(hash));
    }
  }
  for (Reply& reply : std::exchange(waiting_, {})) {
    if (manifest.ok()) {
      std::move(reply)(response);
    } else {
      std::move(reply)(ForWhoAsked(manifest.status()));
    }
  }
}

}  // namespace cohort::head
