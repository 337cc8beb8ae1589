#include "worker/served_calls_reader.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "cohort/v1/domain.pb.h"
#include "common/status_macros.h"
#include "shm/served_calls.h"

namespace cohort::worker {

v1::LogPiece ServedCallsReader::Read(int64_t offset, size_t bytes_max) {
  v1::LogPiece piece;
  piece.set_offset(offset);
  if (!std::exchange(is_read_, true)) {
    absl::StatusOr<std::string> bytes = ReadAll();
    if (!bytes.ok()) {
      piece.set_data(
          std::string(bytes.status().message()).substr(0, bytes_max));
      piece.set_end(true);
      return piece;
    }
    bytes_ = *std::move(bytes);
  }
  piece.set_known(true);
  const size_t at = std::min(static_cast<size_t>(std::max<int64_t>(offset, 0)),
                             bytes_.size());
  piece.set_data(bytes_.substr(at, bytes_max));
  piece.set_end(at + piece.data().size() == bytes_.size());
  return piece;
}

absl::StatusOr<std::string> ServedCallsReader::ReadAll() const {
  const absl::StatusOr<shm::ServedCallsFile> file = shm::ReadServedCalls(
      absl::StrCat(directory_, "/", shm::ServedCalls::FileName(order_.slot())));
  const bool is_earlier =
      file.ok() && file->incarnation != order_.incarnation();
  if (is_earlier || absl::IsNotFound(file.status())) {
    return absl::NotFoundError(
        "it has noted down no calls (actors do, once they serve)");
  }
  COHORT_RETURN_IF_ERROR(file.status());
  v1::ServedCalls served;
  for (const std::string& method : file->methods) served.add_methods(method);
  for (const shm::ServedCall& each : file->calls) {
    v1::ServedCalls::Call& call = *served.add_calls();
    call.set_method(each.method);
    call.set_caller(each.caller);
    call.set_thread(each.track);
    call.set_queued_us(each.queued_us);
    call.set_waited_us(each.begun_us - each.queued_us);
    call.set_ran_us(each.ended_us == 0 ? -1 : each.ended_us - each.begun_us);
  }
  return served.SerializeAsString();
}

}  // namespace cohort::worker
