#include "head/store/rocksdb_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rocksdb/file_system.h"

#include "common/log.h"
#include "common/status_macros.h"
#include "head/store/rocksdb_errors.h"
#include "head/store/rocksdb_log_tail.h"

namespace cohort::head {
namespace {

bool IsLog(const std::string& file) { return absl::EndsWith(file, ".log"); }

bool IsData(const std::string& file) {
  return IsLog(file) || absl::EndsWith(file, ".sst");
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
                                     const std::string& name,
                                     StoreFiles& files) {
  LastBlock last;
  const rocksdb::Status status =
      ReadLastBlock(env, absl::StrCat(path, "/", name), last);
  if (!status.ok()) return ToStatus(status, path, Doing::kOpening);
  const LogTail tail = InspectLogTail(last.bytes, last.zeros_follow);
  const uint64_t good = last.start + tail.good_bytes;
  if (tail.kind == LogTail::Kind::kDamaged) {
    return DamagedError(path,
                        absl::StrCat("a record in ", name, " at byte ", good));
  }
  if (tail.kind == LogTail::Kind::kZeroed) files.good_bytes[name] = good;
  return good;
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
                                             const std::string& path) {
  StoreFiles found;
  std::vector<std::string> files;
  const rocksdb::Status status = env->GetChildren(path, &files);
  if (status.IsNotFound() || status.IsPathNotFound()) {
    found.fresh = true;
    return found;
  }
  COHORT_RETURN_IF_ERROR(ToStatus(status, path, Doing::kOpening));
  const bool has_current =
      std::find(files.begin(), files.end(), "CURRENT") != files.end();
  if (!has_current) {
    const auto data = std::find_if(files.begin(), files.end(), IsData);
    // A crash while the database was being made leaves no data behind.
    found.fresh = data == files.end();
    if (found.fresh) return found;
    return DamagedError(path,
                        absl::StrCat("CURRENT is missing beside ", *data));
  }
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadCurrent(env, path, found.manifest), path, Doing::kOpening));
  if (!absl::StartsWith(found.manifest, "MANIFEST-")) {
    return DamagedError(path, "CURRENT does not hold the name of a manifest");
  }
  if (std::find(files.begin(), files.end(), found.manifest) == files.end()) {
    return DamagedError(
        path,
        absl::StrCat(found.manifest, ", which CURRENT names, is missing"));
  }
  COHORT_RETURN_IF_ERROR(
      ToStatus(ListLogs(env, path, found.logs), path, Doing::kOpening));
  // Each open makes a log before it writes the second manifest.
  const bool ever_opened = found.manifest != "MANIFEST-000001";
  if (ever_opened && found.logs.empty()) {
    return DamagedError(path, "its log is missing");
  }
  for (const auto& [log, size] : found.logs) {
    COHORT_RETURN_IF_ERROR(InspectTail(env, path, log, found).status());
  }
  COHORT_ASSIGN_OR_RETURN(found.manifest_bytes,
                          InspectTail(env, path, found.manifest, found));
  return found;
}

std::unique_ptr<rocksdb::Env> MakeCutView(rocksdb::Env* base,
                                          const std::string& path,
                                          const StoreFiles& files) {
  std::map<std::string, uint64_t> good_bytes;
  for (const auto& [name, bytes] : files.good_bytes) {
    good_bytes[absl::StrCat(path, "/", name)] = bytes;
  }
  return rocksdb::NewCompositeEnv(std::make_shared<CutFileSystem>(
      base->GetFileSystem(), std::move(good_bytes)));
}

rocksdb::Status CutTails(rocksdb::Env* env, const std::string& path,
                         const StoreFiles& files) {
  rocksdb::Status status;
  for (const auto& [name, bytes] : files.good_bytes) {
    if (!status.ok()) break;
    const std::string file = absl::StrCat(path, "/", name);
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
    if (status.ok()) status = SyncFile(env, absl::StrCat(path, "/", log));
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

rocksdb::Status ListLogs(rocksdb::Env* env, const std::string& path,
                         std::map<std::string, uint64_t>& logs) {
  std::vector<std::string> files;
  rocksdb::Status status = env->GetChildren(path, &files);
  for (const std::string& file : files) {
    if (!status.ok() || !IsLog(file)) continue;
    status = env->GetFileSize(absl::StrCat(path, "/", file), &logs[file]);
  }
  return status;
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
