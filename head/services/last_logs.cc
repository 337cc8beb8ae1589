#include "head/services/last_logs.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/status_macros.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

std::string PathOf(const std::string& directory, const LastLogs::Name& name) {
  return absl::StrCat(directory, "/", name.attempt.ToHex(), ".", name.slot, ".",
                      name.incarnation, ".", static_cast<int>(name.stream));
}

absl::StatusOr<AttemptId> AttemptOf(const fs::path& path) {
  const std::string name = path.filename().string();
  return AttemptId::FromHex(name.substr(0, name.find('.')));
}

int64_t EndOf(const v1::LogPiece& piece) {
  return piece.offset() + static_cast<int64_t>(piece.data().size());
}

// One of its pieces, less what stands before `offset`; at the end an empty one.
v1::LogPiece PieceAt(const v1::LastLog& log, int64_t offset) {
  const int64_t end =
      log.pieces().empty() ? 0 : EndOf(log.pieces(log.pieces_size() - 1));
  if (offset < 0) offset = std::max<int64_t>(end + offset, 0);
  v1::LogPiece found;
  found.set_offset(std::min(offset, end));
  for (const v1::LogPiece& piece : log.pieces()) {
    if (EndOf(piece) <= offset) continue;
    found = piece;
    if (offset > piece.offset()) {
      found.set_offset(offset);
      found.mutable_data()->erase(0,
                                  static_cast<size_t>(offset - piece.offset()));
    }
    break;
  }
  found.set_known(true);
  found.set_end(EndOf(found) >= end);
  return found;
}

}  // namespace

LastLogs::LastLogs(std::string directory, Limits limits, Executor& strand,
                   Executor& disk)
    : directory_(std::move(directory)),
      limits_(limits),
      strand_(strand),
      disk_(disk) {}

void LastLogs::Keep(const Name& name, v1::LastLog log,
                    Done<absl::Status> done) {
  disk_.Post([this, path = PathOf(directory_, name), log = std::move(log),
              done = std::move(done)]() mutable {
    absl::Status status = KeepNow(path, log);
    strand_.Post(
        [done = std::move(done), status = std::move(status)]() mutable {
          std::move(done)(std::move(status));
        });
  });
}

absl::Status LastLogs::KeepNow(const std::string& path,
                               const v1::LastLog& log) {
  COHORT_RETURN_IF_ERROR(MakeDirectories(directory_, 0700));
  std::error_code error;
  const fs::space_info space = fs::space(directory_, error);
  const std::string bytes = log.SerializeAsString();
  if (!error &&
      space.available <
          static_cast<uint64_t>(limits_.bytes_kept_free) + bytes.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(directory_, " has ", space.available, " bytes left"));
  }
  COHORT_RETURN_IF_ERROR(WriteFileAtomically(path, bytes, 0600));
  bytes_ += static_cast<int64_t>(bytes.size());
  ++files_;
  if (!is_counted_ || bytes_ > limits_.bytes || files_ > limits_.files) Trim();
  return absl::OkStatus();
}

void LastLogs::Trim() {
  // By age.
  std::vector<std::tuple<fs::file_time_type, int64_t, fs::path>> all;
  std::error_code error;
  bytes_ = 0;
  for (fs::directory_iterator file(directory_, error), end;
       !error && file != end; file.increment(error)) {
    std::error_code gone;
    const auto size = static_cast<int64_t>(file->file_size(gone));
    const fs::file_time_type age = file->last_write_time(gone);
    if (gone) continue;
    all.emplace_back(age, size, file->path());
    bytes_ += size;
  }
  is_counted_ = !error;
  files_ = all.size();
  if (bytes_ <= limits_.bytes && files_ <= limits_.files) return;
  std::sort(all.begin(), all.end());
  // Some more, so that the next ones need not look again.
  for (const auto& [age, size, path] : all) {
    if (bytes_ <= limits_.bytes / 10 * 9 && files_ <= limits_.files / 10 * 9) {
      return;
    }
    if (fs::remove(path, error)) {
      bytes_ -= size;
      --files_;
    }
  }
}

void LastLogs::Read(const Name& name, int64_t offset,
                    Done<absl::StatusOr<Found>> done) {
  disk_.Post([this, path = PathOf(directory_, name), offset,
              done = std::move(done)]() mutable {
    absl::StatusOr<Found> found = absl::NotFoundError("no such log");
    const absl::StatusOr<std::string> bytes = ReadFile(path);
    v1::LastLog log;
    if (bytes.ok() && log.ParseFromString(*bytes)) {
      found =
          Found{.node_name = log.node_name(), .piece = PieceAt(log, offset)};
    }
    strand_.Post([done = std::move(done), found = std::move(found)]() mutable {
      std::move(done)(std::move(found));
    });
  });
}

void LastLogs::RemoveForgotten(
    absl::AnyInvocable<bool(const AttemptId&)> is_known) {
  disk_.Post([this, is_known = std::move(is_known)]() mutable {
    std::set<AttemptId> kept;
    std::error_code error;
    for (fs::directory_iterator file(directory_, error), end;
         !error && file != end; file.increment(error)) {
      const auto attempt = AttemptOf(file->path());
      if (attempt.ok()) kept.insert(*attempt);
    }
    if (kept.empty()) return;
    strand_.Post([this, kept = std::move(kept),
                  is_known = std::move(is_known)]() mutable {
      std::erase_if(kept, [&](const AttemptId& id) { return is_known(id); });
      if (kept.empty()) return;
      disk_.Post([this, forgotten = std::move(kept)] { Remove(forgotten); });
    });
  });
}

void LastLogs::Remove(const std::set<AttemptId>& attempts) {
  std::vector<fs::path> gone;
  std::error_code error;
  for (fs::directory_iterator file(directory_, error), end;
       !error && file != end; file.increment(error)) {
    const auto attempt = AttemptOf(file->path());
    if (attempt.ok() && attempts.contains(*attempt)) {
      gone.push_back(file->path());
    }
  }
  for (const fs::path& path : gone) fs::remove(path, error);
  is_counted_ = false;  // the next Keep counts
}

}  // namespace cohort::head
