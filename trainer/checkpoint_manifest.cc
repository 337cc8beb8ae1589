#include "trainer/checkpoint_manifest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "common/status_macros.h"

namespace cohort::trainer {
namespace {

using nlohmann::json;

// On disk: readers refuse what they do not know.
constexpr int kFormat = 1;
// Of a thousand ranks.
constexpr size_t kFilesMax = 100'000;
constexpr size_t kPartNameBytesMax = 64;
constexpr size_t kShardSuffixBytesMax = sizeof("-00001-of-00002") - 1;

absl::Status BadManifest(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

bool IsPlain(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
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
  void Read(const char* name, std::map<std::string, double>& values) {
    const json* field = Field(name);
    if (field == nullptr || !field->is_object()) return Miss(name);
    for (const auto& [key, value] : field->items()) {
      if (!value.is_number()) return Miss(name);
      values[key] = value.get<double>();
    }
  }
  template <typename T>
  void ReadIfThere(const char* name, T& value) {
    if (Field(name) != nullptr) Read(name, value);
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

absl::StatusOr<FileTable> ParseFiles(const std::string& path,
                                     const json& entries) {
  FileTable files;
  for (const auto& [name, entry] : entries.items()) {
    // The name becomes a path: nothing but our own names may pass.
    const absl::string_view stem = absl::string_view(name).substr(
        0, name.size() - std::min(name.size(), sizeof(kTensorSuffix) - 1));
    if (!absl::EndsWith(name, kTensorSuffix) || !IsPlain(stem) ||
        stem.size() > kPartNameBytesMax + kShardSuffixBytesMax ||
        !entry.is_object() || files.size() == kFilesMax) {
      return BadManifest(path,
                         absl::StrCat("bad entry for file \"", name, "\""));
    }
    FileFacts facts;
    ManifestReader reader(entry);
    reader.Read("bytes", facts.size);
    reader.Read("sha256", facts.sha256);
    reader.Read("part", facts.part);
    if (!reader.missing().empty() || !IsPartName(facts.part)) {
      return BadManifest(
          path,
          absl::StrCat(name, " has no usable \"",
                       reader.missing().empty() ? "part" : reader.missing(),
                       "\""));
    }
    files[name] = facts;
  }
  return files;
}

}  // namespace

bool IsPartName(absl::string_view name) {
  return IsPlain(name) && name.size() <= kPartNameBytesMax;
}

std::string EncodeManifest(const CheckpointManifest& manifest,
                           const FileTable& files) {
  json table = json::object();
  for (const auto& [name, facts] : files) {
    table[name] = {
        {"bytes", facts.size}, {"part", facts.part}, {"sha256", facts.sha256}};
  }
  json object = {
      {"format", kFormat},           {"job", manifest.job_id},
      {"attempt", manifest.attempt}, {"epoch", manifest.epoch},
      {"world", manifest.world},     {"layout", manifest.layout},
      {"step", manifest.step},       {"data_epoch", manifest.data_epoch},
      {"cursor", manifest.cursor},   {"seed", manifest.seed},
      {"program", manifest.program}, {"files", table},
  };
  if (manifest.scaler) {
    object["scaler"] = {{"scale", manifest.scaler->scale},
                        {"good_steps", manifest.scaler->good_steps}};
  }
  if (!manifest.package.empty()) object["package"] = manifest.package;
  if (!manifest.spec.empty()) object["spec"] = manifest.spec;
  if (!manifest.optimizers.empty()) object["optimizers"] = manifest.optimizers;
  if (!manifest.metrics.empty()) object["metrics"] = manifest.metrics;
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<ParsedManifest> ParseManifest(const std::string& path,
                                             std::span<const std::byte> bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const json object = json::parse(text, text + bytes.size(), nullptr,
                                  /*allow_exceptions=*/false);
  if (!object.is_object()) return BadManifest(path, "is not a JSON object");
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
  reader.ReadIfThere("package", manifest.package);
  reader.ReadIfThere("spec", manifest.spec);
  reader.ReadIfThere("optimizers", manifest.optimizers);
  reader.ReadIfThere("metrics", manifest.metrics);
  const json* files = reader.Object("files");
  if (!reader.missing().empty()) {
    return BadManifest(
        path, absl::StrCat("has no usable \"", reader.missing(), "\""));
  }
  COHORT_ASSIGN_OR_RETURN(parsed.files, ParseFiles(path, *files));
  return parsed;
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

}  // namespace cohort::trainer
