#include "head/revocation_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/file.h"
#include "common/hex_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "rpc/credential.h"

namespace cohort::head {
namespace {

constexpr size_t kFileBytesMax = 64 << 20;
constexpr size_t kHexBytes = 2 * rpc::Credential::kTokenIdBytes;

}  // namespace

absl::StatusOr<std::unique_ptr<RevocationFile>> RevocationFile::Open(
    const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kFileBytesMax);
  if (absl::IsNotFound(text.status())) text = "";
  if (!text.ok()) return text.status();
  std::vector<std::string> ids;
  std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  lines.pop_back();
  for (const std::string& line : lines) {
    if (line.empty()) continue;
    if (line.size() != kHexBytes ||
        !std::all_of(line.begin(), line.end(), absl::ascii_isxdigit)) {
      return absl::DataLossError(absl::StrCat(
          path, " is damaged: line \"", absl::CHexEscape(line.substr(0, 64)),
          "\" is no token's id (remove that line)"));
    }
    ids.push_back(HexToBytes(line));
  }
  return std::unique_ptr<RevocationFile>(
      new RevocationFile(path, std::move(ids)));
}

absl::Status RevocationFile::Add(const std::string& id) {
  const UniqueFd file(
      open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) return ErrnoStatus(errno, absl::StrCat("write ", path_));
  // After a line that was cut, too.
  COHORT_RETURN_IF_ERROR(WriteAll(
      file.get(), path_, absl::StrCat("\n", absl::BytesToHexString(id), "\n")));
  if (fdatasync(file.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sync ", path_));
  }
  if (ids_.empty())
    COHORT_RETURN_IF_ERROR(SyncDirectory(ParentDirectory(path_)));
  ids_.push_back(id);
  return absl::OkStatus();
}

}  // namespace cohort::head
