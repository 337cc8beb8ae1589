#include "trainer/shared_storage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"
#include "trainer/comm/gather.h"
#include "trainer/durable_file.h"

namespace cohort::trainer {
namespace {

constexpr size_t kAnswerBytesMax = 512;

std::string MarkOf(const std::string& root, int rank) {
  return absl::StrCat(root, "/.rank-", rank);
}

absl::Status MakeMark(const std::string& path) {
  const UniqueFd mark(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  return mark ? absl::OkStatus()
              : ErrnoStatus(errno, absl::StrCat("write ", path));
}

// What keeps a rank from writing where rank 0 does.
absl::Status JoinMark(const std::string& root, int rank) {
  // No two attempts share a root: what is there now is rank 0's.
  if (access(MarkOf(root, 0).c_str(), F_OK) != 0) {
    return absl::NotFoundError("does not see what rank 0 writes there");
  }
  return MakeMark(MarkOf(root, rank));
}

std::string AnswerOf(const absl::Status& status) {
  return std::string(
      absl::string_view(status.message()).substr(0, kAnswerBytesMax));
}

}  // namespace

absl::Status CheckSharedStorage(Comm& comm, const std::string& root,
                                absl::Duration timeout) {
  absl::Status mine;
  const absl::Cleanup remove = [&] {
    unlink(MarkOf(root, comm.rank()).c_str());
  };
  if (comm.rank() == 0) {
    mine = MakeDurableDirectories(root);
    if (mine.ok()) mine = MakeMark(MarkOf(root, 0));
  }
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> lead,
      GatherBlobs(comm, AnswerOf(mine), kAnswerBytesMax, timeout));
  if (!lead[0].empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank 0 cannot write checkpoints: ", lead[0]));
  }
  if (comm.rank() != 0) mine = JoinMark(root, comm.rank());
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> answers,
      GatherBlobs(comm, AnswerOf(mine), kAnswerBytesMax, timeout));
  std::vector<std::string> bad;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    if (answers[rank].empty()) continue;
    bad.push_back(absl::StrCat("rank ", rank, " ", answers[rank]));
  }
  if (bad.empty()) return absl::OkStatus();
  bad.resize(std::min(bad.size(), size_t{8}));
  return absl::FailedPreconditionError(absl::StrCat(
      "not all ranks see the storage path, ", root, ": ",
      absl::StrJoin(bad, "; "),
      " (give --storage-path, or RunConfig::storage_path, a directory that all "
      "nodes share)"));
}

}  // namespace cohort::trainer
