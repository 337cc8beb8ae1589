#include "head/store/rocksdb_store.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/listener.h"
#include "rocksdb/memtablerep.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/wal_filter.h"
#include "rocksdb/write_batch.h"

#include "common/check.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_errors.h"

namespace cohort::head {
namespace {

// Rows in the log and not in table files are what an open after a crash reads
// again, at about 3.4 us a row: 16 MiB of 500-byte rows are 0.1 s.
constexpr uint64_t kLogBytesMax = 16 << 20;
// Of the tables jobs, specs, attempts, requests and events fill: about 20 MiB
// of memory at most.
constexpr size_t kMemtableBytes = 4 << 20;
// Left free for tables, a new log and the manifest.  RocksDB may end the
// process when a disk refuses twice (an assertion on its files' writers, which
// Debian leaves in), so it is not asked to write where it could not.
constexpr uint64_t kRoomBytes = 8 << 20;
// Nothing is read but at the start.
constexpr size_t kCacheBytes = 1 << 20;

rocksdb::Slice ToSlice(absl::string_view text) {
  return rocksdb::Slice(text.data(), text.size());
}

rocksdb::Options DatabaseOptions(
    rocksdb::Env* env, std::shared_ptr<rocksdb::EventListener> listener) {
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.paranoid_checks = true;
  options.track_and_verify_wals_in_manifest = true;
  options.verify_sst_unique_id_in_manifest = true;
  options.max_bgerror_resume_count = 0;
  options.listeners.push_back(std::move(listener));
  options.max_total_wal_size = kLogBytesMax;
  options.write_buffer_size = kMemtableBytes;
  options.max_write_buffer_number = 2;
  options.compression = rocksdb::kNoCompression;
  // One writer: the concurrent memtable would only cost.
  options.allow_concurrent_memtable_write = false;
  options.max_background_jobs = 2;
  options.max_file_opening_threads = 1;
  options.skip_stats_update_on_db_open = true;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.max_log_file_size = 1 << 20;
  options.keep_log_file_num = 3;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(kCacheBytes, /*num_shard_bits=*/0);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

bool IsLog(absl::string_view file) { return absl::EndsWith(file, ".log"); }

// The number in the name of a manifest; 0: it is none.
uint64_t ManifestNumber(absl::string_view name) {
  uint64_t number = 0;
  const bool is_manifest = absl::ConsumePrefix(&name, "MANIFEST-");
  return is_manifest && absl::SimpleAtoi(name, &number) ? number : 0;
}

// The first `bytes` of the manifest called `name`, or all that there are.
rocksdb::Status ReadManifest(
    rocksdb::Env* env, const std::string& path, const std::string& name,
    RocksdbMark::Manifest& manifest,
    uint64_t bytes = std::numeric_limits<uint64_t>::max()) {
  std::string text;
  const rocksdb::Status status =
      rocksdb::ReadFileToString(env, absl::StrCat(path, "/", name), &text);
  const absl::string_view read =
      absl::string_view(text).substr(0, std::min<uint64_t>(text.size(), bytes));
  manifest = {.name = name, .bytes = read.size(), .crc = Crc32c(read)};
  return status;
}

// The name that CURRENT holds.
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

rocksdb::Status SyncFile(rocksdb::Env* env, const std::string& file) {
  std::unique_ptr<rocksdb::WritableFile> writer;
  rocksdb::Status status =
      env->ReopenWritableFile(file, &writer, rocksdb::EnvOptions());
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = writer->Close();
  return status;
}

// Makes durable what the system holds of the logs and manifests, which takes
// no space.
rocksdb::Status SyncLogs(rocksdb::Env* env, const std::string& path) {
  std::vector<std::string> files;
  rocksdb::Status status = env->GetChildren(path, &files);
  for (const std::string& file : files) {
    if (!status.ok()) break;
    if (!IsLog(file) && ManifestNumber(file) == 0) continue;
    status = SyncFile(env, absl::StrCat(path, "/", file));
  }
  return status;
}

// The newest log, for people, and how large all of them are.
struct Logs {
  std::string newest;
  uint64_t bytes = 0;
};
Logs FindLogs(rocksdb::Env* env, const std::string& path) {
  Logs logs{.newest = absl::StrCat(path, "/*.log")};
  std::vector<std::string> files;
  (void)env->GetChildren(path, &files);
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    if (!IsLog(file)) continue;
    logs.newest = absl::StrCat(path, "/", file);
    uint64_t bytes = 0;
    (void)env->GetFileSize(logs.newest, &bytes);
    logs.bytes += bytes;
  }
  return logs;
}

// Whether a file ends in a zero, as a power cut leaves what was being written:
// its length reached the disk, and the bytes did not.  What is whole ends in a
// row's checksum.
bool EndsInZero(rocksdb::Env* env, const std::string& file) {
  std::string bytes;
  return rocksdb::ReadFileToString(env, file, &bytes).ok() && !bytes.empty() &&
         bytes.back() == '\0';
}

}  // namespace

// Sees the batches of the logs as RocksDB replays them, which it does whatever
// their numbers are: of a log whose bytes stand twice it makes one row of one
// number twice, and ends the process.
//
// Each change has the next number.  Those in a log have no holes, and those of
// a later log are greater: a crash may lose the end of a log after the next one
// was begun, never change their order.
class RocksdbStore::Replay final : public rocksdb::WalFilter {
 public:
  // `applies`: false only to see which batches there are.
  explicit Replay(bool applies) : applies_(applies) {}

  const char* Name() const override { return "order of changes"; }
  WalProcessingOption LogRecordFound(unsigned long long log,
                                     const std::string& file,
                                     const rocksdb::WriteBatch& batch,
                                     rocksdb::WriteBatch* /*new_batch*/,
                                     bool* /*changed*/) override {
    // RocksDB begins a log with an empty one.
    const uint64_t count = static_cast<uint64_t>(batch.Count());
    const uint64_t number = NumberOf(batch);
    if (count == 0) return WalProcessingOption::kContinueProcessing;
    const bool is_next = number == next_ || (log != log_ && number > next_);
    if (applies_ && !is_next) {
      wrong_ = absl::StrCat(file, " has change ", number, " after change ",
                            next_ - 1,
                            ": it holds bytes twice, lost some, or is the copy "
                            "of another log");
      return WalProcessingOption::kCorruptedRecord;
    }
    log_ = log;
    next_ = std::max(next_, number + count);
    return applies_ ? WalProcessingOption::kContinueProcessing
                    : WalProcessingOption::kIgnoreCurrentRecord;
  }

  // The number of the change after the last one.
  uint64_t next() const { return next_; }
  const std::string& wrong() const { return wrong_; }

 private:
  // Of its first change: what its bytes begin with, little-endian.
  static uint64_t NumberOf(const rocksdb::WriteBatch& batch) {
    uint64_t number = 0;
    for (size_t i = sizeof number; i > 0; --i) {
      number = number << 8 | static_cast<uint8_t>(batch.Data()[i - 1]);
    }
    return number;
  }

  const bool applies_;
  uint64_t next_ = 0;  // of the next change, or a lower one
  uint64_t log_ = 0;
  std::string wrong_;  // empty: nothing
};

// Sees what of the manifest is durable, and tells the mark's keeper.
//
// RocksDB calls it on its own threads too.
class RocksdbStore::Listener final : public rocksdb::EventListener {
 public:
  explicit Listener(rocksdb::Env* env) : env_(env) {}

  // From now on it has somebody to tell; again null before the keeper dies.
  void SetKeeper(RocksdbMarkKeeper* keeper) {
    MutexLock lock(mutex_);
    keeper_ = keeper;
  }
  // The last one that was synced, as it was then.
  RocksdbMark::Manifest manifest() {
    MutexLock lock(mutex_);
    return manifest_;
  }

  // Its owner opens a failed store again (CM-3); RocksDB would go on by itself,
  // for one when it finds space on a disk that was full.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

  bool ShouldBeNotifiedOnFileIO() override { return true; }
  void OnFileSyncFinish(const rocksdb::FileOperationInfo& info) override {
    if (!info.status.ok()) return;
    const size_t slash = info.path.rfind('/');
    const std::string name = info.path.substr(slash + 1);
    if (ManifestNumber(name) == 0) return;
    // Nobody adds to it before this has returned.  It is small: a record for
    // each table that was made since the start.
    RocksdbMark::Manifest manifest;
    if (!ReadManifest(env_, info.path.substr(0, slash), name, manifest).ok()) {
      return;
    }
    MutexLock lock(mutex_);
    manifest_ = manifest;
    if (keeper_ != nullptr) keeper_->ManifestReached(manifest_);
  }

 private:
  rocksdb::Env* const env_;

  Mutex mutex_;
  RocksdbMarkKeeper* keeper_ ABSL_GUARDED_BY(mutex_) = nullptr;
  RocksdbMark::Manifest manifest_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<RocksdbStore>> RocksdbStore::Open(
    RocksdbStoreOptions options) {
  std::unique_ptr<RocksdbStore> store(new RocksdbStore(std::move(options)));
  COHORT_RETURN_IF_ERROR(store->OpenDatabase());
  return store;
}

RocksdbStore::RocksdbStore(RocksdbStoreOptions options)
    : options_(std::move(options)),
      env_(options_.env != nullptr ? options_.env : rocksdb::Env::Default()),
      listener_(std::make_shared<Listener>(env_)) {}

RocksdbStore::~RocksdbStore() {
  Close();
  listener_->SetKeeper(nullptr);
  // Of a store that failed it is not known where it ends.
  if (keeper_ != nullptr && failure_.ok()) keeper_->Sync();
}

void RocksdbStore::Close() {
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    // Fails for handles of another database only.
    (void)db_->DestroyColumnFamilyHandle(family);
  }
  families_.clear();
  by_table_.fill(nullptr);
  db_.reset();
}

absl::Status RocksdbStore::OpenDatabase() {
  const std::string& path = options_.path;
  const bool writes = options_.access == StoreAccess::kReadWrite;
  RocksdbMark mark;
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadRocksdbMark(env_, path, mark), path, Doing::kOpening));
  COHORT_ASSIGN_OR_RETURN(const bool is_fresh, CheckFiles(mark));
  // Logs are copied into tables.  First: who waits for room asks often.
  if (writes) {
    COHORT_RETURN_IF_ERROR(CheckRoom(FindLogs(env_, path).bytes));
  }
  if (is_fresh) {
    if (writes) return OpenToWrite(Doing::kMaking);
    return absl::NotFoundError(
        absl::StrCat("there is no control store at ", path));
  }
  if (options_.access == StoreAccess::kRead) {
    // Opening to write copies the log into tables and syncs those; a reader
    // takes it as it is (RS-3).
    COHORT_RETURN_IF_ERROR(
        ToStatus(SyncLogs(env_, path), path, Doing::kOpening));
  }
  if (!writes) return OpenToRead(mark);

  rocksdb::FileLock* lock = nullptr;
  COHORT_RETURN_IF_ERROR(LockAgainstOthers(lock));
  absl::Cleanup unlock = [this, lock] {
    if (lock != nullptr) (void)env_->UnlockFile(lock);
  };
  COHORT_RETURN_IF_ERROR(OpenToRead(mark));
  COHORT_RETURN_IF_ERROR(CheckEverything());
  Close();
  std::move(unlock).Invoke();
  return OpenToWrite(Doing::kOpening);
}

absl::StatusOr<bool> RocksdbStore::CheckFiles(const RocksdbMark& mark) const {
  const std::string& path = options_.path;
  const std::string current = absl::StrCat(path, "/CURRENT");
  std::vector<std::string> files;
  const rocksdb::Status listed = env_->GetChildren(path, &files);
  if (!listed.IsNotFound() && !listed.IsPathNotFound()) {
    COHORT_RETURN_IF_ERROR(ToStatus(listed, path, Doing::kOpening));
  }
  if (std::find(files.begin(), files.end(), "CURRENT") == files.end()) {
    const auto data =
        std::find_if(files.begin(), files.end(), [](const std::string& file) {
          return IsLog(file) || absl::EndsWith(file, ".sst");
        });
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
    return true;
  }
  std::string name;
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadCurrent(env_, path, name), path, Doing::kOpening));
  const uint64_t number = ManifestNumber(name);
  if (number == 0) {
    return DamagedError(
        path, absl::StrCat(current, " does not hold the name of a manifest"));
  }
  if (ManifestNumber(mark.manifest.name) > number) {
    return DamagedError(
        path, absl::StrCat(current, " names ", name, ", it has named ",
                           mark.manifest.name));
  }
  if (name != mark.manifest.name) return false;
  RocksdbMark::Manifest manifest;
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadManifest(env_, path, name, manifest, mark.manifest.bytes),
               path, Doing::kOpening));
  if (manifest == mark.manifest) return false;
  const std::string file = absl::StrCat(path, "/", name);
  if (manifest.bytes < mark.manifest.bytes) {
    return DamagedError(path, absl::StrCat(file, " was cut short: ",
                                           manifest.bytes, " bytes are left, ",
                                           mark.manifest.bytes, " have been"));
  }
  return DamagedError(
      path, absl::StrCat(file, " is not as it was written, or another's copy"));
}

absl::Status RocksdbStore::LockAgainstOthers(rocksdb::FileLock*& lock) const {
  const std::string file = absl::StrCat(options_.path, "/LOCK");
  // Nothing is made here; nobody has open what nobody locks.
  if (!env_->FileExists(file).ok()) return absl::OkStatus();
  return OpenError(env_->LockFile(file, &lock), Doing::kOpening);
}

absl::Status RocksdbStore::OpenError(const rocksdb::Status& status,
                                     Doing doing) const {
  if (status.IsIOError() && absl::StrContains(status.ToString(), "/LOCK")) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "another process has the control store at ", options_.path,
            " open; stop that one first: ", status.ToString())),
        "store_locked");
  }
  return ToStatus(status, options_.path, doing);
}

absl::Status RocksdbStore::OpenToRead(const RocksdbMark& mark) {
  const std::string& path = options_.path;
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> present,
                          ListFamilies());
  COHORT_RETURN_IF_ERROR(Replayed(present));
  // The default one is always there.
  const bool families_missing = present.size() < 1 + std::size(kAllTables);
  // As a crash while the store was made leaves it.
  const bool never_used = Family(Table::kCluster) == nullptr && mark.empty() &&
                          db_->GetLatestSequenceNumber() == 0;
  if (never_used) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(ReadStamp(families_missing));
  const std::string log = FindLogs(env_, path).newest;
  const uint64_t sequence = db_->GetLatestSequenceNumber();
  if (mark.sequence > sequence) {
    return DamagedError(
        path, absl::StrCat(log, " is missing, damaged or was cut short: of ",
                           mark.sequence, " changes that were made ", sequence,
                           " are left"));
  }
  if (mark.term > term_) {
    return DamagedError(
        path, absl::StrCat("its term is ", term_, ", it has been ", mark.term,
                           ", so the end of ", log, " is missing"));
  }
  return absl::OkStatus();
}

absl::Status RocksdbStore::Replayed(const std::vector<std::string>& present) {
  Replay replay(/*applies=*/true);
  rocksdb::Status opened = OpenFamilies(present, {.replay = &replay});
  if (!replay.wrong().empty()) {
    return DamagedError(options_.path, replay.wrong());
  }
  if (opened.IsCorruption()) {
    Close();
    Replay all(/*applies=*/false);
    const bool is_in_a_log =
        OpenFamilies(
            present,
            {.recovery = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords,
             .replay = &all})
            .ok();
    Close();
    const std::string log = FindLogs(env_, options_.path).newest;
    // A power cut tears the batch that is being written, which was never
    // acknowledged, and which no other follows.
    if (is_in_a_log && all.next() == replay.next()) {
      // The strictest mode that takes such an end.
      recovery_ = EndsInZero(env_, log)
                      ? rocksdb::WALRecoveryMode::kPointInTimeRecovery
                      : rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
      opened = OpenFamilies(present, {.recovery = recovery_});
    }
    if (is_in_a_log && opened.IsCorruption()) {
      return DamagedError(
          options_.path,
          absl::StrCat("a record in ", log,
                       " or in a log before it: ", opened.ToString()));
    }
  }
  if (opened.ok()) return absl::OkStatus();
  const absl::Status refused = OpenError(opened, Doing::kOpening);
  if (!absl::IsDataLoss(refused)) return refused;
  Close();
  const std::string wrong = BadTable(present);
  return wrong.empty() ? refused : DamagedError(options_.path, wrong);
}

absl::Status RocksdbStore::CheckTables() {
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  // What later changes hide too: it is read when tables are merged.
  return ToStatus(db_->VerifyChecksum(read), options_.path, Doing::kOpening);
}

absl::Status RocksdbStore::CheckEverything() {
  COHORT_RETURN_IF_ERROR(CheckTables());
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  for (const Table table : kAllTables) {
    rocksdb::ColumnFamilyHandle* const family = Family(table);
    if (family == nullptr || !options_.check_rows) continue;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read, family));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const auto row = UnsealRow(table, {it->key().data(), it->key().size()},
                                 {it->value().data(), it->value().size()});
      if (!row.ok()) {
        return DamagedError(options_.path, row.status().message());
      }
    }
    COHORT_RETURN_IF_ERROR(
        ToStatus(it->status(), options_.path, Doing::kOpening));
  }
  return absl::OkStatus();
}

absl::Status RocksdbStore::OpenToWrite(Doing doing) {
  const std::string& path = options_.path;
  COHORT_RETURN_IF_ERROR(
      OpenError(OpenFamilies(/*present=*/{}, {.writes = true,
                                              .makes = doing == Doing::kMaking,
                                              .recovery = recovery_}),
                doing));
  if (doing == Doing::kMaking) {
    // RocksDB syncs what is in the directory, not the directory's own name.
    std::unique_ptr<rocksdb::Directory> parent;
    rocksdb::Status synced = env_->NewDirectory(ParentDirectory(path), &parent);
    if (synced.ok()) synced = parent->Fsync();
    COHORT_RETURN_IF_ERROR(ToStatus(synced, path, doing));
  }
  const RocksdbMark mark{.term = term_,
                         .sequence = db_->GetLatestSequenceNumber(),
                         .manifest = listener_->manifest()};
  COHORT_RETURN_IF_ERROR(ToStatus(
      RocksdbMarkKeeper::Start(env_, path, mark, keeper_), path, doing));
  listener_->SetKeeper(keeper_.get());
  return absl::OkStatus();
}

absl::Status RocksdbStore::CheckRoom(uint64_t bytes) const {
  const std::string directory = ParentDirectory(options_.path);
  uint64_t free = 0;
  const rocksdb::Status status = env_->GetFreeSpace(directory, &free);
  // Of root RocksDB believes that it may have what a file system keeps back,
  // some of which nobody gets.
  if (struct statvfs space; statvfs(directory.c_str(), &space) == 0) {
    free = std::min<uint64_t>(free, uint64_t{space.f_bavail} * space.f_frsize);
  }
  // Where this cannot be told, writes tell.
  const uint64_t needed = bytes + kRoomBytes;
  if (!status.ok() || free >= needed) return absl::OkStatus();
  return SetReason(absl::UnavailableError(absl::StrCat(
                       "the disk under ", options_.path,
                       " is full; free space on it: ", free >> 20,
                       " MiB are left, ", needed >> 20, " MiB are needed")),
                   kDiskFullReason);
}

rocksdb::Status RocksdbStore::OpenFamilies(
    const std::vector<std::string>& present, const How& how) {
  rocksdb::Options options = DatabaseOptions(env_, listener_);
  options.paranoid_checks = !how.lenient;
  options.wal_recovery_mode = how.recovery;
  options.wal_filter = how.replay;  // is asked while it opens only
  // Only events are read while others are written.  The rest is sorted when it
  // goes to a file or is scanned, which costs less than to keep it sorted.
  rocksdb::Options unsorted = options;
  unsorted.memtable_factory = std::make_shared<rocksdb::VectorRepFactory>();
  std::vector<rocksdb::ColumnFamilyDescriptor> wanted;
  wanted.emplace_back(rocksdb::kDefaultColumnFamilyName, options);
  std::vector<std::string> missing;
  for (const Table table : kAllTables) {
    const bool there = std::find(present.begin(), present.end(),
                                 TableName(table)) != present.end();
    // A reader makes none.
    if (!how.writes && !there) continue;
    if (how.makes && table != Table::kEvents) {
      missing.push_back(TableName(table));
      continue;
    }
    wanted.emplace_back(TableName(table),
                        table == Table::kEvents ? options : unsorted);
  }
  rocksdb::DB* db = nullptr;
  rocksdb::Status status =
      how.writes
          ? rocksdb::DB::Open(options, options_.path, wanted, &families_, &db)
          : rocksdb::DB::OpenForReadOnly(options, options_.path, wanted,
                                         &families_, &db);
  db_.reset(db);
  if (status.ok() && !missing.empty()) {
    // All at once: Open would write and sync all options for each.
    std::vector<rocksdb::ColumnFamilyHandle*> made;
    status = db_->CreateColumnFamilies(unsorted, missing, &made);
    families_.insert(families_.end(), made.begin(), made.end());
  }
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    for (const Table table : kAllTables) {
      if (family->GetName() == TableName(table)) {
        by_table_[static_cast<size_t>(table)] = family;
      }
    }
  }
  return status;
}

std::string RocksdbStore::BadTable(const std::vector<std::string>& present) {
  std::vector<rocksdb::LiveFileMetaData> tables;
  if (OpenFamilies(present, {.lenient = true}).ok()) {
    db_->GetLiveFilesMetaData(&tables);
  }
  Close();
  for (const rocksdb::LiveFileMetaData& table : tables) {
    const std::string file =
        absl::StrCat(options_.path, "/", table.relative_filename);
    uint64_t size = 0;
    rocksdb::Status status = env_->GetFileSize(file, &size);
    if (status.IsNotFound() || status.IsPathNotFound()) {
      return absl::StrCat(file, " is missing");
    }
    if (status.ok() && size != table.size) {
      return absl::StrCat(file, " has ", size, " bytes, it had ", table.size);
    }
    rocksdb::SstFileReader reader(DatabaseOptions(env_, listener_));
    if (status.ok()) status = reader.Open(file);
    if (status.ok()) status = reader.VerifyChecksum();
    if (!status.ok()) return absl::StrCat(file, ": ", status.ToString());
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> RocksdbStore::ListFamilies() const {
  std::vector<std::string> present;
  rocksdb::DBOptions options;
  options.env = env_;
  const rocksdb::Status status =
      rocksdb::DB::ListColumnFamilies(options, options_.path, &present);
  if (!status.ok()) return ToStatus(status, options_.path, Doing::kOpening);
  std::set<std::string> known = {rocksdb::kDefaultColumnFamilyName};
  for (const Table table : kAllTables) known.insert(TableName(table));
  for (const std::string& name : present) {
    if (known.count(name) != 0) continue;
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "the control store at ", options_.path, " has a table \"", name,
            "\", so it comes from the future of this program: run the newer "
            "cohort that wrote it, or restore the backup from before the "
            "upgrade")),
        "store_from_the_future");
  }
  return present;
}

absl::Status RocksdbStore::ReadStamp(bool families_missing) {
  std::string value;
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  rocksdb::ColumnFamilyHandle* const cluster = Family(Table::kCluster);
  if (cluster == nullptr) {
    return DamagedError(options_.path, "its first table is missing");
  }
  const rocksdb::Status status = db_->Get(read, cluster, RowKey(), &value);
  if (status.IsNotFound()) return absl::OkStatus();
  if (!status.ok()) {
    return ToStatus(status, options_.path, Doing::kUsing);
  }
  const absl::StatusOr<ClusterStamp> stamp = ReadClusterStamp(value);
  if (!stamp.ok()) {
    return DamagedError(options_.path, stamp.status().message());
  }
  COHORT_RETURN_IF_ERROR(Annotate(CheckSchema(*stamp), options_.path));
  // All tables are made before the first row is written.
  if (families_missing) {
    return DamagedError(options_.path, "a table is missing");
  }
  term_ = stamp->term;
  return absl::OkStatus();
}

uint64_t RocksdbStore::last_change() const {
  return db_->GetLatestSequenceNumber();
}

rocksdb::ColumnFamilyHandle* RocksdbStore::Family(Table table) const {
  return by_table_[static_cast<size_t>(table)];
}

absl::Status RocksdbStore::Append(uint64_t term, const Batch& batch) {
  COHORT_CHECK(options_.access == StoreAccess::kReadWrite);
  COHORT_CHECK(failure_.ok())
      << "a failed store was used again (CM-3): " << failure_.ToString();
  failure_ = CheckTerm(term, term_);
  if (!failure_.ok()) return failure_;

  failure_ = CheckRoom(BytesOf(batch));
  if (!failure_.ok()) return failure_;

  rocksdb::WriteBatch writes;
  const std::string* cluster_row = nullptr;
  for (const Write& write : batch) {
    rocksdb::ColumnFamilyHandle* const family = Family(write.table);
    // Neither can fail: they fill memory.
    if (!write.value.has_value()) {
      (void)writes.Delete(family, ToSlice(write.key));
      continue;
    }
    (void)writes.Put(family, ToSlice(write.key), ToSlice(*write.value));
    if (write.table == Table::kCluster) cluster_row = &*write.value;
  }
  uint64_t next_term = term_;
  if (cluster_row != nullptr) {
    COHORT_ASSIGN_OR_RETURN(const ClusterStamp stamp,
                            ReadClusterStamp(*cluster_row));
    next_term = stamp.term;
  }
  rocksdb::WriteOptions write_options;
  write_options.sync = options_.sync;
  failure_ = ToStatus(db_->Write(write_options, &writes), options_.path,
                      Doing::kUsing);
  if (!failure_.ok()) return failure_;
  const bool new_term = std::exchange(term_, next_term) < next_term;
  // What was not synced is not promised.
  if (options_.sync) {
    keeper_->Reached(term_, db_->GetLatestSequenceNumber());
  }
  if (new_term) keeper_->Sync();
  return failure_;
}

absl::Status RocksdbStore::Scan(Table table, const std::string& first,
                                size_t limit, RowVisitor each) {
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  rocksdb::ColumnFamilyHandle* const family = Family(table);
  if (family == nullptr) return absl::OkStatus();
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read, family));
  size_t rows = 0;
  for (it->Seek(first); it->Valid() && rows < limit; it->Next(), ++rows) {
    COHORT_RETURN_IF_ERROR(each({it->key().data(), it->key().size()},
                                {it->value().data(), it->value().size()}));
  }
  return Annotate(ToStatus(it->status(), options_.path, Doing::kUsing),
                  absl::StrCat("reading table ", TableName(table)));
}

absl::Status RocksdbStore::Checkpoint(const std::string& directory) {
  if (!failure_.ok()) return failure_;
  COHORT_RETURN_IF_ERROR(CheckRoom(FindLogs(env_, options_.path).bytes));
  rocksdb::Checkpoint* made = nullptr;
  rocksdb::Status status = rocksdb::Checkpoint::Create(db_.get(), &made);
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  if (status.ok()) {
    // Never flushes: that would write tables where the log will do.
    status = checkpoint->CreateCheckpoint(directory,
                                          std::numeric_limits<uint64_t>::max());
  }
  RocksdbMark mark{.term = term_, .sequence = db_->GetLatestSequenceNumber()};
  std::string manifest;
  if (status.ok()) status = ReadCurrent(env_, directory, manifest);
  if (status.ok()) {
    status = ReadManifest(env_, directory, manifest, mark.manifest);
  }
  if (status.ok()) status = WriteRocksdbMark(env_, directory, mark);
  return ToStatus(status, directory, Doing::kMaking);
}

}  // namespace cohort::head
