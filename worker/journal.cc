#include "worker/journal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

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

// Two messages behind one another, the first with its length before it.
std::string Encode(const JournalEntry& entry) {
  const std::string desired = entry.desired.SerializeAsString();
  return absl::StrCat(absl::Hex(desired.size(), absl::kZeroPad8), desired,
                      entry.observed.SerializeAsString());
}

std::optional<JournalEntry> Decode(const std::string& bytes) {
  size_t length = 0;
  if (bytes.size() < 8 || !absl::SimpleHexAtoi(bytes.substr(0, 8), &length) ||
      length > bytes.size() - 8) {
    return std::nullopt;
  }
  JournalEntry entry;
  if (!entry.desired.ParseFromString(bytes.substr(8, length)) ||
      !entry.observed.ParseFromString(bytes.substr(8 + length))) {
    return std::nullopt;
  }
  return entry;
}

}  // namespace

absl::Status Journal::Open() {
  for (const std::string& path :
       {directories_.state(), directories_.Journal(), directories_.Attempts(),
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
  const absl::StatusOr<std::vector<std::string>> names = ListFiles();
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(names.status());
  if (names->empty()) return absl::OkStatus();
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

absl::StatusOr<std::vector<JournalEntry>> Journal::LoadAll() {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles());
  std::vector<JournalEntry> entries;
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directories_.Journal(), "/", name);
    COHORT_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
    const absl::StatusOr<std::string> bytes = Unseal(path, file);
    std::optional<JournalEntry> entry;
    if (bytes.ok()) entry = Decode(*bytes);
    if (entry.has_value()) {
      entries.push_back(*std::move(entry));
    } else {
      COHORT_RETURN_IF_ERROR(SetAside(path));
    }
  }
  return entries;
}

absl::StatusOr<std::vector<std::string>> Journal::ListFiles() {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directories_.Journal(), error);
       !error && it != std::filesystem::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    // What an interrupted save left beside has no id for a name.
    if (AttemptId::FromHex(name).ok()) names.push_back(name);
  }
  if (error) return ErrnoStatus(error.value(), directories_.Journal());
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status Journal::SetAside(const std::string& path) {
  const std::string aside = absl::StrCat(directories_.Journal(), "/damaged");
  COHORT_LOG(kError, "journal_file_damaged", {"file", path}, {"kept_as", aside},
             {"consequence", "its attempt is ended here"});
  if (rename(path.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", path));
  }
  return SyncDirectory(directories_.Journal());
}

absl::Status Journal::Save(const AttemptId& attempt,
                           const JournalEntry& entry) {
  return WriteFileAtomically(directories_.JournalFile(attempt),
                             Seal(Encode(entry)), 0600);
}

absl::Status Journal::Remove(const AttemptId& attempt) {
  const std::string path = directories_.JournalFile(attempt);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove ", path));
  }
  return SyncDirectory(directories_.Journal());
}

}  // namespace cohort::worker
