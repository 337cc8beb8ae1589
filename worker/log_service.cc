#include "worker/log_service.h"

#include <algorithm>
#include <utility>

#include "cohort/v1/cluster.pb.h"
#include "worker/log_reader.h"

namespace cohort::worker {
namespace {

// How soon a follower looks for more: a quarter of the time that it has waited,
// between these.  What comes soon is shown soon; a quiet log costs 20 looks a
// second.
constexpr absl::Duration kPollMin = absl::Milliseconds(2);
constexpr absl::Duration kPollMax = absl::Milliseconds(50);
// After this long a question that waits is answered with nothing, so that the
// asker knows that we live.
constexpr absl::Duration kWaitMax = absl::Seconds(10);
// Of one answer.
constexpr int32_t kBytesMax = 256 << 10;

v1::LogChunk ReadChunk(const NodeDirectories& directories,
                       const v1::ReadLogChunk& question, int32_t bytes_max) {
  const LogStream stream = question.stream() == v1::LOG_STREAM_STDERR
                               ? LogStream::kStderr
                               : LogStream::kStdout;
  v1::LogChunk answer;
  answer.set_read_id(question.read_id());
  answer.set_offset(question.offset());
  const LogReader reader(
      directories.Logs(question.job_id(), question.attempt_number(),
                       question.attempt_id()),
      question.rank(), stream);
  const absl::StatusOr<LogChunk> chunk = reader.Read(
      static_cast<uint64_t>(std::max<int64_t>(question.offset(), 0)),
      static_cast<size_t>(bytes_max));
  if (!chunk.ok()) return answer;
  answer.set_known(true);
  answer.set_offset(static_cast<int64_t>(chunk->offset));
  answer.set_data(chunk->bytes);
  answer.set_end(chunk->eof);
  return answer;
}

}  // namespace

LogService::LogService(const NodeDirectories& directories, Executor& strand,
                       Executor& disk, Answer answer)
    : directories_(directories),
      strand_(strand),
      disk_(disk),
      answer_(std::move(answer)) {}

void LogService::Read(const v1::ReadLogChunk& question) {
  ReadOnce(question, absl::ZeroDuration());
}

void LogService::ReadOnce(v1::ReadLogChunk question, absl::Duration waited) {
  disk_.Post([this, question = std::move(question), waited]() mutable {
    const int32_t bytes_max = question.max_bytes() > 0
                                  ? std::min(question.max_bytes(), kBytesMax)
                                  : kBytesMax;
    v1::LogChunk chunk = ReadChunk(directories_, question, bytes_max);
    const bool nothing = chunk.data().empty() && !chunk.end();
    if (nothing && question.wait() && waited < kWaitMax) {
      const absl::Duration pause = std::clamp(waited / 4, kPollMin, kPollMax);
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
