#include "head/store/rocksdb_store.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/listener.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/write_batch.h"

#include "common/check.h"
#include "common/file.h"
#include "common/log.h"
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
// Seven tables, of which jobs, attempts, requests and events fill: about 16 MiB
// of memory at most.
constexpr size_t kMemtableBytes = 4 << 20;
// Left free for tables, a new log and the manifest.  RocksDB may end the
// process when a disk refuses twice (an assertion on its files' writers, which
// Debian leaves in), so it is not asked to write where it could not.
constexpr uint64_t kRoomBytes = 8 << 20;
// The first one with all of kAllTables; a store of an older one has fewer.
constexpr uint32_t kSchemaOfAllTables = 2;
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
  // A crash may tear the end of the log: those bytes were never acknowledged,
  // and a head that refused to start for them would refuse after most power
  // cuts (kAbsoluteConsistency).  A bad record that is whole is damage to what
  // may have been acknowledged: the default (kPointInTimeRecovery) would drop
  // it and everything after it without a word.
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
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

}  // namespace

// Sees what of the manifest is durable, and tells the mark's keeper; and which
// log is written.
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
  uint64_t DurableBytes(const std::string& manifest) {
    MutexLock lock(mutex_);
    return manifest == manifest_ ? bytes_ : 0;
  }
  // The newest log of those that were made durable, or looked up.
  uint64_t Log() {
    MutexLock lock(mutex_);
    return log_;
  }
  void SetLog(uint64_t number) {
    MutexLock lock(mutex_);
    log_ = number;
  }

  // Its owner opens a failed store anew (CM-3); RocksDB would go on by itself,
  // for one when it finds space on a disk that was full.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

  bool ShouldBeNotifiedOnFileIO() override { return true; }
  void OnFileSyncFinish(const rocksdb::FileOperationInfo& info) override {
    if (!info.status.ok()) return;
    const std::string name = info.path.substr(info.path.rfind('/') + 1);
    if (const uint64_t log = LogNumber(name); log != 0) {
      MutexLock lock(mutex_);
      log_ = std::max(log_, log);
    }
    if (ManifestNumber(name) == 0) return;
    // Nobody adds to it before this has returned.
    uint64_t bytes = 0;
    if (!env_->GetFileSize(info.path, &bytes).ok()) return;
    MutexLock lock(mutex_);
    manifest_ = name;
    bytes_ = bytes;
    if (keeper_ != nullptr) keeper_->ManifestReached(manifest_, bytes_);
  }

 private:
  rocksdb::Env* const env_;

  Mutex mutex_;
  RocksdbMarkKeeper* keeper_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string manifest_ ABSL_GUARDED_BY(mutex_);  // the last one synced
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t log_ ABSL_GUARDED_BY(mutex_) = 0;
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
  COHORT_ASSIGN_OR_RETURN(const StoreFiles files,
                          InspectStoreFiles(env_, path, mark));
  if (writes) {
    uint64_t log_bytes = 0;
    for (const auto& [log, size] : files.logs) log_bytes += size;
    // They are copied into tables.  First: who waits for room asks often.
    COHORT_RETURN_IF_ERROR(CheckRoom(log_bytes));
  }
  if (files.fresh) {
    if (writes) return OpenToWrite(files);
    return absl::NotFoundError(
        absl::StrCat("there is no control store at ", path));
  }
  if (options_.access == StoreAccess::kRead) {
    // Opening to write copies the log into tables and syncs those; a reader
    // takes it as it is (RS-3).
    COHORT_RETURN_IF_ERROR(
        ToStatus(SyncStoreFiles(env_, path, files), path, Doing::kOpening));
  }
  if (!writes) return OpenToRead(files, mark);

  rocksdb::FileLock* lock = nullptr;
  COHORT_RETURN_IF_ERROR(LockAgainstOthers(lock));
  absl::Cleanup unlock = [this, lock] {
    if (lock != nullptr) (void)env_->UnlockFile(lock);
  };
  COHORT_RETURN_IF_ERROR(OpenToRead(files, mark));
  COHORT_RETURN_IF_ERROR(CheckEverything());
  Close();
  std::move(unlock).Invoke();
  return OpenToWrite(files);
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

absl::Status RocksdbStore::OpenToRead(const StoreFiles& files,
                                      const RocksdbMark& mark) {
  const std::string& path = options_.path;
  if (!files.good_bytes.empty()) view_ = MakeCutView(env_, files);
  rocksdb::Env* const env = view_ != nullptr ? view_.get() : env_;
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> present,
                          ListFamilies(env));
  const rocksdb::Status opened = OpenFamilies(env, present, How::kRead);
  if (!opened.ok()) {
    const absl::Status refused = OpenError(opened, Doing::kOpening);
    if (!absl::IsDataLoss(refused)) return refused;
    Close();
    const std::string wrong = BadTable(env, present);
    return wrong.empty() ? refused : DamagedError(path, wrong);
  }
  // The default one is always there.
  const bool families_missing = present.size() < 1 + std::size(kAllTables);
  // As a crash while the store was made leaves it.
  const bool never_used = Family(Table::kCluster) == nullptr && mark.empty() &&
                          db_->GetLatestSequenceNumber() == 0;
  if (never_used) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(CheckLogsAreNewer(files));
  COHORT_RETURN_IF_ERROR(ReadStamp(families_missing));
  const std::string log = files.logs.empty()
                              ? "its log"
                              : LogPath(path, files.logs.contains(mark.log)
                                                  ? mark.log
                                                  : files.logs.rbegin()->first);
  const uint64_t sequence = db_->GetLatestSequenceNumber();
  if (mark.sequence > sequence) {
    return DamagedError(
        path, absl::StrCat(log, " was cut short: of ", mark.sequence,
                           " changes that were made ", sequence, " are left"));
  }
  if (mark.term > term_) {
    return DamagedError(
        path, absl::StrCat("its term is ", term_, ", it has been ", mark.term,
                           ", so the end of ", log, " is missing"));
  }
  return absl::OkStatus();
}

absl::Status RocksdbStore::CheckLogsAreNewer(const StoreFiles& files) const {
  std::vector<rocksdb::LiveFileMetaData> tables;
  db_->GetLiveFilesMetaData(&tables);
  for (const auto& [log, first] : files.first_changes) {
    for (const rocksdb::LiveFileMetaData& table : tables) {
      if (table.file_number > log || table.largest_seqno < first) continue;
      return DamagedError(
          options_.path,
          absl::StrCat(LogPath(options_.path, log), " begins with change ",
                       first,
                       ", which is older than it: it is another one's "
                       "copy"));
    }
  }
  return absl::OkStatus();
}

absl::Status RocksdbStore::CheckEverything() {
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  // What later changes hide too: it is read when tables are merged.
  COHORT_RETURN_IF_ERROR(
      ToStatus(db_->VerifyChecksum(read), options_.path, Doing::kOpening));
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

absl::Status RocksdbStore::OpenToWrite(const StoreFiles& files) {
  const std::string& path = options_.path;
  const Doing doing = files.fresh ? Doing::kMaking : Doing::kOpening;
  COHORT_RETURN_IF_ERROR(ToStatus(CutTails(env_, files), path, doing));
  COHORT_RETURN_IF_ERROR(
      OpenError(OpenFamilies(env_, /*present=*/{}, How::kWrite), doing));
  view_.reset();
  if (files.fresh) {
    // RocksDB syncs what is in the directory, not the directory's own name.
    std::unique_ptr<rocksdb::Directory> parent;
    rocksdb::Status synced = env_->NewDirectory(ParentDirectory(path), &parent);
    if (synced.ok()) synced = parent->Fsync();
    COHORT_RETURN_IF_ERROR(ToStatus(synced, path, doing));
  }
  RocksdbMark mark{.term = term_, .sequence = db_->GetLatestSequenceNumber()};
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadCurrent(env_, path, mark.manifest), path, doing));
  mark.manifest_bytes = listener_->DurableBytes(mark.manifest);
  mark.manifest_begin_bytes = mark.manifest_bytes;
  COHORT_RETURN_IF_ERROR(ToStatus(
      ReadBeginning(env_, absl::StrCat(path, "/", mark.manifest),
                    mark.manifest_begin_bytes, mark.manifest_begin_crc),
      path, doing));
  // Its name is durable with the manifest's.
  std::map<uint64_t, uint64_t> logs;
  COHORT_RETURN_IF_ERROR(ToStatus(ListLogs(env_, path, logs), path, doing));
  if (!logs.empty()) {
    mark.log = logs.rbegin()->first;
    mark.log_first_change = mark.sequence + 1;
    listener_->SetLog(mark.log);
  }
  COHORT_RETURN_IF_ERROR(ToStatus(
      RocksdbMarkKeeper::Start(env_, path, mark, keeper_), path, doing));
  listener_->SetKeeper(keeper_.get());
  return absl::OkStatus();
}

absl::Status RocksdbStore::CheckRoom(uint64_t bytes) const {
  uint64_t free = 0;
  const rocksdb::Status status =
      env_->GetFreeSpace(ParentDirectory(options_.path), &free);
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
    rocksdb::Env* env, const std::vector<std::string>& present, How how) {
  rocksdb::Options options = DatabaseOptions(env, listener_);
  options.paranoid_checks = how != How::kLenient;
  const bool writes = how == How::kWrite;
  std::vector<rocksdb::ColumnFamilyDescriptor> wanted;
  wanted.emplace_back(rocksdb::kDefaultColumnFamilyName, options);
  for (const Table table : kAllTables) {
    const bool there = std::find(present.begin(), present.end(),
                                 TableName(table)) != present.end();
    // A reader makes none.
    if (writes || there) wanted.emplace_back(TableName(table), options);
  }
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      writes
          ? rocksdb::DB::Open(options, options_.path, wanted, &families_, &db)
          : rocksdb::DB::OpenForReadOnly(options, options_.path, wanted,
                                         &families_, &db);
  db_.reset(db);
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    for (const Table table : kAllTables) {
      if (family->GetName() == TableName(table)) {
        by_table_[static_cast<size_t>(table)] = family;
      }
    }
  }
  return status;
}

std::string RocksdbStore::BadTable(rocksdb::Env* env,
                                   const std::vector<std::string>& present) {
  std::vector<rocksdb::LiveFileMetaData> tables;
  if (OpenFamilies(env, present, How::kLenient).ok()) {
    db_->GetLiveFilesMetaData(&tables);
  }
  Close();
  for (const rocksdb::LiveFileMetaData& table : tables) {
    const std::string file =
        absl::StrCat(options_.path, "/", table.relative_filename);
    uint64_t size = 0;
    rocksdb::Status status = env->GetFileSize(file, &size);
    if (status.IsNotFound() || status.IsPathNotFound()) {
      return absl::StrCat(file, " is missing");
    }
    if (status.ok() && size != table.size) {
      return absl::StrCat(file, " has ", size, " bytes, it had ", table.size);
    }
    rocksdb::SstFileReader reader(DatabaseOptions(env, listener_));
    if (status.ok()) status = reader.Open(file);
    if (status.ok()) status = reader.VerifyChecksum();
    if (!status.ok()) return absl::StrCat(file, ": ", status.ToString());
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> RocksdbStore::ListFamilies(
    rocksdb::Env* env) const {
  std::vector<std::string> present;
  rocksdb::DBOptions options;
  options.env = env;
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
  const rocksdb::Status status = db_->Get(read, cluster, ClusterKey(), &value);
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
  if (families_missing && stamp->schema_version >= kSchemaOfAllTables) {
    return DamagedError(options_.path, "a table is missing");
  }
  term_ = stamp->term;
  return absl::OkStatus();
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
    keeper_->Reached(term_, db_->GetLatestSequenceNumber(), listener_->Log());
  }
  if (new_term) keeper_->Sync();
  return failure_;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>>
RocksdbStore::LoadAll(Table table) {
  return LoadRange(table, "", std::numeric_limits<size_t>::max());
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>>
RocksdbStore::LoadRange(Table table, const std::string& first, size_t limit) {
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  std::vector<std::pair<std::string, std::string>> rows;
  rocksdb::ColumnFamilyHandle* const family = Family(table);
  if (family == nullptr) return rows;
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read, family));
  for (it->Seek(first); it->Valid() && rows.size() < limit; it->Next()) {
    rows.emplace_back(it->key().ToString(), it->value().ToString());
  }
  if (!it->status().ok()) {
    return Annotate(ToStatus(it->status(), options_.path, Doing::kUsing),
                    absl::StrCat("reading table ", TableName(table)));
  }
  return rows;
}

absl::Status RocksdbStore::Checkpoint(const std::string& directory) {
  if (!failure_.ok()) return failure_;
  std::map<uint64_t, uint64_t> logs;
  rocksdb::Status status = ListLogs(env_, options_.path, logs);
  uint64_t log_bytes = 0;
  for (const auto& [log, size] : logs) log_bytes += size;
  COHORT_RETURN_IF_ERROR(CheckRoom(log_bytes));

  rocksdb::Checkpoint* made = nullptr;
  if (status.ok()) status = rocksdb::Checkpoint::Create(db_.get(), &made);
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  if (status.ok()) {
    // Never flushes: that would write tables where the log will do.
    status = checkpoint->CreateCheckpoint(directory,
                                          std::numeric_limits<uint64_t>::max());
  }
  std::map<uint64_t, uint64_t> copied;
  if (status.ok()) status = ListLogs(env_, directory, copied);
  if (status.ok() && copied.empty() && !logs.empty()) {
    // An empty one is left out, and a store without any is a damaged one.
    status = MakeLog(env_, LogPath(directory, logs.rbegin()->first));
  }
  RocksdbMark mark{.term = term_, .sequence = db_->GetLatestSequenceNumber()};
  if (status.ok()) status = ReadCurrent(env_, directory, mark.manifest);
  if (status.ok()) {
    status = env_->GetFileSize(absl::StrCat(directory, "/", mark.manifest),
                               &mark.manifest_bytes);
  }
  if (status.ok()) status = WriteRocksdbMark(env_, directory, mark);
  return ToStatus(status, directory, Doing::kMaking);
}

}  // namespace cohort::head
