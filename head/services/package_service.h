#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

#include "cohort/v1/cluster.pb.h"
#include "common/executor.h"
#include "head/services/package_store.h"
#include "head/services/state_host.h"
#include "rpc/router.h"

namespace cohort::head {

// The package calls of ClusterService: files are PackageStore's, which of them
// are whole and pinned is ClusterState's; a package is complete once its record
// is committed.
//
// Strand-bound; HeadCore owns it.  Calls may outlive it by a task, and are then
// answered UNAVAILABLE.
class PackageService final {
 public:
  // All outlive the service.
  PackageService(StateHost& host, PackageStore& packages, Executor& strand);
  ~PackageService();

  PackageService(const PackageService&) = delete;
  PackageService& operator=(const PackageService&) = delete;

  void RegisterOn(rpc::Router& router);

  // Looks whether the file of a complete package is there, so that the state
  // knows it; then `done`, on the strand.
  void Look(const std::string& hash, absl::AnyInvocable<void() &&> done);

  // Packages with a call under way: not to be forgotten now.
  std::set<std::string> InUse() const;
  // Removes the files of forgotten packages, but for those that are in use or
  // complete again.
  void Remove(const std::vector<std::string>& hashes);

 private:
  using Context = std::shared_ptr<rpc::CallContext>;
  using Self = std::shared_ptr<PackageService*>;

  void Begin(const v1::BeginPackageRequest& request,
             rpc::Reply<v1::BeginPackageResponse> reply);
  void Upload(const v1::UploadPackageRequest& request,
              rpc::Reply<v1::UploadPackageResponse> reply);
  void Finish(const v1::FinishPackageRequest& request,
              rpc::Reply<v1::FinishPackageResponse> reply);
  void Fetch(const v1::FetchPackageRequest& request,
             rpc::Reply<v1::FetchPackageResponse> reply);

  void BeginUpload(const std::string& hash, int64_t size_bytes,
                   rpc::Reply<v1::BeginPackageResponse> reply);

  // The record is written once the bytes are whole on disk.
  void Record(const std::string& hash, int64_t size_bytes,
              rpc::Reply<v1::FinishPackageResponse> reply);
  // What its file was found to be: a loss is told, until it is whole again.
  void NoteWhole(const std::string& hash, int64_t size_bytes);
  void NoteLoss(const std::string& hash, const absl::Status& status);
  void Enter(const std::string& hash) { ++in_use_[hash]; }
  void Leave(const std::string& hash);
  // The record of a complete package; null otherwise.
  const PackageRecord* Find(const std::string& hash);

  StateHost& host_;
  PackageStore& packages_;
  Executor& strand_;
  std::map<std::string, int> in_use_;  // calls under way

  // Shared: this and its calls, which find it empty once this is gone.
  const Self self_;
};

}  // namespace cohort::head
