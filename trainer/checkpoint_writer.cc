#include "trainer/checkpoint_writer.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <new>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/check.h"
#include "common/file.h"
#include "common/round_up.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/gather.h"
#include "trainer/durable_file.h"

namespace cohort::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPartsMax = 64;
// Holds the facts of that many files, and of an error its beginning.
constexpr size_t kVerdictBytesMax = size_t{16} << 10;
constexpr size_t kErrorBytesMax = size_t{1} << 10;
constexpr size_t kSnapshotAlignment = 64;

absl::Status CheckRequest(const CheckpointManifest& manifest,
                          const std::vector<CheckpointFile>& files) {
  if (manifest.step < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", manifest.step, " cannot be written"));
  }
  if (files.size() > kPartsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a checkpoint of ", files.size(), " parts; at most ", kPartsMax));
  }
  for (const CheckpointFile& file : files) {
    if (IsPartName(file.name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", file.name,
                     "\" is not a name for a checkpoint file; "
                     "use a-z, 0-9, _ and -"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileFacts> WriteShare(const std::string& path,
                                     const CheckpointShare& share) {
  // Left by a call that died: the root is this attempt's alone.
  unlink(path.c_str());
  COHORT_ASSIGN_OR_RETURN(DurableFile out, DurableFile::Create(path));
  const auto append = [&out](std::span<const std::byte> bytes) {
    return out.Append(bytes);
  };
  COHORT_RETURN_IF_ERROR(
      Annotate(WriteSafetensors(share.tensors, share.metadata, append), path));
  COHORT_RETURN_IF_ERROR(out.Finish());
  return FileFacts{out.size(), out.sha256(), share.part};
}

absl::Status WriteManifest(const std::string& path, const std::string& text) {
  unlink(path.c_str());
  COHORT_ASSIGN_OR_RETURN(DurableFile out, DurableFile::Create(path));
  COHORT_RETURN_IF_ERROR(
      out.Append(std::as_bytes(std::span(text.data(), text.size()))));
  return out.Finish();
}

}  // namespace

CheckpointWriter::CheckpointWriter(Comm& comm, std::string root,
                                   size_t split_bytes_min)
    : comm_(comm), root_(std::move(root)), split_bytes_min_(split_bytes_min) {}

CheckpointWriter::~CheckpointWriter() { GiveUp(); }

std::string CheckpointWriter::Draft() const {
  return absl::StrCat(root_, "/.step-", manifest_.step, ".tmp");
}
std::string CheckpointWriter::FinalPath() const {
  return absl::StrCat(root_, "/step-", manifest_.step);
}

absl::Status CheckpointWriter::Begin(const CheckpointManifest& manifest,
                                     const std::vector<CheckpointFile>& files,
                                     Commit commit) {
  COHORT_CHECK(!is_writing()) << "a checkpoint is being written";
  COHORT_RETURN_IF_ERROR(CheckRequest(manifest, files));
  manifest_ = manifest;
  commit_ = std::move(commit);
  std::vector<CheckpointShare> shares =
      ShareOf(files, comm_.rank(), comm_.world(), split_bytes_min_);
  const absl::Status copied = TakeSnapshot(shares);
  mine_ = {.status = absl::OkStatus(),
           .fingerprint = FingerprintOf(files),
           .files = {}};
  stage_ = Stage::kShares;
  Start([this, copied,
         shares = std::move(shares)]() -> absl::StatusOr<FileTable> {
    COHORT_RETURN_IF_ERROR(copied);
    return WriteShares(shares);
  });
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Reserve(size_t bytes) {
  if (bytes <= snapshot_bytes_) return absl::OkStatus();
  snapshot_.reset();  // first, so that there are never two
  snapshot_bytes_ = 0;
  snapshot_.reset(new (std::nothrow) std::byte[bytes]);
  if (snapshot_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no ", bytes, " bytes of memory for a copy of what is saved"));
  }
  snapshot_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status CheckpointWriter::TakeSnapshot(
    std::vector<CheckpointShare>& shares) {
  size_t needed = 0;
  for (const CheckpointShare& share : shares) {
    for (const TensorView& tensor : share.tensors) {
      needed += RoundUp(tensor.bytes.size(), kSnapshotAlignment);
    }
  }
  COHORT_RETURN_IF_ERROR(Reserve(needed));
  std::byte* free = snapshot_.get();
  for (CheckpointShare& share : shares) {
    for (TensorView& tensor : share.tensors) {
      if (!tensor.bytes.empty()) {
        std::memcpy(free, tensor.bytes.data(), tensor.bytes.size());
      }
      tensor.bytes = {free, tensor.bytes.size()};
      free += RoundUp(tensor.bytes.size(), kSnapshotAlignment);
    }
  }
  return absl::OkStatus();
}

void CheckpointWriter::Start(std::function<absl::StatusOr<FileTable>()> work) {
  is_ready_ = false;
  thread_ = std::thread([this, work = std::move(work)] {
    absl::StatusOr<FileTable> done = work();
    mine_.status = done.status();
    if (done.ok()) mine_.files = *std::move(done);
    is_ready_ = true;
  });
}

absl::StatusOr<FileTable> CheckpointWriter::WriteShares(
    const std::vector<CheckpointShare>& shares) const {
  std::error_code error;
  if (comm_.rank() == 0 && fs::exists(FinalPath(), error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(FinalPath(), " was written before"));
  }
  const std::string draft = Draft();
  COHORT_RETURN_IF_ERROR(MakeDurableDirectories(draft));
  FileTable written;
  for (const CheckpointShare& share : shares) {
    COHORT_ASSIGN_OR_RETURN(
        written[share.file],
        WriteShare(absl::StrCat(draft, "/", share.file), share));
  }
  COHORT_RETURN_IF_ERROR(SyncDirectory(draft));
  return written;
}

absl::Status CheckpointWriter::Publish(const FileTable& files) const {
  const std::string draft = Draft();
  // Of an earlier call that died, in another world.
  std::set<fs::path> orphans;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(draft, error)) {
    if (!files.contains(entry.path().filename().string())) {
      orphans.insert(entry.path());
    }
  }
  for (const fs::path& orphan : orphans) fs::remove_all(orphan, error);
  COHORT_RETURN_IF_ERROR(WriteManifest(absl::StrCat(draft, "/", kManifestFile),
                                       EncodeManifest(manifest_, files)));
  COHORT_RETURN_IF_ERROR(SyncDirectory(draft));
  COHORT_RETURN_IF_ERROR(RenameInto(draft, FinalPath()));
  COHORT_RETURN_IF_ERROR(SyncDirectory(root_));
  return commit_ == nullptr ? absl::OkStatus() : commit_(FinalPath());
}

// "ok FINGERPRINT" and a line a file, or "error CODE MESSAGE".
std::string CheckpointWriter::Encode(const Verdict& verdict) {
  if (!verdict.status.ok()) {
    return absl::StrCat(
        "error ", static_cast<int>(verdict.status.code()), " ",
        absl::string_view(verdict.status.message()).substr(0, kErrorBytesMax));
  }
  std::string text = absl::StrCat("ok ", verdict.fingerprint);
  for (const auto& [name, facts] : verdict.files) {
    absl::StrAppend(&text, "\n", name, " ", facts.size, " ", facts.sha256, " ",
                    facts.part);
  }
  return text;
}

absl::StatusOr<CheckpointWriter::Verdict> CheckpointWriter::Decode(
    const std::string& text) {
  const absl::Status unreadable =
      absl::InternalError("what it wrote was not understood");
  const std::vector<std::string> head =
      absl::StrSplit(text, absl::MaxSplits(' ', 2));
  int code = 0;
  if (head.size() == 3 && head[0] == "error" &&
      absl::SimpleAtoi(head[1], &code)) {
    return absl::Status(static_cast<absl::StatusCode>(code), head[2]);
  }
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::vector<std::string> first = absl::StrSplit(lines[0], ' ');
  Verdict verdict;
  if (first.size() != 2 || first[0] != "ok" ||
      !absl::SimpleAtoi(first[1], &verdict.fingerprint)) {
    return unreadable;
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> words = absl::StrSplit(lines[i], ' ');
    FileFacts facts;
    if (words.size() != 4 || !absl::SimpleAtoi(words[1], &facts.size)) {
      return unreadable;
    }
    facts.sha256 = words[2];
    facts.part = words[3];
    verdict.files[words[0]] = facts;
  }
  return verdict;
}

absl::StatusOr<FileTable> CheckpointWriter::GatherVerdicts(
    absl::Duration timeout) {
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      GatherBlobs(comm_, Encode(mine_), kVerdictBytesMax, timeout));
  FileTable all;
  uint64_t fingerprint = 0;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const absl::StatusOr<Verdict> verdict = Decode(texts[rank]);
    const std::string who = absl::StrCat("rank ", rank);
    COHORT_RETURN_IF_ERROR(texts.size() == 1 ? verdict.status()
                                             : Annotate(verdict.status(), who));
    if (rank == 0) fingerprint = verdict->fingerprint;
    if (verdict->fingerprint != fingerprint) {
      return absl::InvalidArgumentError(absl::StrCat(
          who,
          " has other tensors than rank 0 (every rank is to prepare the "
          "same model and optimizer)"));
    }
    for (const auto& [name, facts] : verdict->files) {
      if (all.emplace(name, facts).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("two parts of the checkpoint are files called ", name));
    }
  }
  return all;
}

absl::StatusOr<std::optional<std::string>> CheckpointWriter::Advance(
    absl::Duration timeout) {
  COHORT_CHECK(is_writing()) << "no checkpoint is being written";
  if (thread_.joinable()) thread_.join();
  absl::StatusOr<FileTable> files = GatherVerdicts(timeout);
  if (!files.ok()) {
    GiveUp();
    return files.status();
  }
  if (stage_ == Stage::kPublish) {
    stage_ = Stage::kIdle;
    return FinalPath();
  }
  stage_ = Stage::kPublish;
  mine_.files.clear();
  if (comm_.rank() == 0) {
    Start([this, files = *std::move(files)]() -> absl::StatusOr<FileTable> {
      COHORT_RETURN_IF_ERROR(Publish(files));
      return FileTable();
    });
  } else {
    is_ready_ = true;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> CheckpointWriter::Finish(absl::Duration timeout) {
  for (;;) {
    COHORT_ASSIGN_OR_RETURN(std::optional<std::string> path, Advance(timeout));
    if (path.has_value()) return *std::move(path);
  }
}

void CheckpointWriter::GiveUp() {
  if (thread_.joinable()) thread_.join();
  if (is_writing() && comm_.rank() == 0) {
    std::error_code ignored;
    fs::remove_all(Draft(), ignored);
  }
  stage_ = Stage::kIdle;
}

}  // namespace cohort::trainer
