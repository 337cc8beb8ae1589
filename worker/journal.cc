#include "worker/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message_lite.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {
namespace {

// Before the checksum and the bytes: what the file is, and its version.
constexpr absl::string_view kMagic = "cohort worker 1\n";

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path, " is damaged"));
}

absl::Status DamagedBinding(const std::string& path) {
  return absl::DataLossError(absl::StrCat(
      path,
      " is damaged: it says which life of the head this node follows; remove "
      "it if the head that the worker is to join is the newest one of its "
      "cluster"));
}

absl::Status DamagedNodeId(const std::string& path) {
  return absl::DataLossError(absl::StrCat(
      path,
      " is damaged: write this node's id there (32 hex digits, as `cohort "
      "nodes "
      "list --json` shows it) or put back a copy; or move the whole state "
      "directory away and start as a new node, which does not know the ranks "
      "of this one"));
}

// One flipped digit would be another node.
std::string NodeIdText(const NodeId& id) {
  const std::string hex = id.ToHex();
  return absl::StrCat(hex, "\n", absl::Hex(Crc32c(hex), absl::kZeroPad8), "\n");
}

std::string Seal(absl::string_view bytes) {
  return absl::StrCat(kMagic, absl::Hex(Crc32c(bytes), absl::kZeroPad8), "\n",
                      bytes);
}

absl::StatusOr<std::string> Unseal(const std::string& path,
                                   const std::string& file) {
  const size_t start = kMagic.size() + 9;
  if (file.size() < start ||
      file.compare(0, kMagic.size(), kMagic.data(), kMagic.size()) != 0) {
    return Damaged(path);
  }
  std::string bytes = file.substr(start);
  if (Seal(bytes) != file) return Damaged(path);
  return bytes;
}

// A record of the log: this, the checksum of what follows, the sizes of name
// and value, and these.
constexpr absl::string_view kRecordMagic = "cjr1";
constexpr size_t kRecordHeadBytes = 16;

void AppendNumber(uint32_t number, std::string& bytes) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes.push_back(static_cast<char>(number >> shift & 0xff));
  }
}

uint32_t NumberAt(absl::string_view bytes, size_t offset) {
  uint32_t number = 0;
  for (size_t i = 4; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return number;
}

std::string RecordOf(absl::string_view name, absl::string_view value) {
  std::string body;
  body.reserve(8 + name.size() + value.size());
  AppendNumber(static_cast<uint32_t>(name.size()), body);
  AppendNumber(static_cast<uint32_t>(value.size()), body);
  absl::StrAppend(&body, name, value);
  std::string record(kRecordMagic);
  AppendNumber(Crc32c(body), record);
  record += body;
  return record;
}

// The size of the whole record at the beginning of `log`; 0: there is none.
size_t RecordSize(absl::string_view log) {
  if (log.size() < kRecordHeadBytes ||
      log.substr(0, kRecordMagic.size()) != kRecordMagic) {
    return 0;
  }
  const uint64_t size = kRecordHeadBytes + uint64_t{NumberAt(log, 8)} +
                        uint64_t{NumberAt(log, 12)};
  if (size > log.size() ||
      Crc32c(log.substr(8, size - 8)) != NumberAt(log, 4)) {
    return 0;
  }
  return size;
}

absl::string_view NameIn(absl::string_view record) {
  return record.substr(kRecordHeadBytes, NumberAt(record, 8));
}
absl::string_view ValueIn(absl::string_view record) {
  return record.substr(kRecordHeadBytes + NumberAt(record, 8));
}

// Two messages behind one another, the first with its length before it.
std::string Encode(const google::protobuf::MessageLite& first,
                   const google::protobuf::MessageLite& second) {
  const std::string bytes = first.SerializeAsString();
  return absl::StrCat(absl::Hex(bytes.size(), absl::kZeroPad8), bytes,
                      second.SerializeAsString());
}

bool Decode(const std::string& bytes, google::protobuf::MessageLite& first,
            google::protobuf::MessageLite& second) {
  size_t length = 0;
  return bytes.size() >= 8 &&
         absl::SimpleHexAtoi(bytes.substr(0, 8), &length) &&
         length <= bytes.size() - 8 &&
         first.ParseFromString(bytes.substr(8, length)) &&
         second.ParseFromString(bytes.substr(8 + length));
}

absl::Status WriteAt(int fd, uint64_t offset, absl::string_view bytes,
                     const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n =
        pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    offset += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// What is replaced may take as much again, and this.
constexpr uint64_t kSpareBytes = 1 << 20;
// 16,384 attempts with an environment of 64 KiB are as much.
constexpr size_t kLogBytesMax = size_t{4} << 30;

}  // namespace

absl::Status Journal::Open() {
  for (const std::string& path :
       {directories_.state(), directories_.Journal(), directories_.Keepers(),
        directories_.Packages()}) {
    COHORT_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  }
  // They may lie on a disk that is not there now, which keeps new work away
  // (Fitness) and not what runs.
  for (const std::string& path :
       {directories_.AllWork(), directories_.AllLogs()}) {
    const absl::Status made = MakeDirectories(path, 0700);
    if (made.ok()) continue;
    COHORT_LOG(kWarning, "directory_not_made", {"directory", path},
               {"error", made.message()});
  }
  return MakeDirectories(directories_.runtime(), 0700);
}

absl::StatusOr<NodeId> Journal::LoadNodeId(Random& random) {
  const std::string path = directories_.NodeIdFile();
  const absl::StatusOr<std::string> file = ReadFile(path);
  NodeId id;
  if (absl::IsNotFound(file.status())) {
    COHORT_RETURN_IF_ERROR(CheckHasNoAttempts());
    id = NodeId::New(random);
  } else {
    COHORT_RETURN_IF_ERROR(file.status());
    const absl::StatusOr<NodeId> read = NodeId::FromHex(file->substr(0, 32));
    if (read.ok() && *file == NodeIdText(*read)) return *read;
    // A person who writes it by hand writes no checksum.
    if (!read.ok() || absl::StripTrailingAsciiWhitespace(*file).size() != 32) {
      return DamagedNodeId(path);
    }
    id = *read;
  }
  COHORT_RETURN_IF_ERROR(WriteFileAtomically(path, NodeIdText(id), 0600));
  return id;
}

absl::Status Journal::CheckHasNoAttempts() {
  const absl::StatusOr<std::string> log =
      ReadFile(directories_.JournalFile(), kLogBytesMax);
  if (absl::IsNotFound(log.status())) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(log.status());
  Index newest;
  Scan(*log, newest);
  if (newest.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      directories_.NodeIdFile(), " is missing, but ", directories_.Journal(),
      " has attempts of a node (write its id there, as `cohort nodes list "
      "--json` shows it; or start another node on an empty --state-dir)"));
}

absl::StatusOr<std::optional<v1::Stamp>> Journal::LoadBinding() {
  const std::string path = directories_.BindingFile();
  const absl::StatusOr<std::string> file = ReadFile(path);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  COHORT_RETURN_IF_ERROR(file.status());
  const absl::StatusOr<std::string> bytes = Unseal(path, *file);
  v1::Stamp stamp;
  if (!bytes.ok() || !stamp.ParseFromString(*bytes)) {
    return DamagedBinding(path);
  }
  return stamp;
}

absl::Status Journal::SaveBinding(const v1::Stamp& stamp) {
  return WriteFileAtomically(directories_.BindingFile(),
                             Seal(stamp.SerializeAsString()), 0600);
}

bool Journal::Scan(absl::string_view log, Index& newest) {
  bool whole = true;
  for (size_t at = 0; at < log.size();) {
    const size_t size = RecordSize(log.substr(at));
    if (size == 0) {
      whole = false;
      // Records are whole or not, wherever they lie.
      at = std::min(log.find(kRecordMagic, at + 1), log.size());
      continue;
    }
    const absl::string_view record = log.substr(at, size);
    const std::string name(NameIn(record));
    if (ValueIn(record).empty()) {
      newest.erase(name);
    } else {
      newest[name] = {.offset = at, .size = size};
    }
    at += size;
  }
  return whole;
}

absl::StatusOr<JournalEntries> Journal::LoadAll() {
  const std::string path = directories_.JournalFile();
  absl::StatusOr<std::string> log = ReadFile(path, kLogBytesMax);
  if (absl::IsNotFound(log.status())) log = std::string();
  COHORT_RETURN_IF_ERROR(log.status());
  if (!Scan(*log, index_)) {
    const std::string aside = absl::StrCat(directories_.Journal(), "/damaged");
    COHORT_LOG(kError, "journal_damaged", {"file", path}, {"kept_as", aside},
               {"consequence",
                "what it knew last of some process is lost: its keeper tells"});
    COHORT_RETURN_IF_ERROR(WriteFileAtomically(aside, *log, 0600));
  }
  JournalEntries entries;
  for (const auto& [name, extent] : index_) {
    const std::string value(
        ValueIn(absl::string_view(*log).substr(extent.offset, extent.size)));
    bool read = true;
    if (absl::StrContains(name, '.')) {
      ProcessEntry& entry = entries.processes.emplace_back();
      read = Decode(value, entry.begun, entry.observed);
      if (!read) entries.processes.pop_back();
    } else {
      PlaceEntry& entry = entries.places.emplace_back();
      read = Decode(value, entry.desired, entry.observed);
      if (!read) entries.places.pop_back();
    }
    if (!read) COHORT_LOG(kError, "journal_record_invalid", {"name", name});
  }
  if (!log->empty()) {
    log_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!log_) return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  COHORT_RETURN_IF_ERROR(Rewrite());
  return entries;
}

absl::Status Journal::Rewrite() {
  const std::string path = directories_.JournalFile();
  const std::string next = absl::StrCat(path, ".new");
  UniqueFd fd(open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, absl::StrCat("open ", next));
  Index index;
  uint64_t size = 0;
  std::string record;
  for (const auto& [name, extent] : index_) {
    record.resize(extent.size);
    const ssize_t n = pread(log_.get(), record.data(), record.size(),
                            static_cast<off_t>(extent.offset));
    if (n != static_cast<ssize_t>(record.size())) {
      return ErrnoStatus(n < 0 ? errno : EIO, absl::StrCat("read ", path));
    }
    COHORT_RETURN_IF_ERROR(WriteAt(fd.get(), size, record, next));
    index[name] = {.offset = size, .size = extent.size};
    size += extent.size;
  }
  if (fdatasync(fd.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sync ", next));
  }
  if (rename(next.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", next));
  }
  log_ = std::move(fd);
  index_ = std::move(index);
  size_ = live_ = size;
  must_rewrite_ = false;
  return SyncDirectory(directories_.Journal());
}

bool Journal::IsInPlace() const {
  struct stat here = {};
  struct stat ours = {};
  return log_ && stat(directories_.JournalFile().c_str(), &here) == 0 &&
         fstat(log_.get(), &ours) == 0 && here.st_dev == ours.st_dev &&
         here.st_ino == ours.st_ino;
}

absl::Status Journal::Append(const std::string& name, absl::string_view value) {
  if (must_rewrite_ || !IsInPlace() || size_ > 2 * live_ + kSpareBytes) {
    COHORT_RETURN_IF_ERROR(Rewrite());
  }
  const std::string record = RecordOf(name, value);
  const absl::Status written =
      WriteAt(log_.get(), size_, record, directories_.JournalFile());
  if (!written.ok()) {
    must_rewrite_ = true;  // half of a record may be there
    return written;
  }
  Extent& extent = index_[name];
  live_ -= extent.size;
  extent = {.offset = size_, .size = record.size()};
  if (value.empty()) {
    index_.erase(name);
  } else {
    live_ += record.size();
  }
  size_ += record.size();
  return absl::OkStatus();
}

absl::Status Journal::Save(const AttemptId& attempt, const PlaceEntry& entry) {
  return Append(attempt.ToHex(), Encode(entry.desired, entry.observed));
}

absl::Status Journal::Save(const ProcessId& process,
                           const ProcessEntry& entry) {
  return Append(process.ToText(), Encode(entry.begun, entry.observed));
}

absl::Status Journal::Remove(const ProcessId& process) {
  return Append(process.ToText(), "");
}

absl::Status Journal::Remove(const AttemptId& attempt) {
  const std::string place = attempt.ToHex();
  std::vector<std::string> names;
  for (auto it = index_.lower_bound(place);
       it != index_.end() && absl::StartsWith(it->first, place); ++it) {
    names.push_back(it->first);
  }
  for (const std::string& name : names) {
    COHORT_RETURN_IF_ERROR(Append(name, ""));
  }
  return absl::OkStatus();
}

absl::Status Journal::Sync() {
  if (fdatasync(log_.get()) == 0) return absl::OkStatus();
  // What it did not write it will not try again.
  must_rewrite_ = true;
  return ErrnoStatus(errno, absl::StrCat("sync ", directories_.JournalFile()));
}

}  // namespace cohort::worker
