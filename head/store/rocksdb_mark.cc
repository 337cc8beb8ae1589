#include "head/store/rocksdb_mark.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"

namespace cohort::head {
namespace {

// Each mark begins so, that another file is not taken for one; those without
// the log and the manifest's beginning; and those of releases that wrote
// nothing while the store was open.
constexpr char kBegin[] = "cohort store mark 3 ";
constexpr char kShortBegin[] = "cohort store mark 2 ";
constexpr char kOldFirstLine[] = "cohort store mark 1";
constexpr char kOldLastLine[] = "end";
// Of a line, with its newline.  Lines never straddle sectors.
constexpr size_t kLineBytes = 256;

// A mark as one of its lines; of two, the one with the higher number counts.
struct Line {
  uint64_t number = 0;
  RocksdbMark mark;
};

std::string ToText(const Line& line) {
  const RocksdbMark& mark = line.mark;
  const bool is_short = mark.log == 0 && mark.manifest_begin_bytes == 0;
  std::string text = absl::StrCat(
      is_short ? kShortBegin : kBegin, line.number, " term ", mark.term,
      " sequence ", mark.sequence, " manifest ",
      mark.manifest.empty() ? "-" : mark.manifest, " ", mark.manifest_bytes);
  if (!is_short) {
    absl::StrAppend(&text, " begin ", mark.manifest_begin_bytes, " ",
                    absl::Hex(mark.manifest_begin_crc, absl::kZeroPad8),
                    " log ", mark.log, " ", mark.log_first_change);
  }
  absl::StrAppend(&text, " crc ");
  absl::StrAppend(&text, absl::Hex(Crc32c(text), absl::kZeroPad8));
  text.resize(kLineBytes - 1, ' ');
  text.push_back('\n');
  return text;
}

std::optional<Line> ParseLine(absl::string_view text) {
  const bool is_short = absl::StartsWith(text, kShortBegin);
  if (!is_short && !absl::StartsWith(text, kBegin)) return std::nullopt;
  const std::vector<std::string> words =
      absl::StrSplit(text, ' ', absl::SkipWhitespace());
  Line line;
  RocksdbMark& mark = line.mark;
  if (words.size() != (is_short ? 14 : 20) ||
      !absl::SimpleAtoi(words[4], &line.number) ||
      !absl::SimpleAtoi(words[6], &mark.term) ||
      !absl::SimpleAtoi(words[8], &mark.sequence) ||
      !absl::SimpleAtoi(words[11], &mark.manifest_bytes)) {
    return std::nullopt;
  }
  if (words[10] != "-") mark.manifest = words[10];
  if (!is_short && (!absl::SimpleAtoi(words[13], &mark.manifest_begin_bytes) ||
                    !absl::SimpleHexAtoi(words[14], &mark.manifest_begin_crc) ||
                    !absl::SimpleAtoi(words[16], &mark.log) ||
                    !absl::SimpleAtoi(words[17], &mark.log_first_change))) {
    return std::nullopt;
  }
  // Its checksum with the rest.
  if (ToText(line) != text) return std::nullopt;
  return line;
}

bool ParseOld(absl::string_view text, RocksdbMark& mark) {
  const std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (lines.size() < 3 || lines.front() != kOldFirstLine ||
      lines.back() != kOldLastLine) {
    return false;
  }
  const std::vector<std::string> words = absl::StrSplit(lines[1], ' ');
  return words.size() == 2 && words[0] == "term" &&
         absl::SimpleAtoi(words[1], &mark.term);
}

}  // namespace

std::string RocksdbMarkPath(const std::string& store) {
  const size_t end = store.find_last_not_of('/');
  return absl::StrCat(store.substr(0, end + 1), ".mark");
}

rocksdb::Status ReadRocksdbMark(rocksdb::Env* env, const std::string& store,
                                RocksdbMark& mark) {
  const std::string path = RocksdbMarkPath(store);
  std::string text;
  const rocksdb::Status status = rocksdb::ReadFileToString(env, path, &text);
  if (status.IsNotFound() || status.IsPathNotFound()) {
    return rocksdb::Status::OK();
  }
  if (!status.ok()) return status;
  std::optional<Line> newest;
  int damaged = 0;
  for (size_t at = 0; at + kLineBytes <= text.size(); at += kLineBytes) {
    const std::optional<Line> line =
        ParseLine(absl::string_view(text).substr(at, kLineBytes));
    damaged += line.has_value() ? 0 : 1;
    if (!line.has_value()) continue;
    if (!newest.has_value() || newest->number < line->number) newest = line;
  }
  if (newest.has_value() && text.size() == 2 * kLineBytes) {
    mark = newest->mark;
    if (damaged > 0) {
      COHORT_LOG(kWarning, "store_mark_damaged", {"path", path},
                 {"meaning",
                  "one of its two lines is damaged, as after a power cut; the "
                  "other one is used, which may be of a moment before, and the "
                  "mark is written anew when the head starts"});
    }
    return status;
  }
  if (ParseOld(text, mark)) return status;
  return rocksdb::Status::Corruption(
      path,
      "is not a store's mark (if this file alone is damaged, move it away: the "
      "head then starts, but cannot tell whether the store lost its end)");
}

rocksdb::Status WriteRocksdbMark(rocksdb::Env* env, const std::string& store,
                                 const RocksdbMark& mark) {
  const std::string text = absl::StrCat(ToText({.number = 0, .mark = mark}),
                                        ToText({.number = 1, .mark = mark}));
  const std::string path = RocksdbMarkPath(store);
  const std::string next = path + ".new";
  rocksdb::Status status =
      rocksdb::WriteStringToFile(env, text, next, /*should_sync=*/true);
  if (status.ok()) status = env->RenameFile(next, path);
  std::unique_ptr<rocksdb::Directory> parent;
  if (status.ok()) status = env->NewDirectory(ParentDirectory(path), &parent);
  if (status.ok()) status = parent->Fsync();
  return status;
}

rocksdb::Status RocksdbMarkKeeper::Start(
    rocksdb::Env* env, const std::string& store, const RocksdbMark& mark,
    std::unique_ptr<RocksdbMarkKeeper>& keeper) {
  rocksdb::Status status = WriteRocksdbMark(env, store, mark);
  std::unique_ptr<rocksdb::RandomRWFile> file;
  if (status.ok()) {
    status = env->NewRandomRWFile(RocksdbMarkPath(store), &file,
                                  rocksdb::EnvOptions());
  }
  if (status.ok()) {
    keeper.reset(new RocksdbMarkKeeper(std::move(file), mark));
  }
  return status;
}

RocksdbMarkKeeper::RocksdbMarkKeeper(
    std::unique_ptr<rocksdb::RandomRWFile> file, RocksdbMark mark)
    : file_(std::move(file)), mark_(std::move(mark)), next_line_(2) {}

void RocksdbMarkKeeper::Reached(uint64_t term, uint64_t sequence,
                                uint64_t log) {
  MutexLock lock(mutex_);
  if (log != mark_.log) {
    mark_.log = log;
    mark_.log_first_change = mark_.sequence + 1;
  }
  mark_.term = term;
  mark_.sequence = sequence;
  Write();
}

void RocksdbMarkKeeper::ManifestReached(const std::string& manifest,
                                        uint64_t bytes) {
  MutexLock lock(mutex_);
  if (manifest != mark_.manifest) return;
  mark_.manifest_bytes = bytes;
  Write();
}

void RocksdbMarkKeeper::Sync() {
  MutexLock lock(mutex_);
  Warn(file_->Sync());
}

void RocksdbMarkKeeper::Write() {
  const uint64_t number = next_line_++;
  Warn(file_->Write(number % 2 * kLineBytes,
                    ToText({.number = number, .mark = mark_})));
}

void RocksdbMarkKeeper::Warn(const rocksdb::Status& status) {
  if (status.ok() || std::exchange(warned_, true)) return;
  COHORT_LOG(kWarning, "store_not_marked", {"why", status.ToString()});
}

}  // namespace cohort::head
