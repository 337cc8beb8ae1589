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
constexpr absl::string_view kRecordMagic = "\ncjr1 ";
constexpr size_t kNumberBytes = 8;  // hex
constexpr size_t kRecordHeadBytes = kRecordMagic.size() + 3 * kNumberBytes;

std::string Number(uint64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad8));
}

std::string RecordOf(absl::string_view name, absl::string_view value) {
  const std::string body =
      absl::StrCat(Number(name.size()), Number(value.size()), name, value);
  return absl::StrCat(kRecordMagic, Number(Crc32c(body)), body);
}

struct Record {
  absl::string_view name;
  absl::string_view value;
  size_t size = 0;  // of the whole record
};

// The one at the beginning of `log`, if it is whole.
std::optional<Record> RecordAt(absl::string_view log) {
  if (log.size() < kRecordHeadBytes || !absl::StartsWith(log, kRecordMagic)) {
    return std::nullopt;
  }
  uint32_t numbers[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!absl::SimpleHexAtoi(
            log.substr(kRecordMagic.size() + i * kNumberBytes, kNumberBytes),
            &numbers[i])) {
      return std::nullopt;
    }
  }
  const auto [checksum, name, value] = numbers;
  const size_t size = kRecordHeadBytes + size_t{name} + size_t{value};
  const size_t body = kRecordMagic.size() + kNumberBytes;
  if (size > log.size() || Crc32c(log.substr(body, size - body)) != checksum) {
    return std::nullopt;
  }
  return Record{.name = log.substr(kRecordHeadBytes, name),
                .value = log.substr(kRecordHeadBytes + name, value),
                .size = size};
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
  // (NodeReadiness) and not what runs.
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
  COHORT_ASSIGN_OR_RETURN(const Values values, Read());
  if (values.empty()) return absl::OkStatus();
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

absl::StatusOr<Journal::Values> Journal::Read() const {
  Values values;
  const std::string path = directories_.JournalFile();
  const absl::StatusOr<std::string> log = ReadFile(path, kLogBytesMax);
  if (absl::IsNotFound(log.status())) return values;
  COHORT_RETURN_IF_ERROR(log.status());
  bool whole = true;
  for (size_t at = 0; at < log->size();) {
    const auto record = RecordAt(absl::string_view(*log).substr(at));
    if (!record.has_value()) {
      whole = false;
      at = std::min(log->find(kRecordMagic.data(), at + 1), log->size());
      continue;
    }
    std::string& value = values[std::string(record->name)];
    value = std::string(record->value);
    if (value.empty()) values.erase(std::string(record->name));
    at += record->size;
  }
  if (whole) return values;
  const std::string aside = absl::StrCat(directories_.Journal(), "/damaged");
  COHORT_LOG(kError, "journal_damaged", {"file", path}, {"kept_as", aside},
             {"consequence",
              "what it knew last of some process is lost: its keeper tells"});
  COHORT_RETURN_IF_ERROR(WriteFileAtomically(aside, *log, 0600));
  return values;
}

absl::StatusOr<JournalEntries> Journal::LoadAll() {
  COHORT_ASSIGN_OR_RETURN(values_, Read());
  JournalEntries entries;
  for (const auto& [name, value] : values_) {
    PlaceEntry place;
    ProcessEntry process;
    const bool is_process = absl::StrContains(name, '.');
    if (is_process && Decode(value, process.begun, process.observed)) {
      entries.processes.push_back(std::move(process));
    } else if (!is_process && Decode(value, place.desired, place.observed)) {
      entries.places.push_back(std::move(place));
    } else {
      COHORT_LOG(kError, "journal_record_invalid", {"name", name});
    }
  }
  return entries;
}

absl::Status Journal::Rewrite() {
  std::string log;
  for (const auto& [name, value] : values_) log += RecordOf(name, value);
  const std::string path = directories_.JournalFile();
  COHORT_RETURN_IF_ERROR(WriteFileAtomically(path, log, 0600));
  log_ = UniqueFd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!log_) return ErrnoStatus(errno, absl::StrCat("open ", path));
  size_ = live_ = log.size();
  return absl::OkStatus();
}

bool Journal::IsInPlace() const {
  struct stat here = {};
  struct stat ours = {};
  return log_ && stat(directories_.JournalFile().c_str(), &here) == 0 &&
         fstat(log_.get(), &ours) == 0 && here.st_dev == ours.st_dev &&
         here.st_ino == ours.st_ino;
}

absl::Status Journal::Append(const std::string& name, std::string value) {
  if (!IsInPlace() || size_ > 2 * live_ + kSpareBytes) {
    COHORT_RETURN_IF_ERROR(Rewrite());
  }
  const std::string record = RecordOf(name, value);
  const ssize_t n = write(log_.get(), record.data(), record.size());
  if (n != static_cast<ssize_t>(record.size())) {
    log_ = UniqueFd();  // half of a record may be there
    return ErrnoStatus(n < 0 ? errno : ENOSPC,
                       absl::StrCat("write ", directories_.JournalFile()));
  }
  size_ += record.size();
  if (value.empty()) {
    values_.erase(name);
  } else {
    values_[name] = std::move(value);
  }
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
  for (auto it = values_.lower_bound(place);
       it != values_.end() && absl::StartsWith(it->first, place);
       it = values_.lower_bound(place)) {
    COHORT_RETURN_IF_ERROR(Append(std::string(it->first), ""));
  }
  return absl::OkStatus();
}

absl::Status Journal::Sync() {
  // Where it was taken away since, or could not be written to.
  if (!IsInPlace()) return Rewrite();
  if (fdatasync(log_.get()) == 0) return absl::OkStatus();
  log_ = UniqueFd();  // what it did not write it will not try again
  return ErrnoStatus(errno, absl::StrCat("sync ", directories_.JournalFile()));
}

}  // namespace cohort::worker
