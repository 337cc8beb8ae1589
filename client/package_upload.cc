#include "client/package_upload.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/methods.h"

namespace cohort::client {
namespace {

constexpr size_t kPartBytes = 1 << 20;
// A head that restarts or a second uploader of the same package makes one of
// them start over now and then, never often.
constexpr int kRoundsMax = 16;

// The head is somewhere else than we are: ask it where.
bool MustBeginAgain(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) &&
         GetReason(status) != "other_cluster";
}

// Sends what is missing; whether the package is whole at the head now.
absl::Status UploadOnce(HeadClient& head, const Package& package,
                        absl::Duration deadline,
                        const std::function<void(int64_t)>& on_progress) {
  const std::string hash(package.hash().bytes());
  v1::BeginPackageRequest begin;
  begin.set_hash(hash);
  begin.set_size_bytes(package.size_bytes());
  COHORT_ASSIGN_OR_RETURN(
      const v1::BeginPackageResponse begun,
      head.CallAndWait(rpc::kBeginPackage, begin, deadline));
  if (begun.complete()) return absl::OkStatus();
  int64_t offset = begun.offset();
  while (offset < package.size_bytes()) {
    if (on_progress) on_progress(offset);
    v1::UploadPackageRequest part;
    part.set_hash(hash);
    part.set_offset(offset);
    COHORT_ASSIGN_OR_RETURN(*part.mutable_data(),
                            package.Read(offset, kPartBytes));
    const int64_t next = offset + static_cast<int64_t>(part.data().size());
    COHORT_ASSIGN_OR_RETURN(
        const v1::UploadPackageResponse response,
        head.CallAndWait(rpc::kUploadPackage, part, deadline));
    if (response.offset() != next) {
      return absl::FailedPreconditionError(
          absl::StrCat("the head has ", response.offset(), " bytes after ",
                       next, " were sent"));
    }
    offset = next;
  }
  v1::FinishPackageRequest finish;
  finish.set_hash(hash);
  finish.set_size_bytes(package.size_bytes());
  return head.CallAndWait(rpc::kFinishPackage, finish, deadline).status();
}

}  // namespace

absl::Status UploadPackage(HeadClient& head, const Package& package,
                           absl::Duration deadline,
                           const std::function<void(int64_t)>& on_progress) {
  absl::Status status;
  for (int round = 0; round < kRoundsMax; ++round) {
    status = UploadOnce(head, package, deadline, on_progress);
    if (!MustBeginAgain(status)) break;
  }
  return Annotate(status, "uploading the package");
}

}  // namespace cohort::client
