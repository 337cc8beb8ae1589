#include "head/rocksdb_store.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/listener.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/write_batch.h"

#include "common/check.h"
#include "common/file.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/records_codec.h"
#include "head/rocksdb_log_tail.h"

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
// Nothing is read but at the start.
constexpr size_t kCacheBytes = 1 << 20;

constexpr char kDiskFull[] = "disk_full";

constexpr char kDamaged[] =
    "; nothing was changed: restore this directory and its .mark from a "
    "backup, or move both away to start an empty cluster";

rocksdb::Slice ToSlice(absl::string_view text) {
  return rocksdb::Slice(text.data(), text.size());
}

absl::Status DamagedError(const std::string& path, absl::string_view what) {
  return SetReason(
      absl::DataLossError(absl::StrCat("the control store at ", path,
                                       " is damaged: ", what, kDamaged)),
      "store_damaged");
}

// Where an error came from decides what it means.
enum class Doing {
  kMaking,   // there is nothing yet that could be damaged
  kOpening,  // a store that was there
  kUsing,
};

absl::Status ToStatus(const rocksdb::Status& status, const std::string& path,
                      Doing doing) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = status.ToString();
  if (status.IsNoSpace()) {
    return SetReason(
        absl::UnavailableError(absl::StrCat(
            "the disk under ", path, " is full; free space on it: ", text)),
        kDiskFull);
  }
  // A file that the manifest names and that is not there is damage; so is, at
  // the open, what cannot be this store's own (another comparator, odd values).
  const bool missing = status.IsNotFound() || status.IsPathNotFound();
  const bool odd = doing == Doing::kOpening && status.IsInvalidArgument();
  if (doing != Doing::kMaking && (status.IsCorruption() || missing || odd)) {
    return DamagedError(path, text);
  }
  if (status.IsNotSupported()) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            path, " needs a newer RocksDB than this program's: ", text)),
        "store_from_the_future");
  }
  return SetReason(
      absl::UnavailableError(absl::StrCat("the disk under ", path,
                                          " refuses; look at it: ", text)),
      "disk_error");
}

// Its owner opens a failed store anew (CM-3); RocksDB would go on by itself,
// for one when it finds space on a disk that was full.
class NoHealing final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

rocksdb::Options DatabaseOptions(rocksdb::Env* env) {
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
  options.listeners.push_back(std::make_shared<NoHealing>());
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

// An empty one of that name, durable but for the name.
rocksdb::Status MakeLog(rocksdb::Env* env, const std::string& file) {
  std::unique_ptr<rocksdb::WritableFile> writer;
  rocksdb::Status status =
      env->NewWritableFile(file, &writer, rocksdb::EnvOptions());
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = writer->Close();
  return status;
}

// Makes what the system holds of a log durable, which takes no space.
rocksdb::Status SyncFile(rocksdb::Env* env, const std::string& file) {
  std::unique_ptr<rocksdb::WritableFile> writer;
  rocksdb::Status status =
      env->ReopenWritableFile(file, &writer, rocksdb::EnvOptions());
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = writer->Close();
  return status;
}

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

// Judges the end of one log or manifest, which RocksDB does too leniently and
// too harshly (rocksdb_log_tail.h); cuts off what a crash left that it would
// not take.
absl::Status CheckLogTail(rocksdb::Env* env, const std::string& path,
                          const std::string& name, StoreAccess access) {
  const std::string file = absl::StrCat(path, "/", name);
  LastBlock last;
  const rocksdb::Status status = ReadLastBlock(env, file, last);
  if (!status.ok()) return ToStatus(status, path, Doing::kOpening);
  const LogTail tail = InspectLogTail(last.bytes, last.zeros_follow);
  const uint64_t good = last.start + tail.good_bytes;
  if (tail.kind == LogTail::Kind::kDamaged) {
    return DamagedError(path,
                        absl::StrCat("a record in ", name, " at byte ", good));
  }
  if (tail.kind == LogTail::Kind::kZeroed && access == StoreAccess::kInspect) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            file, " ends in zeros from byte ", good,
            " on, as a power cut leaves it, and to look changes nothing: start "
            "a head on the store once, which cuts them off, or look at a copy "
            "of the store that is cut there")),
        "log_tail_zeroed");
  }
  if (tail.kind == LogTail::Kind::kZeroed) {
    COHORT_LOG(kWarning, "log_tail_cut", {"file", file}, {"size", good});
    return ToStatus(CutFile(env, file, good), path, Doing::kOpening);
  }
  return absl::OkStatus();
}

// Looks at the files before RocksDB does, which would make a new database where
// CURRENT is missing, so that a store that lost this one small file came back
// empty, and which takes a log that is gone for one that never was (RS-2).
// Returns whether there is no database yet.
absl::StatusOr<bool> CheckFiles(rocksdb::Env* env, const std::string& path,
                                StoreAccess access) {
  std::vector<std::string> files;
  const rocksdb::Status status = env->GetChildren(path, &files);
  if (status.IsNotFound() || status.IsPathNotFound()) return true;
  COHORT_RETURN_IF_ERROR(ToStatus(status, path, Doing::kOpening));
  const bool has_current =
      std::find(files.begin(), files.end(), "CURRENT") != files.end();
  if (!has_current) {
    const auto data = std::find_if(files.begin(), files.end(), IsData);
    // A crash while the database was being made leaves no data behind.
    if (data == files.end()) return true;
    return DamagedError(path,
                        absl::StrCat("CURRENT is missing beside ", *data));
  }
  std::string manifest;
  COHORT_RETURN_IF_ERROR(
      ToStatus(rocksdb::ReadFileToString(env, path + "/CURRENT", &manifest),
               path, Doing::kOpening));
  // Each open makes a log before it writes the second manifest.
  const bool ever_opened = !absl::StartsWith(manifest, "MANIFEST-000001");
  if (ever_opened && std::none_of(files.begin(), files.end(), IsLog)) {
    return DamagedError(path, "its log is missing");
  }
  for (const std::string& file : files) {
    if (!IsLog(file) && absl::StrCat(file, "\n") != manifest) continue;
    COHORT_RETURN_IF_ERROR(CheckLogTail(env, path, file, access));
    // Opening to write copies the log into tables and syncs those; a reader
    // takes it as it is (RS-3).
    if (access == StoreAccess::kRead) {
      COHORT_RETURN_IF_ERROR(ToStatus(
          SyncFile(env, absl::StrCat(path, "/", file)), path, Doing::kOpening));
    }
  }
  return false;
}

// The logs of a store and their sizes.
rocksdb::Status ListLogs(rocksdb::Env* env, const std::string& path,
                         RocksdbMark::Logs& logs) {
  std::vector<std::string> files;
  rocksdb::Status status = env->GetChildren(path, &files);
  for (const std::string& file : files) {
    if (!status.ok() || !IsLog(file)) continue;
    status = env->GetFileSize(absl::StrCat(path, "/", file), &logs[file]);
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RocksdbStore>> RocksdbStore::Open(
    RocksdbStoreOptions options) {
  std::unique_ptr<RocksdbStore> store(new RocksdbStore(std::move(options)));
  COHORT_RETURN_IF_ERROR(store->OpenDatabase());
  return store;
}

RocksdbStore::RocksdbStore(RocksdbStoreOptions options)
    : options_(std::move(options)),
      env_(options_.env != nullptr ? options_.env : rocksdb::Env::Default()) {}

RocksdbStore::~RocksdbStore() {
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    // Fails for handles of another database only.
    (void)db_->DestroyColumnFamilyHandle(family);
  }
  db_.reset();
  // A store that was refused, or whose end is not known, says nothing new.
  if (!opened_ || !failure_.ok() ||
      options_.access != StoreAccess::kReadWrite) {
    return;
  }
  RocksdbMark::Logs logs;
  if (ListLogs(env_, options_.path, logs).ok()) Mark(std::move(logs));
}

absl::Status RocksdbStore::OpenDatabase() {
  const std::string& path = options_.path;
  COHORT_ASSIGN_OR_RETURN(const bool fresh,
                          CheckFiles(env_, path, options_.access));
  if (fresh && options_.access != StoreAccess::kReadWrite) {
    return absl::NotFoundError(
        absl::StrCat("there is no control store at ", path));
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> present,
                          ListFamilies(fresh));
  RocksdbMark::Logs logs;
  if (!fresh) {
    COHORT_RETURN_IF_ERROR(
        ToStatus(ListLogs(env_, path, logs), path, Doing::kOpening));
  }
  RocksdbMark mark;
  COHORT_RETURN_IF_ERROR(CheckMark(fresh, logs, mark));
  if (options_.access == StoreAccess::kReadWrite) {
    COHORT_RETURN_IF_ERROR(PrepareToWrite(logs, mark));
  }
  const rocksdb::Status status = OpenFamilies(present);
  if (status.IsIOError() && absl::StrContains(status.ToString(), "/LOCK")) {
    return SetReason(absl::FailedPreconditionError(absl::StrCat(
                         "another process has the control store at ", path,
                         " open; stop that one first: ", status.ToString())),
                     "store_locked");
  }
  if (!status.ok())
    return ToStatus(status, path, fresh ? Doing::kMaking : Doing::kOpening);
  if (fresh) {
    // RocksDB syncs what is in the directory, not the directory's own name.
    std::unique_ptr<rocksdb::Directory> parent;
    rocksdb::Status synced = env_->NewDirectory(ParentDirectory(path), &parent);
    if (synced.ok()) synced = parent->Fsync();
    COHORT_RETURN_IF_ERROR(ToStatus(synced, path, Doing::kMaking));
  }
  // The default one is always there.
  COHORT_RETURN_IF_ERROR(ReadStamp(/*families_missing=*/present.size() <
                                   1 + std::size(kAllTables)));
  if (mark.term > term_) {
    return DamagedError(
        path, absl::StrCat("its term is ", term_, ", it has been ", mark.term,
                           ", so its end is missing"));
  }
  opened_ = true;
  return absl::OkStatus();
}

absl::Status RocksdbStore::CheckMark(bool fresh, const RocksdbMark::Logs& logs,
                                     RocksdbMark& mark) const {
  const std::string& path = options_.path;
  COHORT_RETURN_IF_ERROR(
      ToStatus(ReadRocksdbMark(env_, path, mark), path, Doing::kOpening));
  if (fresh) {
    if (mark.term == 0 && mark.logs.empty()) return absl::OkStatus();
    return DamagedError(path, "nothing is there any more");
  }
  for (const auto& [log, size] : mark.logs) {
    const auto found = logs.find(log);
    if (found != logs.end() && found->second >= size) continue;
    return DamagedError(
        path, absl::StrCat(
                  log, found == logs.end() ? " is missing" : " was cut short"));
  }
  return absl::OkStatus();
}

absl::Status RocksdbStore::PrepareToWrite(const RocksdbMark::Logs& logs,
                                          const RocksdbMark& mark) const {
  const std::string& path = options_.path;
  uint64_t log_bytes = 0;
  for (const auto& [log, size] : logs) log_bytes += size;
  // They are copied into tables.
  COHORT_RETURN_IF_ERROR(CheckRoom(log_bytes));
  // From here on the logs change.
  if (mark.logs.empty()) return absl::OkStatus();
  return ToStatus(WriteRocksdbMark(env_, path, {.term = mark.term, .logs = {}}),
                  path, Doing::kOpening);
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
                   kDiskFull);
}

void RocksdbStore::Mark(RocksdbMark::Logs logs) const {
  const rocksdb::Status status = WriteRocksdbMark(
      env_, options_.path, {.term = term_, .logs = std::move(logs)});
  // Worth a warning only: without it one kind of damage is seen later.
  if (!status.ok()) {
    COHORT_LOG(kWarning, "store_not_marked", {"why", status.ToString()});
  }
}

rocksdb::Status RocksdbStore::OpenFamilies(
    const std::vector<std::string>& present) {
  const rocksdb::Options options = DatabaseOptions(env_);
  const bool writes = options_.access == StoreAccess::kReadWrite;
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

absl::StatusOr<std::vector<std::string>> RocksdbStore::ListFamilies(
    bool fresh) const {
  std::vector<std::string> present;
  if (fresh) return present;
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
  if (families_missing && stamp->schema_version == kSchemaVersion) {
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
  if (failure_.ok() && std::exchange(term_, next_term) < next_term) Mark({});
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
  RocksdbMark::Logs logs;
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
  RocksdbMark::Logs copied;
  if (status.ok()) status = ListLogs(env_, directory, copied);
  if (status.ok() && copied.empty() && !logs.empty()) {
    // An empty one is left out, and a store without any is a damaged one.
    const std::string& newest = logs.rbegin()->first;
    status = MakeLog(env_, absl::StrCat(directory, "/", newest));
    copied[newest] = 0;
  }
  if (status.ok()) {
    status = WriteRocksdbMark(env_, directory,
                              {.term = term_, .logs = std::move(copied)});
  }
  return ToStatus(status, directory, Doing::kMaking);
}

}  // namespace cohort::head
