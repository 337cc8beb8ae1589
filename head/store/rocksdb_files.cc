#include "head/store/rocksdb_files.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "rocksdb/file_system.h"

#include "common/hash.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "head/store/rocksdb_errors.h"
#include "head/store/rocksdb_log_changes.h"
#include "head/store/rocksdb_log_record.h"
#include "head/store/rocksdb_log_tail.h"

namespace cohort::head {
namespace {

bool IsData(const std::string& file) {
  return absl::EndsWith(file, ".log") || absl::EndsWith(file, ".sst");
}

// The last block of a log that is not all zeros.
struct LastBlock {
  uint64_t start = 0;
  std::string bytes;
  bool zeros_follow = false;
};

rocksdb::Status ReadLastBlock(rocksdb::Env* env, const std::string& file,
                              LastBlock& last) {
  uint64_t size = 0;
  rocksdb::Status status = env->GetFileSize(file, &size);
  if (!status.ok() || size == 0) return status;
  std::unique_ptr<rocksdb::RandomAccessFile> reader;
  status = env->NewRandomAccessFile(file, &reader, rocksdb::EnvOptions());
  last.start = (size - 1) / kLogBlockBytes * kLogBlockBytes;
  while (status.ok()) {
    std::string buffer(std::min<uint64_t>(kLogBlockBytes, size - last.start),
                       '\0');
    rocksdb::Slice read;
    status = reader->Read(last.start, buffer.size(), &read, buffer.data());
    last.bytes.assign(read.data(), read.size());
    const bool is_zero =
        last.bytes.find_first_not_of('\0') == std::string::npos;
    if (!is_zero || last.start == 0) break;
    last.start -= kLogBlockBytes;
    last.zeros_follow = true;
  }
  return status;
}

// Judges the end of one log or manifest, which RocksDB does too leniently and
// too harshly (rocksdb_log_tail.h).  Gives how much of it is good.
absl::StatusOr<uint64_t> InspectTail(rocksdb::Env* env, const std::string& path,
                                     const std::string& file,
                                     StoreFiles& files) {
  LastBlock last;
  const rocksdb::Status status = ReadLastBlock(env, file, last);
  if (!status.ok()) return ToStatus(status, path, Doing::kOpening);
  const LogTail tail = InspectLogTail(last.bytes, last.zeros_follow);
  const uint64_t good = last.start + tail.good_bytes;
  if (tail.kind == LogTail::Kind::kDamaged) {
    return DamagedError(path,
                        absl::StrCat("a record in ", file, " at byte ", good));
  }
  if (tail.kind == LogTail::Kind::kZeroed) files.good_bytes[file] = good;
  return good;
}

// Reads the records of a log or manifest up to `good`; null: whatever they say.
absl::Status InspectRecords(rocksdb::Env* env, const std::string& path,
                            const std::string& file, uint64_t good,
                            LogChanges* changes) {
  std::unique_ptr<rocksdb::SequentialFile> reader;
  rocksdb::Status status =
      env->NewSequentialFile(file, &reader, rocksdb::EnvOptions());
  std::string buffer(kLogBlockBytes, '\0');
  for (uint64_t start = 0; status.ok() && start < good;
       start += kLogBlockBytes) {
    const size_t size =
        static_cast<size_t>(std::min<uint64_t>(kLogBlockBytes, good - start));
    rocksdb::Slice read;
    status = reader->Read(size, &read, buffer.data());
    absl::string_view rest(read.data(), read.size());
    // What is left of a block and holds no header is padding.
    while (status.ok() && rest.size() >= kLogHeaderBytes) {
      const std::optional<LogRecord> record = ParseLogRecord(rest);
      const std::optional<std::string> wrong =
          !record.has_value()  ? "the record there is none"
          : changes != nullptr ? changes->Add(*record)
                               : std::nullopt;
      if (wrong.has_value()) {
        return DamagedError(
            path,
            absl::StrCat(file, " at byte ", start + read.size() - rest.size(),
                         ": ", *wrong));
      }
      rest.remove_prefix(record->bytes());
    }
  }
  return ToStatus(status, path, Doing::kOpening);
}

absl::Status InspectLogs(rocksdb::Env* env, const std::string& path,
                         const RocksdbMark& mark, StoreFiles& files) {
  COHORT_RETURN_IF_ERROR(
      ToStatus(ListLogs(env, path, files.logs), path, Doing::kOpening));
  // Each open makes a log before it writes the second manifest.
  const bool ever_opened = files.manifest != "MANIFEST-000001";
  if (ever_opened && files.logs.empty() && mark.log == 0) {
    return DamagedError(path, "its log is missing");
  }
  // A log goes when its rows are in tables and there is a later one.
  const uint64_t newest = files.logs.empty() ? 0 : files.logs.rbegin()->first;
  if (newest < mark.log) {
    return DamagedError(path,
                        absl::StrCat(LogPath(path, mark.log), " is missing"));
  }
  LogChanges changes;
  for (const auto& [number, size] : files.logs) {
    const std::string file = LogPath(path, number);
    COHORT_ASSIGN_OR_RETURN(const uint64_t good,
                            InspectTail(env, path, file, files));
    changes.BeginLog();
    COHORT_RETURN_IF_ERROR(InspectRecords(env, path, file, good, &changes));
    if (changes.first() != 0) files.first_changes[number] = changes.first();
  }
  const auto known = files.first_changes.find(mark.log);
  if (known != files.first_changes.end() &&
      known->second != mark.log_first_change) {
    return DamagedError(
        path,
        absl::StrCat(LogPath(path, mark.log), " begins with change ",
                     known->second, ", it began with change ",
                     mark.log_first_change, ": it is another one's copy"));
  }
  return absl::OkStatus();
}

absl::Status InspectManifest(rocksdb::Env* env, const std::string& path,
                             const RocksdbMark& mark, StoreFiles& files) {
  const std::string file = absl::StrCat(path, "/", files.manifest);
  COHORT_ASSIGN_OR_RETURN(files.manifest_bytes,
                          InspectTail(env, path, file, files));
  const bool is_marked = files.manifest == mark.manifest;
  if (is_marked && files.manifest_bytes < mark.manifest_bytes) {
    return DamagedError(
        path, absl::StrCat(file, " was cut short: ", files.manifest_bytes,
                           " bytes of it are good, ", mark.manifest_bytes,
                           " have been"));
  }
  if (files.manifest_bytes == 0) {
    return DamagedError(path, absl::StrCat(file, " holds nothing"));
  }
  COHORT_RETURN_IF_ERROR(InspectRecords(env, path, file, files.manifest_bytes,
                                        /*changes=*/nullptr));
  if (!is_marked || mark.manifest_begin_bytes == 0) return absl::OkStatus();
  uint32_t crc = 0;
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadBeginning(env, file, mark.manifest_begin_bytes, crc), path,
               Doing::kOpening));
  if (crc == mark.manifest_begin_crc) return absl::OkStatus();
  return DamagedError(
      path, absl::StrCat(file,
                         " begins otherwise than it did: it is another "
                         "one's copy"));
}

// Shows of some files their beginnings only.
class CutFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  CutFileSystem(std::shared_ptr<rocksdb::FileSystem> base,
                std::map<std::string, uint64_t> good_bytes)
      : FileSystemWrapper(std::move(base)),
        good_bytes_(std::move(good_bytes)) {}

  static const char* kClassName() { return "CutFileSystem"; }
  const char* Name() const override { return kClassName(); }

  rocksdb::IOStatus GetFileSize(const std::string& path,
                                const rocksdb::IOOptions& options,
                                uint64_t* size,
                                rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status =
        FileSystemWrapper::GetFileSize(path, options, size, debug);
    const auto cut = good_bytes_.find(path);
    if (status.ok() && cut != good_bytes_.end()) *size = cut->second;
    return status;
  }

  rocksdb::IOStatus NewSequentialFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSSequentialFile>* file,
      rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status =
        FileSystemWrapper::NewSequentialFile(path, options, file, debug);
    const auto cut = good_bytes_.find(path);
    if (status.ok() && cut != good_bytes_.end()) {
      *file = std::make_unique<File>(std::move(*file), cut->second);
    }
    return status;
  }

 private:
  class File final : public rocksdb::FSSequentialFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSSequentialFile> target, uint64_t size)
        : FSSequentialFileOwnerWrapper(std::move(target)), left_(size) {}

    rocksdb::IOStatus Read(size_t size, const rocksdb::IOOptions& options,
                           rocksdb::Slice* result, char* scratch,
                           rocksdb::IODebugContext* debug) override {
      const rocksdb::IOStatus status = FSSequentialFileOwnerWrapper::Read(
          std::min<uint64_t>(size, left_), options, result, scratch, debug);
      if (status.ok()) left_ -= result->size();
      return status;
    }
    rocksdb::IOStatus Skip(uint64_t size) override {
      size = std::min(size, left_);
      left_ -= size;
      return FSSequentialFileOwnerWrapper::Skip(size);
    }

   private:
    uint64_t left_;
  };

  const std::map<std::string, uint64_t> good_bytes_;
};

rocksdb::Status CutFile(rocksdb::Env* env, const std::string& file,
                        uint64_t size) {
  std::unique_ptr<rocksdb::WritableFile> writer;
  rocksdb::Status status =
      env->ReopenWritableFile(file, &writer, rocksdb::EnvOptions());
  if (status.ok()) status = writer->Truncate(size);
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = writer->Close();
  return status;
}

rocksdb::Status SyncFile(rocksdb::Env* env, const std::string& file) {
  std::unique_ptr<rocksdb::WritableFile> writer;
  rocksdb::Status status =
      env->ReopenWritableFile(file, &writer, rocksdb::EnvOptions());
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = writer->Close();
  return status;
}

}  // namespace

absl::StatusOr<StoreFiles> InspectStoreFiles(rocksdb::Env* env,
                                             const std::string& path,
                                             const RocksdbMark& mark) {
  StoreFiles found;
  std::vector<std::string> files;
  const rocksdb::Status status = env->GetChildren(path, &files);
  if (status.IsNotFound() || status.IsPathNotFound()) {
    found.fresh = true;
  } else {
    COHORT_RETURN_IF_ERROR(ToStatus(status, path, Doing::kOpening));
  }
  const std::string current = absl::StrCat(path, "/CURRENT");
  if (std::find(files.begin(), files.end(), "CURRENT") == files.end()) {
    const auto data = std::find_if(files.begin(), files.end(), IsData);
    if (data != files.end()) {
      return DamagedError(path,
                          absl::StrCat(current, " is missing beside ", *data));
    }
    if (!mark.empty()) {
      return DamagedError(
          path, absl::StrCat(current,
                             " is not there any more, nor is a table or log"));
    }
    // A crash while the database was being made leaves no data behind.
    found.fresh = true;
    return found;
  }
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadCurrent(env, path, found.manifest), path, Doing::kOpening));
  const uint64_t number = ManifestNumber(found.manifest);
  if (number == 0) {
    return DamagedError(
        path, absl::StrCat(current, " does not hold the name of a manifest"));
  }
  if (ManifestNumber(mark.manifest) > number) {
    return DamagedError(path, absl::StrCat(current, " names ", found.manifest,
                                           ", it has named ", mark.manifest));
  }
  if (std::find(files.begin(), files.end(), found.manifest) == files.end()) {
    return DamagedError(path,
                        absl::StrCat(path, "/", found.manifest,
                                     ", which CURRENT names, is missing"));
  }
  COHORT_RETURN_IF_ERROR(InspectLogs(env, path, mark, found));
  COHORT_RETURN_IF_ERROR(InspectManifest(env, path, mark, found));
  return found;
}

std::unique_ptr<rocksdb::Env> MakeCutView(rocksdb::Env* base,
                                          const StoreFiles& files) {
  return rocksdb::NewCompositeEnv(
      std::make_shared<CutFileSystem>(base->GetFileSystem(), files.good_bytes));
}

rocksdb::Status CutTails(rocksdb::Env* env, const StoreFiles& files) {
  rocksdb::Status status;
  for (const auto& [file, bytes] : files.good_bytes) {
    if (!status.ok()) break;
    COHORT_LOG(kWarning, "log_tail_cut", {"file", file}, {"size", bytes});
    status = CutFile(env, file, bytes);
  }
  return status;
}

rocksdb::Status SyncStoreFiles(rocksdb::Env* env, const std::string& path,
                               const StoreFiles& files) {
  rocksdb::Status status =
      SyncFile(env, absl::StrCat(path, "/", files.manifest));
  for (const auto& [log, size] : files.logs) {
    if (status.ok()) status = SyncFile(env, LogPath(path, log));
  }
  return status;
}

rocksdb::Status ReadCurrent(rocksdb::Env* env, const std::string& path,
                            std::string& manifest) {
  const std::string file = absl::StrCat(path, "/CURRENT");
  const rocksdb::Status status =
      rocksdb::ReadFileToString(env, file, &manifest);
  if (!status.ok()) return status;
  if (manifest.empty() || manifest.back() != '\n') {
    return rocksdb::Status::Corruption(file, "was cut short");
  }
  manifest.pop_back();
  return status;
}

rocksdb::Status ReadBeginning(rocksdb::Env* env, const std::string& file,
                              uint64_t bytes, uint32_t& crc) {
  std::unique_ptr<rocksdb::SequentialFile> reader;
  rocksdb::Status status =
      env->NewSequentialFile(file, &reader, rocksdb::EnvOptions());
  std::string buffer(kLogBlockBytes, '\0');
  crc = 0;
  while (status.ok() && bytes > 0) {
    rocksdb::Slice read;
    status = reader->Read(std::min<uint64_t>(buffer.size(), bytes), &read,
                          buffer.data());
    if (read.empty()) break;
    crc = Crc32c({read.data(), read.size()}, crc);
    bytes -= read.size();
  }
  return status;
}

std::string LogPath(const std::string& path, uint64_t number) {
  return absl::StrFormat("%s/%06d.log", path, number);
}

rocksdb::Status ListLogs(rocksdb::Env* env, const std::string& path,
                         std::map<uint64_t, uint64_t>& logs) {
  std::vector<std::string> files;
  rocksdb::Status status = env->GetChildren(path, &files);
  for (const std::string& file : files) {
    const uint64_t number = LogNumber(file);
    if (!status.ok() || number == 0) continue;
    status = env->GetFileSize(absl::StrCat(path, "/", file), &logs[number]);
  }
  return status;
}

uint64_t LogNumber(absl::string_view name) {
  uint64_t number = 0;
  const bool is_log = absl::ConsumeSuffix(&name, ".log");
  return is_log && absl::SimpleAtoi(name, &number) ? number : 0;
}

uint64_t ManifestNumber(absl::string_view name) {
  uint64_t number = 0;
  const bool is_manifest = absl::ConsumePrefix(&name, "MANIFEST-");
  return is_manifest && absl::SimpleAtoi(name, &number) ? number : 0;
}

rocksdb::Status MakeLog(rocksdb::Env* env, const std::string& file) {
  std::unique_ptr<rocksdb::WritableFile> writer;
  rocksdb::Status status =
      env->NewWritableFile(file, &writer, rocksdb::EnvOptions());
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = writer->Close();
  return status;
}

}  // namespace cohort::head
