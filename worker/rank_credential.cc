#include "worker/rank_credential.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/strong_id.h"

namespace cohort::worker {

absl::Status WriteRankCredential(const std::string& path,
                                 const rpc::Credential& signer,
                                 const ProcessId& process) {
  // A name that its user cannot foresee, and put something there.
  std::string made = path + ".XXXXXX";
  const UniqueFd file(mkostemp(made.data(), O_CLOEXEC));
  if (!file) return ErrnoStatus(errno, absl::StrCat("write ", path));
  absl::Status written = WriteAll(
      file.get(), made, rpc::MintRankCredential(signer, process).ToText());
  if (written.ok() && rename(made.c_str(), path.c_str()) != 0) {
    written = errno == EISDIR
                  ? absl::FailedPreconditionError(absl::StrCat(
                        path, " is a directory of the job's own making"))
                  : ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  if (!written.ok()) unlink(made.c_str());
  return written;
}

std::vector<ProcessId> RanksWithCredential(const std::string& runtime) {
  std::vector<ProcessId> which;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(runtime, error), end;
       !error && it != end; it.increment(error)) {
    // What lies deeper is the ranks' own.
    if (it.depth() > 0) it.disable_recursion_pending();
    const std::string name = it->path().filename().string();
    const absl::StatusOr<AttemptId> attempt =
        AttemptId::FromHex(it->path().parent_path().filename().string());
    ProcessId process;
    absl::string_view rest = name;
    const std::pair<absl::string_view, absl::string_view> numbers =
        absl::ConsumePrefix(&rest, "credential-")
            ? absl::StrSplit(rest, absl::MaxSplits('.', 1))
            : std::pair<absl::string_view, absl::string_view>();
    if (!attempt.ok() || !absl::SimpleAtoi(numbers.first, &process.slot) ||
        !absl::SimpleAtoi(numbers.second, &process.incarnation)) {
      continue;
    }
    process.attempt = *attempt;
    which.push_back(process);
  }
  return which;
}

}  // namespace cohort::worker
