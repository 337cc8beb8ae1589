#include "trainer/checkpoint.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/durable_file.h"

namespace cohort::trainer {
namespace {

constexpr size_t kManifestBytesMax = size_t{64} << 20;
constexpr size_t kTensorFileBytesMax = size_t{1} << 40;

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

// A file that the manifest or the caller named: that it is missing is damage.
absl::StatusOr<std::vector<std::byte>> ReadPart(const std::string& path,
                                                size_t bytes_max) {
  auto bytes = ReadWholeFile(path, bytes_max);
  if (absl::IsNotFound(bytes.status())) {
    return Damaged(path, "is missing from the checkpoint");
  }
  return bytes;
}

absl::StatusOr<SafetensorsFile> ReadTensorFile(const std::string& path,
                                               const FileFacts& facts) {
  COHORT_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                          ReadPart(path, kTensorFileBytesMax));
  if (bytes.size() != facts.size) {
    return Damaged(
        path, absl::StrCat("has ", bytes.size(), " bytes, its manifest says ",
                           facts.size));
  }
  if (Sha256Hex(bytes) != facts.sha256) {
    return Damaged(path, "does not have the checksum in its manifest");
  }
  auto file = SafetensorsFile::Parse(std::move(bytes));
  if (!file.ok()) return Annotate(file.status(), path);
  return file;
}

}  // namespace

absl::StatusOr<const SafetensorsFile*> Checkpoint::Find(
    const std::string& name) const {
  const auto file = files.find(name);
  if (file != files.end()) return &file->second;
  const auto name_of = [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.first);
  };
  return absl::InvalidArgumentError(
      absl::StrCat("the checkpoint holds no ", name, " (it holds ",
                   absl::StrJoin(files, ", ", name_of), ")"));
}

absl::StatusOr<Checkpoint> ReadCheckpoint(absl::string_view directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(std::string(directory), error)) {
    return absl::NotFoundError(absl::StrCat(
        directory, " is not a checkpoint directory; give the step-<k> one"));
  }
  const std::string path = absl::StrCat(directory, "/", kManifestFile);
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          ReadPart(path, kManifestBytesMax));
  COHORT_ASSIGN_OR_RETURN(const ParsedManifest parsed,
                          ParseManifest(path, bytes));
  Checkpoint checkpoint;
  checkpoint.manifest = parsed.manifest;
  for (const auto& [name, facts] : parsed.files) {
    const std::string place = absl::StrCat(directory, "/", name);
    COHORT_ASSIGN_OR_RETURN(SafetensorsFile file, ReadTensorFile(place, facts));
    const auto part = checkpoint.files.find(facts.part);
    if (part == checkpoint.files.end()) {
      checkpoint.files.emplace(facts.part, std::move(file));
      continue;
    }
    COHORT_RETURN_IF_ERROR(Annotate(part->second.Join(std::move(file)), place));
  }
  return checkpoint;
}

}  // namespace cohort::trainer
