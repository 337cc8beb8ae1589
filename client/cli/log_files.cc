#include "client/cli/log_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::cli {

absl::Status LogFiles::Add(const JobId& job, const LogChunk& chunk) const {
  const bool is_stdout = chunk.stream == v1::LOG_STREAM_STDOUT;
  if (directory_.empty() || (streams_ & (is_stdout ? 1 : 2)) == 0) {
    return absl::OkStatus();
  }
  const std::string directory =
      absl::StrCat(directory_, "/", job.ToText(), "/attempt_",
                   chunk.attempt - 1, "/", chunk.rank);
  COHORT_RETURN_IF_ERROR(MakeDirectories(directory, 0755));
  const std::string path =
      absl::StrCat(directory, is_stdout ? "/stdout.log" : "/stderr.log");
  // Not kept open: there may be thousands.
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return ErrnoStatus(errno, absl::StrCat("open ", path));
  size_t done = 0;
  while (done < chunk.data.size()) {
    const ssize_t wrote =
        pwrite(file.get(), chunk.data.data() + done, chunk.data.size() - done,
               chunk.offset + static_cast<int64_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

}  // namespace cohort::cli
