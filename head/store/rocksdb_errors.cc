#include "head/store/rocksdb_errors.h"

#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr char kDamaged[] =
    "; nothing was changed: `cohort head restore BACKUP --state-dir NEW` makes "
    "a state directory of a backup; a whole copy of the file, put back, is as "
    "good; or move this directory and its .mark away to start an empty cluster";

}  // namespace

absl::Status DamagedError(const std::string& path, absl::string_view what) {
  return SetReason(
      absl::DataLossError(absl::StrCat("the control store at ", path,
                                       " is damaged: ", what, kDamaged)),
      "store_damaged");
}

absl::Status ToStatus(const rocksdb::Status& status, const std::string& path,
                      Doing doing) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = status.ToString();
  if (status.IsNoSpace()) {
    return SetReason(
        absl::UnavailableError(absl::StrCat(
            "the disk under ", path, " is full; free space on it: ", text)),
        kDiskFullReason);
  }
  // A file that the manifest names and that is not there is damage; so is, at
  // the open, what cannot be this store's own (another comparator, odd values).
  const bool missing = status.IsNotFound() || status.IsPathNotFound();
  const bool odd = doing == Doing::kOpening && status.IsInvalidArgument();
  if (doing != Doing::kMaking && (status.IsCorruption() || missing || odd)) {
    return DamagedError(path, text);
  }
  if (status.IsNotSupported()) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            path, " needs a newer RocksDB than this program's: ", text)),
        "store_from_the_future");
  }
  return SetReason(
      absl::UnavailableError(absl::StrCat("the disk under ", path,
                                          " refuses; look at it: ", text)),
      "disk_error");
}

}  // namespace cohort::head
