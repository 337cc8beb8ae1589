#include "worker/run_file_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {

v1::LogPiece RunFileReader::Read(int64_t offset, size_t bytes_max) {
  v1::LogPiece piece;
  piece.set_offset(offset);
  absl::Status status = opened_ ? absl::OkStatus() : Open();
  opened_ = status.ok();
  if (status.ok() && order_.list()) ReadList(offset, bytes_max, piece);
  if (status.ok() && !order_.list()) {
    status = ReadBytes(offset, bytes_max, piece);
  }
  piece.set_known(status.ok());
  if (!status.ok()) {
    piece.set_data(std::string(status.message()).substr(0, bytes_max));
  }
  return piece;
}

absl::Status RunFileReader::Open() {
  v1::DesiredPlace job;
  job.set_job_id(order_.job_id());
  job.set_storage_path(order_.storage_path());
  if (order_.list()) {
    COHORT_ASSIGN_OR_RETURN(list_, work_.List(job));
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(file_, work_.Open(job, order_.file()));
  return absl::OkStatus();
}

absl::Status RunFileReader::ReadBytes(int64_t offset, size_t bytes_max,
                                      v1::LogPiece& piece) {
  std::string& data = *piece.mutable_data();
  data.resize(bytes_max);
  const ssize_t got = pread(file_.get(), data.data(), data.size(), offset);
  if (got < 0) return ErrnoStatus(errno, "read " + order_.file());
  data.resize(static_cast<size_t>(got));
  piece.set_end(got == 0);
  return absl::OkStatus();
}

void RunFileReader::ReadList(int64_t offset, size_t bytes_max,
                             v1::LogPiece& piece) {
  size_t bytes = 0;
  auto at = static_cast<size_t>(std::max<int64_t>(offset, 0));
  for (; at < list_.size(); ++at) {
    bytes += list_[at].ByteSizeLong();
    if (bytes > bytes_max && piece.files_size() > 0) return;
    *piece.add_files() = list_[at];
  }
  piece.set_end(true);
}

}  // namespace cohort::worker
