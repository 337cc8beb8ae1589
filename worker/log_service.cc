#include "worker/log_service.h"

#include <algorithm>
#include <utility>

#include "cohort/v1/cluster.pb.h"
#include "worker/log_reader.h"

namespace cohort::worker {
namespace {

v1::LogChunk ReadChunk(const NodeDirectories& directories,
                       const v1::ReadLogChunk& question, int32_t bytes_max) {
  const LogStream stream = question.stream() == v1::LOG_STREAM_STDERR
                               ? LogStream::kStderr
                               : LogStream::kStdout;
  const auto read = [&](const std::string& directory) {
    return LogReader(directory, question.rank(), stream)
        .Read(static_cast<uint64_t>(std::max<int64_t>(question.offset(), 0)),
              static_cast<size_t>(bytes_max));
  };
  v1::LogChunk answer;
  answer.set_read_id(question.read_id());
  answer.set_offset(question.offset());
  absl::StatusOr<LogChunk> chunk = read(directories.Logs(
      question.job_id(), question.attempt_number(), question.attempt_id()));
  if (absl::IsNotFound(chunk.status())) {
    chunk =
        read(directories.OldLogs(question.job_id(), question.attempt_number()));
  }
  if (!chunk.ok()) return answer;
  answer.set_known(true);
  answer.set_offset(static_cast<int64_t>(chunk->offset));
  answer.set_data(chunk->bytes);
  answer.set_end(chunk->eof);
  return answer;
}

}  // namespace

LogService::LogService(LogServiceOptions options,
                       const NodeDirectories& directories, Executor& strand,
                       Executor& disk, Answer answer)
    : options_(options),
      directories_(directories),
      strand_(strand),
      disk_(disk),
      answer_(std::move(answer)) {}

void LogService::Read(const v1::ReadLogChunk& question) {
  ReadOnce(question, absl::ZeroDuration());
}

void LogService::ReadOnce(v1::ReadLogChunk question, absl::Duration waited) {
  disk_.Post([this, question = std::move(question), waited]() mutable {
    const int32_t bytes_max =
        question.max_bytes() > 0
            ? std::min(question.max_bytes(), options_.bytes_max)
            : options_.bytes_max;
    v1::LogChunk chunk = ReadChunk(directories_, question, bytes_max);
    const bool nothing = chunk.data().empty() && !chunk.end();
    if (nothing && question.wait() && waited < options_.wait_max) {
      const absl::Duration pause =
          std::clamp(waited / 4, options_.poll_min, options_.poll_max);
      strand_.PostAfter(pause, [this, question = std::move(question), waited,
                                pause]() mutable {
        ReadOnce(std::move(question), waited + pause);
      });
      return;
    }
    strand_.Post([this, chunk = std::move(chunk)]() mutable {
      answer_(std::move(chunk));
    });
  });
}

}  // namespace cohort::worker
