#include "head/store/rocksdb_errors.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr char kDamaged[] =
    "; nothing was changed: `cohort head restore BACKUP --state-dir NEW` makes "
    "a state directory of a backup; a whole copy of the file, put back, is as "
    "good; or move this directory and its .mark away to start an empty cluster";

bool IsTableOrLog(absl::string_view name) {
  uint64_t number = 0;
  return (absl::ConsumeSuffix(&name, ".sst") ||
          absl::ConsumeSuffix(&name, ".log")) &&
         absl::SimpleAtoi(name, &number);
}

// The name of a file of the store in what RocksDB says; empty: it names none.
// It adds the manifest's to what is wrong with a table, and names some logs by
// their number.
std::string FileNamedIn(absl::string_view text) {
  constexpr char kLogNumber[] = "log number: ";
  std::string manifest;
  for (absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" /,;:()"), absl::SkipEmpty())) {
    while (absl::EndsWith(word, ".")) word.remove_suffix(1);
    if (IsTableOrLog(word)) return std::string(word);
    if (absl::StartsWith(word, "MANIFEST-") || word == "CURRENT") {
      manifest = std::string(word);
    }
  }
  if (const size_t at = text.find(kLogNumber); at != absl::string_view::npos) {
    absl::string_view digits = text.substr(at + sizeof(kLogNumber) - 1);
    size_t length = 0;
    while (length < digits.size() && absl::ascii_isdigit(digits[length])) {
      ++length;
    }
    uint64_t number = 0;
    if (absl::SimpleAtoi(digits.substr(0, length), &number)) {
      return absl::StrFormat("%06d.log", number);
    }
  }
  return manifest;
}

// What is wrong with which file, as far as RocksDB says.
std::string DamageText(const std::string& text, const std::string& path) {
  const std::string file = FileNamedIn(text);
  if (file.empty()) return text;
  const bool missing = absl::StrContains(text, "No such file") ||
                       absl::StrContains(text, "Missing WAL");
  return absl::StrCat(path, "/", file, missing ? " is missing" : " is wrong",
                      ": ", text);
}

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
    return DamagedError(path, DamageText(text, path));
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
