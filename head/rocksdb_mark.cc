#include "head/rocksdb_mark.h"

#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/file.h"

namespace cohort::head {
namespace {

// The first line of each mark, so that another file is not taken for one.
constexpr char kFirstLine[] = "cohort store mark 1";
// The last one: a mark that was cut short is none.
constexpr char kLastLine[] = "end";

bool ParseLine(absl::string_view line, RocksdbMark& mark) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() == 2 && words[0] == "term") {
    return absl::SimpleAtoi(words[1], &mark.term);
  }
  uint64_t size = 0;
  if (words.size() != 3 || words[0] != "log" ||
      !absl::SimpleAtoi(words[2], &size)) {
    return false;
  }
  return mark.logs.emplace(words[1], size).second;
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
  std::vector<std::string> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  bool good = lines.size() >= 2 && lines.front() == kFirstLine &&
              lines.back() == kLastLine;
  for (size_t i = 1; good && i + 1 < lines.size(); ++i) {
    good = ParseLine(lines[i], mark);
  }
  return good ? rocksdb::Status::OK()
              : rocksdb::Status::Corruption(path, "is not a store's mark");
}

rocksdb::Status WriteRocksdbMark(rocksdb::Env* env, const std::string& store,
                                 const RocksdbMark& mark) {
  std::string text = absl::StrCat(kFirstLine, "\nterm ", mark.term, "\n");
  for (const auto& [log, size] : mark.logs) {
    absl::StrAppend(&text, "log ", log, " ", size, "\n");
  }
  absl::StrAppend(&text, kLastLine, "\n");
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

}  // namespace cohort::head
