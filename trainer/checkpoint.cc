#include "trainer/checkpoint.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/durable_file.h"

namespace cohort::trainer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr char kManifest[] = "manifest.json";
constexpr char kSuffix[] = ".safetensors";
constexpr int kFormat = 1;  // on disk: readers refuse what they do not know
constexpr size_t kManifestBytesMax = size_t{1} << 20;
constexpr size_t kTensorFileBytesMax = size_t{1} << 40;
constexpr size_t kFilesMax = 64;

struct FileFacts {
  uint64_t size = 0;
  std::string sha256;
};

bool IsPlainName(absl::string_view name) {
  if (name.empty() || name.size() > 64) return false;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-';
    if (!plain) return false;
  }
  return true;
}

absl::Status CheckRequest(const CheckpointManifest& manifest,
                          const std::vector<CheckpointFile>& files) {
  if (manifest.step < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", manifest.step, " cannot be written"));
  }
  if (files.size() > kFilesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a checkpoint of ", files.size(), " files; at most ", kFilesMax));
  }
  for (const CheckpointFile& file : files) {
    if (!IsPlainName(file.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", file.name,
                       "\" is no name for a checkpoint file; "
                       "use a-z, 0-9, _ and -"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FileFacts> WriteTensorFile(const std::string& path,
                                          const CheckpointFile& file) {
  COHORT_ASSIGN_OR_RETURN(DurableFile out, DurableFile::Create(path));
  const auto append = [&out](std::span<const std::byte> bytes) {
    return out.Append(bytes);
  };
  COHORT_RETURN_IF_ERROR(
      Annotate(WriteSafetensors(file.tensors, file.metadata, append), path));
  COHORT_RETURN_IF_ERROR(out.Finish());
  return FileFacts{out.size(), out.sha256()};
}

json EncodeManifest(const CheckpointManifest& manifest,
                    const std::map<std::string, FileFacts>& files) {
  json checksums = json::object();
  for (const auto& [name, facts] : files) {
    checksums[name] = {{"bytes", facts.size}, {"sha256", facts.sha256}};
  }
  json object = {
      {"format", kFormat},           {"job", manifest.job_id},
      {"attempt", manifest.attempt}, {"epoch", manifest.epoch},
      {"world", manifest.world},     {"layout", manifest.layout},
      {"step", manifest.step},       {"data_epoch", manifest.data_epoch},
      {"cursor", manifest.cursor},   {"seed", manifest.seed},
      {"program", manifest.program}, {"files", checksums},
  };
  if (manifest.scaler) {
    object["scaler"] = {{"scale", manifest.scaler->scale},
                        {"good_steps", manifest.scaler->good_steps}};
  }
  return object;
}

absl::Status WriteManifest(const std::string& directory, const json& manifest) {
  COHORT_ASSIGN_OR_RETURN(DurableFile out, DurableFile::Create(absl::StrCat(
                                               directory, "/", kManifest)));
  const std::string text =
      manifest.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  COHORT_RETURN_IF_ERROR(
      out.Append(std::as_bytes(std::span(text.data(), text.size()))));
  return out.Finish();
}

absl::Status FillDirectory(const std::string& directory,
                           const CheckpointManifest& manifest,
                           const std::vector<CheckpointFile>& files) {
  std::map<std::string, FileFacts> written;
  for (const CheckpointFile& file : files) {
    const std::string name = absl::StrCat(file.name, kSuffix);
    COHORT_ASSIGN_OR_RETURN(
        written[name],
        WriteTensorFile(absl::StrCat(directory, "/", name), file));
  }
  COHORT_RETURN_IF_ERROR(
      WriteManifest(directory, EncodeManifest(manifest, written)));
  return SyncDirectory(directory);
}

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

// Reads the fields of a manifest and remembers the first that is wrong.
class ManifestReader {
 public:
  explicit ManifestReader(const json& object) : object_(object) {}

  template <typename Int>
  void Read(const char* name, Int& value) {
    const json* field = Field(name);
    if (field == nullptr || !field->is_number_integer()) return Miss(name);
    value = field->get<Int>();
    if constexpr (std::is_signed_v<Int>) {
      if (value < 0) Miss(name);
    }
  }
  void Read(const char* name, std::string& value) {
    const json* field = Field(name);
    if (field == nullptr || !field->is_string()) return Miss(name);
    value = field->get<std::string>();
  }
  void Read(const char* name, std::map<std::string, std::string>& values) {
    const json* field = Field(name);
    if (field == nullptr || !field->is_object()) return Miss(name);
    for (const auto& [key, value] : field->items()) {
      if (!value.is_string()) return Miss(name);
      values[key] = value.get<std::string>();
    }
  }
  void Read(const char* name, float& value) {
    const json* field = Field(name);
    if (field == nullptr || !field->is_number()) return Miss(name);
    const double wide = field->get<double>();
    if (std::abs(wide) > std::numeric_limits<float>::max()) return Miss(name);
    value = static_cast<float>(wide);
  }
  // Of a run that had none, it is not there.
  void Read(const char* name, std::optional<LossScalerState>& scaler) {
    const json* field = Field(name);
    if (field == nullptr) return;
    if (!field->is_object()) return Miss(name);
    ManifestReader reader(*field);
    scaler.emplace();
    reader.Read("scale", scaler->scale);
    reader.Read("good_steps", scaler->good_steps);
    if (!reader.missing().empty()) Miss(name);
  }
  const json* Object(const char* name) {
    const json* field = Field(name);
    if (field != nullptr && field->is_object()) return field;
    Miss(name);
    return nullptr;
  }
  const std::string& missing() const { return missing_; }

 private:
  const json* Field(const char* name) const {
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }
  void Miss(const char* name) {
    if (missing_.empty()) missing_ = name;
  }

  const json& object_;
  std::string missing_;
};

absl::StatusOr<std::map<std::string, FileFacts>> ParseFiles(
    const std::string& path, const json& entries) {
  std::map<std::string, FileFacts> files;
  for (const auto& [name, entry] : entries.items()) {
    // The name becomes a path: nothing but our own names may pass.
    const absl::string_view stem = absl::string_view(name).substr(
        0, name.size() - std::min(name.size(), sizeof(kSuffix) - 1));
    if (!absl::EndsWith(name, kSuffix) || !IsPlainName(stem) ||
        !entry.is_object() || files.size() == kFilesMax) {
      return Damaged(path, absl::StrCat("bad entry for file \"", name, "\""));
    }
    FileFacts facts;
    ManifestReader reader(entry);
    reader.Read("bytes", facts.size);
    reader.Read("sha256", facts.sha256);
    if (!reader.missing().empty()) {
      return Damaged(path, absl::StrCat(name, " has no usable \"",
                                        reader.missing(), "\""));
    }
    files[name] = facts;
  }
  return files;
}

struct ParsedManifest {
  CheckpointManifest manifest;
  std::map<std::string, FileFacts> files;
};

absl::StatusOr<ParsedManifest> ParseManifest(
    const std::string& path, const std::vector<std::byte>& bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const json object = json::parse(text, text + bytes.size(), nullptr,
                                  /*allow_exceptions=*/false);
  if (!object.is_object()) return Damaged(path, "is not a JSON object");
  ParsedManifest parsed;
  CheckpointManifest& manifest = parsed.manifest;
  int64_t format = 0;
  ManifestReader reader(object);
  reader.Read("format", format);
  if (reader.missing().empty() && format != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": is of format ", format, ", this program reads ",
                     kFormat, "; use the version that wrote it"));
  }
  reader.Read("job", manifest.job_id);
  reader.Read("attempt", manifest.attempt);
  reader.Read("epoch", manifest.epoch);
  reader.Read("world", manifest.world);
  reader.Read("layout", manifest.layout);
  reader.Read("step", manifest.step);
  reader.Read("data_epoch", manifest.data_epoch);
  reader.Read("cursor", manifest.cursor);
  reader.Read("seed", manifest.seed);
  reader.Read("scaler", manifest.scaler);
  reader.Read("program", manifest.program);
  const json* files = reader.Object("files");
  if (!reader.missing().empty()) {
    return Damaged(path,
                   absl::StrCat("has no usable \"", reader.missing(), "\""));
  }
  COHORT_ASSIGN_OR_RETURN(parsed.files, ParseFiles(path, *files));
  return parsed;
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
  return absl::InvalidArgumentError(
      absl::StrCat("the checkpoint holds no ", name));
}

absl::Status CheckSameRun(const CheckpointManifest& manifest, uint64_t seed,
                          const std::map<std::string, std::string>& program) {
  if (manifest.seed != seed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "was trained with --seed ", manifest.seed, ", not ", seed));
  }
  for (const auto& [name, value] : program) {
    const auto saved = manifest.program.find(name);
    if (saved != manifest.program.end() && saved->second == value) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "was trained with ", name, " ",
        saved == manifest.program.end() ? "unknown" : saved->second, ", not ",
        value));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> WriteCheckpoint(
    absl::string_view root, const CheckpointManifest& manifest,
    const std::vector<CheckpointFile>& files) {
  COHORT_RETURN_IF_ERROR(CheckRequest(manifest, files));
  const std::string final_path = absl::StrCat(root, "/step-", manifest.step);
  const std::string draft =
      absl::StrCat(root, "/.step-", manifest.step, ".tmp");
  std::error_code error;
  if (fs::exists(final_path, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(final_path, " was written before"));
  }
  COHORT_RETURN_IF_ERROR(MakeDurableDirectories(std::string(root)));
  fs::remove_all(draft, error);  // left by a call that died; ours by its root
  COHORT_RETURN_IF_ERROR(MakeDurableDirectories(draft));
  absl::Cleanup discard = [&draft] {
    std::error_code ignored;
    fs::remove_all(draft, ignored);
  };
  COHORT_RETURN_IF_ERROR(FillDirectory(draft, manifest, files));
  COHORT_RETURN_IF_ERROR(RenameInto(draft, final_path));
  std::move(discard).Cancel();
  COHORT_RETURN_IF_ERROR(SyncDirectory(std::string(root)));
  return final_path;
}

absl::StatusOr<Checkpoint> ReadCheckpoint(absl::string_view directory) {
  std::error_code error;
  if (!fs::is_directory(std::string(directory), error)) {
    return absl::NotFoundError(absl::StrCat(
        directory, " is no checkpoint directory; give the step-<k> one"));
  }
  const std::string path = absl::StrCat(directory, "/", kManifest);
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                          ReadPart(path, kManifestBytesMax));
  COHORT_ASSIGN_OR_RETURN(const ParsedManifest parsed,
                          ParseManifest(path, bytes));
  Checkpoint checkpoint;
  checkpoint.manifest = parsed.manifest;
  for (const auto& [name, facts] : parsed.files) {
    COHORT_ASSIGN_OR_RETURN(
        SafetensorsFile file,
        ReadTensorFile(absl::StrCat(directory, "/", name), facts));
    checkpoint.files.emplace(
        name.substr(0, name.size() - (sizeof(kSuffix) - 1)), std::move(file));
  }
  return checkpoint;
}

}  // namespace cohort::trainer
