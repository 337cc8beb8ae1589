#include "head/services/package_service.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "rpc/methods.h"

namespace cohort::head {

PackageService::PackageService(StateHost& host, PackageStore& packages,
                               Executor& strand)
    : host_(host),
      packages_(packages),
      strand_(strand),
      self_(std::make_shared<PackageService*>(this)) {}

PackageService::~PackageService() { *self_ = nullptr; }

void PackageService::RegisterOn(rpc::Router& router) {
  const auto handle = [&](const auto& method, auto handler) {
    router.Handle(method, strand_,
                  [self = self_, handler](const Context&, const auto& request,
                                          auto reply) {
                    if (*self == nullptr) return std::move(reply)(Gone());
                    ((*self)->*handler)(request, std::move(reply));
                  });
  };
  handle(rpc::kBeginPackage, &PackageService::Begin);
  handle(rpc::kUploadPackage, &PackageService::Upload);
  handle(rpc::kFinishPackage, &PackageService::Finish);
  handle(rpc::kFetchPackage, &PackageService::Fetch);
}

void PackageService::Begin(const v1::BeginPackageRequest& request,
                           rpc::Reply<v1::BeginPackageResponse> reply) {
  const absl::StatusOr<ClusterState*> state =
      host_.Writable(Admission::kClient);
  if (!state.ok()) return std::move(reply)(state.status());
  const std::string& hash = request.hash();
  const PackageRecord* record = Find(hash);
  if (record == nullptr) {
    return BeginUpload(hash, request.size_bytes(), std::move(reply));
  }
  (*state)->TouchPackage(hash);
  Enter(hash);
  // Its file may be gone or damaged all the same: then it comes again.
  packages_.Finish(
      hash, record->size_bytes(),
      [self = self_, hash, size_bytes = record->size_bytes(),
       reply = std::move(reply)](const absl::Status& status) mutable {
        if (*self == nullptr) return std::move(reply)(Gone());
        (*self)->Leave(hash);
        if (absl::IsFailedPrecondition(status) || absl::IsDataLoss(status)) {
          return (*self)->BeginUpload(hash, size_bytes, std::move(reply));
        }
        if (!status.ok()) return std::move(reply)(status);
        (*self)->NoteWhole(hash, size_bytes);
        v1::BeginPackageResponse response;
        response.set_offset(size_bytes);
        response.set_complete(true);
        (*self)->host_.AfterDurable([reply = std::move(reply), response](
                                        const absl::Status& durable) mutable {
          if (!durable.ok()) return std::move(reply)(durable);
          std::move(reply)(response);
        });
      });
}

void PackageService::BeginUpload(const std::string& hash, int64_t size_bytes,
                                 rpc::Reply<v1::BeginPackageResponse> reply) {
  Enter(hash);
  packages_.Begin(hash, size_bytes,
                  [self = self_, hash, reply = std::move(reply)](
                      absl::StatusOr<int64_t> offset) mutable {
                    if (*self != nullptr) (*self)->Leave(hash);
                    if (!offset.ok()) return std::move(reply)(offset.status());
                    v1::BeginPackageResponse response;
                    response.set_offset(*offset);
                    std::move(reply)(response);
                  });
}

void PackageService::Upload(const v1::UploadPackageRequest& request,
                            rpc::Reply<v1::UploadPackageResponse> reply) {
  const std::string& hash = request.hash();
  Enter(hash);
  packages_.Upload(hash, request.offset(), request.data(),
                   [self = self_, hash, reply = std::move(reply)](
                       absl::StatusOr<int64_t> offset) mutable {
                     if (*self != nullptr) (*self)->Leave(hash);
                     if (!offset.ok()) return std::move(reply)(offset.status());
                     v1::UploadPackageResponse response;
                     response.set_offset(*offset);
                     std::move(reply)(response);
                   });
}

void PackageService::Finish(const v1::FinishPackageRequest& request,
                            rpc::Reply<v1::FinishPackageResponse> reply) {
  const std::string& hash = request.hash();
  Enter(hash);
  packages_.Finish(
      hash, request.size_bytes(),
      [self = self_, hash, size_bytes = request.size_bytes(),
       reply = std::move(reply)](const absl::Status& status) mutable {
        if (*self == nullptr) return std::move(reply)(Gone());
        (*self)->Leave(hash);
        if (!status.ok()) return std::move(reply)(status);
        (*self)->Record(hash, size_bytes, std::move(reply));
      });
}

void PackageService::Record(const std::string& hash, int64_t size_bytes,
                            rpc::Reply<v1::FinishPackageResponse> reply) {
  const absl::StatusOr<ClusterState*> state =
      host_.Writable(Admission::kClient);
  if (!state.ok()) return std::move(reply)(state.status());
  Transition transition;
  (*state)->CompletePackage(hash, size_bytes, transition);
  transition.Then(
      [reply = std::move(reply)](const absl::Status& status) mutable {
        if (!status.ok()) return std::move(reply)(status);
        std::move(reply)(v1::FinishPackageResponse());
      });
  host_.Submit(std::move(transition));
}

void PackageService::Fetch(const v1::FetchPackageRequest& request,
                           rpc::Reply<v1::FetchPackageResponse> reply) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return std::move(reply)(state.status());
  const std::string& hash = request.hash();
  if (Find(hash) == nullptr) {
    return std::move(reply)(absl::NotFoundError(
        absl::StrCat("the package ", absl::BytesToHexString(hash.substr(0, 32)),
                     " is not complete here")));
  }
  Enter(hash);
  packages_.Fetch(hash, request.offset(),
                  [self = self_, hash, reply = std::move(reply)](
                      absl::StatusOr<PackageChunk> chunk) mutable {
                    if (*self != nullptr) {
                      (*self)->Leave(hash);
                      (*self)->NoteLoss(hash, chunk.status());
                    }
                    if (!chunk.ok()) return std::move(reply)(chunk.status());
                    v1::FetchPackageResponse response;
                    response.set_data(std::move(chunk->data));
                    response.set_size_bytes(chunk->size_bytes);
                    std::move(reply)(std::move(response));
                  });
}

void PackageService::Look(const std::string& hash,
                          absl::AnyInvocable<void() &&> done) {
  const PackageRecord* const record = Find(hash);
  if (record == nullptr) return std::move(done)();
  packages_.Look(hash, record->size_bytes(),
                 [self = self_, hash,
                  done = std::move(done)](const absl::Status& status) mutable {
                   if (*self != nullptr) (*self)->NoteLoss(hash, status);
                   std::move(done)();
                 });
}

void PackageService::NoteWhole(const std::string& hash, int64_t size_bytes) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return;
  Transition transition;
  (*state)->CompletePackage(hash, size_bytes, transition);
  host_.Submit(std::move(transition));
}

void PackageService::NoteLoss(const std::string& hash,
                              const absl::Status& status) {
  if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) return;
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return;
  Transition transition;
  (*state)->LosePackage(hash, status.message(), transition);
  if (transition.empty()) return;  // it is known
  COHORT_LOG(kError, "package_lost", {"package", absl::BytesToHexString(hash)},
             {"why", status.message()});
  host_.Submit(std::move(transition));
}

std::set<std::string> PackageService::InUse() const {
  std::set<std::string> hashes;
  for (const auto& [hash, calls] : in_use_) hashes.insert(hash);
  return hashes;
}

void PackageService::Remove(const std::vector<std::string>& hashes) {
  for (const std::string& hash : hashes) {
    if (!in_use_.contains(hash) && Find(hash) == nullptr) {
      packages_.Remove(hash);
    }
  }
}

void PackageService::Leave(const std::string& hash) {
  const auto found = in_use_.find(hash);
  if (found != in_use_.end() && --found->second == 0) in_use_.erase(found);
}

const PackageRecord* PackageService::Find(const std::string& hash) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  return state.ok() ? (*state)->packages().Find(hash) : nullptr;
}

}  // namespace cohort::head
