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

// Each line begins so, that another file is not taken for a mark.
constexpr char kBegin[] = "cohort store mark 1 ";
// Of a line, with its newline.  Lines never straddle sectors.
constexpr size_t kLineBytes = 256;

// A mark as one of its lines; of two, the one with the higher number counts.
struct Line {
  uint64_t number = 0;
  RocksdbMark mark;
};

std::string ToText(const Line& line) {
  const RocksdbMark& mark = line.mark;
  const RocksdbMark::Manifest& manifest = mark.manifest;
  std::string text = absl::StrCat(
      kBegin, line.number, " term ", mark.term, " sequence ", mark.sequence,
      " manifest ", manifest.name.empty() ? "-" : manifest.name, " ",
      manifest.bytes, " ", absl::Hex(manifest.crc, absl::kZeroPad8), " crc ");
  absl::StrAppend(&text, absl::Hex(Crc32c(text), absl::kZeroPad8));
  text.resize(kLineBytes - 1, ' ');
  text.push_back('\n');
  return text;
}

std::optional<Line> ParseLine(absl::string_view text) {
  if (!absl::StartsWith(text, kBegin)) return std::nullopt;
  const std::vector<std::string> words =
      absl::StrSplit(text, ' ', absl::SkipWhitespace());
  Line line;
  RocksdbMark& mark = line.mark;
  if (words.size() != 15 || !absl::SimpleAtoi(words[4], &line.number) ||
      !absl::SimpleAtoi(words[6], &mark.term) ||
      !absl::SimpleAtoi(words[8], &mark.sequence) ||
      !absl::SimpleAtoi(words[11], &mark.manifest.bytes) ||
      !absl::SimpleHexAtoi(words[12], &mark.manifest.crc)) {
    return std::nullopt;
  }
  if (words[10] != "-") mark.manifest.name = words[10];
  // Its checksum with the rest.
  if (ToText(line) != text) return std::nullopt;
  return line;
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
                  "mark is written again when the head starts"});
    }
    return status;
  }
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

void RocksdbMarkKeeper::Reached(uint64_t term, uint64_t sequence) {
  MutexLock lock(mutex_);
  mark_.term = term;
  mark_.sequence = sequence;
  Write();
}

void RocksdbMarkKeeper::ManifestReached(const RocksdbMark::Manifest& manifest) {
  MutexLock lock(mutex_);
  if (manifest.name != mark_.manifest.name) return;
  mark_.manifest = manifest;
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
