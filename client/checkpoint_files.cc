#include "client/checkpoint_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "common/checkpoint_path.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort {
namespace {

using nlohmann::ordered_json;

constexpr char kManifest[] = "/manifest.json";
constexpr size_t kManifestBytesMax = size_t{64} << 20;
// The length in front of a safetensors file's header, and the format's bound.
constexpr size_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;

JobFile FileOf(const JobCheckpoint& checkpoint, const std::string& name) {
  JobFile file{checkpoint.node_id, checkpoint.node_name, {}};
  file.file.set_path(
      absl::StrCat(kCheckpointsPrefix, checkpoint.path, "/", name));
  return file;
}

absl::StatusOr<std::string> ReadText(const Cluster& cluster, const JobId& job,
                                     const JobFile& file) {
  std::string text;
  COHORT_RETURN_IF_ERROR(cluster.ReadFile(
      job, file, [&text](absl::string_view bytes) -> absl::Status {
        if (text.size() + bytes.size() > kManifestBytesMax) {
          return absl::ResourceExhaustedError("a manifest that is too large");
        }
        text.append(bytes.data(), bytes.size());
        return absl::OkStatus();
      }));
  return text;
}

// Nothing of a manifest is trusted.
absl::Status ParseManifest(const std::string& text, JobCheckpoint& made) {
  const absl::Status damaged =
      absl::DataLossError(absl::StrCat(made.path, kManifest, " is damaged"));
  made.manifest = ordered_json::parse(text, nullptr, false);
  const ordered_json& manifest = made.manifest;
  const auto is_whole = [&](const char* name) {
    return manifest.contains(name) && manifest[name].is_number_integer();
  };
  if (!manifest.is_object()) return damaged;
  const auto files = manifest.find("files");
  if (!is_whole("step") || !is_whole("data_epoch") || files == manifest.end() ||
      !files->is_object()) {
    return damaged;
  }
  made.step = manifest["step"].get<int64_t>();
  made.epochs = manifest["data_epoch"].get<int64_t>();
  for (const auto& [name, facts] : files->items()) {
    if (!facts.is_object() || !facts.contains("bytes") ||
        !facts["bytes"].is_number_unsigned() || !facts.contains("sha256") ||
        !facts["sha256"].is_string() || !facts.contains("part") ||
        !facts["part"].is_string() || absl::StrContains(name, '/')) {
      return damaged;
    }
    made.files.push_back({name, facts["part"].get<std::string>(),
                          facts["sha256"].get<std::string>(),
                          facts["bytes"].get<uint64_t>()});
  }
  const auto metrics = manifest.find("metrics");
  if (metrics != manifest.end() && metrics->is_object()) {
    for (const auto& [name, value] : metrics->items()) {
      if (value.is_number()) made.metrics[name] = value.get<double>();
    }
  }
  return absl::OkStatus();
}

bool IsAt(const v1::Checkpoint& record, const std::string& path) {
  return absl::EndsWith(record.path(), absl::StrCat("/", path));
}

absl::StatusOr<std::vector<JobCheckpoint::File>> FilesOfPart(
    const JobCheckpoint& checkpoint, const std::string& part) {
  COHORT_RETURN_IF_ERROR(checkpoint.status);
  std::vector<JobCheckpoint::File> files;
  std::set<std::string> parts;
  for (const JobCheckpoint::File& file : checkpoint.files) {
    parts.insert(file.part);
    if (file.part == part) files.push_back(file);
  }
  if (!files.empty()) return files;
  return absl::NotFoundError(
      absl::StrCat("checkpoint ", checkpoint.path, " has no part \"", part,
                   "\" (it has ", absl::StrJoin(parts, ", "), ")"));
}

// What a part's tensors are called and where they lie, and the metadata.
struct Header {
  ordered_json entries;  // without the metadata
  ordered_json metadata;
};

absl::Status Damaged(const std::string& name) {
  return absl::DataLossError(absl::StrCat(name, " is damaged"));
}

// The length of a file's header with what is in front of it, once there is
// enough of the file to know.
size_t HeaderEnd(const std::string& begin) {
  if (begin.size() < kLengthBytes) return 0;
  uint64_t length = 0;
  std::memcpy(&length, begin.data(), kLengthBytes);
  return length > kHeaderBytesMax ? 0 : kLengthBytes + length;
}

absl::StatusOr<Header> ReadHeader(const Cluster& cluster, const JobId& job,
                                  const JobCheckpoint& checkpoint,
                                  const std::string& name) {
  std::string text;
  const absl::Status read =
      cluster.ReadFile(job, FileOf(checkpoint, name),
                       [&text](absl::string_view bytes) -> absl::Status {
                         text.append(bytes.data(), bytes.size());
                         const size_t end = HeaderEnd(text);
                         return text.size() < kLengthBytes || text.size() < end
                                    ? absl::OkStatus()
                                    : absl::CancelledError("it is there");
                       });
  if (!read.ok() && !absl::IsCancelled(read)) return Annotate(read, name);
  const size_t end = HeaderEnd(text);
  if (end == 0 || text.size() < end) return Damaged(name);
  ordered_json json =
      ordered_json::parse(text.data() + kLengthBytes, text.data() + end,
                          nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Damaged(name);
  Header header{.entries = std::move(json), .metadata = {}};
  if (header.entries.contains("__metadata__")) {
    header.metadata = header.entries["__metadata__"];
    header.entries.erase("__metadata__");
  }
  for (const auto& [tensor, entry] : header.entries.items()) {
    const bool is_good =
        entry.is_object() && entry.contains("dtype") &&
        entry["dtype"].is_string() && entry.contains("shape") &&
        entry["shape"].is_array() && entry.contains("data_offsets") &&
        entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2 &&
        entry["data_offsets"][0].is_number_unsigned() &&
        entry["data_offsets"][1].is_number_unsigned() &&
        entry["data_offsets"][0] <= entry["data_offsets"][1] &&
        std::ranges::all_of(entry["shape"], [](const auto& size) {
          return size.is_number_unsigned();
        });
    if (!is_good) return Damaged(absl::StrCat(name, ", tensor ", tensor, ","));
  }
  return header;
}

// One header for all files of a part, whose data follow one another.
absl::StatusOr<std::string> JoinHeaders(const std::vector<Header>& headers) {
  ordered_json joined = ordered_json::object();
  uint64_t before = 0;
  for (const Header& header : headers) {
    if (!header.metadata.is_null()) joined["__metadata__"] = header.metadata;
  }
  for (const Header& header : headers) {
    uint64_t end = 0;
    for (const auto& [name, entry] : header.entries.items()) {
      if (joined.contains(name)) {
        return absl::DataLossError(
            absl::StrCat("tensor ", name, " is there twice"));
      }
      ordered_json moved = entry;
      for (auto& offset : moved["data_offsets"]) {
        end = std::max(end, offset.get<uint64_t>());
        offset = offset.get<uint64_t>() + before;
      }
      joined[name] = std::move(moved);
    }
    before += end;
  }
  std::string text =
      joined.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) +
         text;
}

// Gives a file's bytes to `sink` and compares them with its checksum.
absl::Status ReadVerified(
    const Cluster& cluster, const JobId& job, const JobCheckpoint& checkpoint,
    const JobCheckpoint::File& file,
    absl::FunctionRef<absl::Status(absl::string_view bytes)> sink) {
  Sha256 hash;
  uint64_t size = 0;
  const absl::Status read = cluster.ReadFile(job, FileOf(checkpoint, file.name),
                                             [&](absl::string_view bytes) {
                                               hash.Update(bytes);
                                               size += bytes.size();
                                               return sink(bytes);
                                             });
  if (absl::IsNotFound(read)) {
    return absl::DataLossError(absl::StrCat(file.name, " is missing"));
  }
  COHORT_RETURN_IF_ERROR(Annotate(read, file.name));
  if (size != file.bytes) {
    return absl::DataLossError(absl::StrCat(
        file.name, " has ", size, " bytes, its manifest says ", file.bytes));
  }
  if (hash.Finish().ToHex() == file.sha256) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(file.name, " does not have the checksum in its manifest"));
}

}  // namespace

uint64_t JobCheckpoint::bytes() const {
  uint64_t bytes = 0;
  for (const File& file : files) bytes += file.bytes;
  return bytes;
}

absl::StatusOr<std::vector<JobCheckpoint>> ListCheckpoints(
    const Cluster& cluster, const JobId& job) {
  COHORT_ASSIGN_OR_RETURN(const Job found, cluster.Get(job));
  COHORT_ASSIGN_OR_RETURN(const JobFiles files, cluster.Files(job));
  if (files.manifests.empty() && !files.nodes_away.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "node ", files.nodes_away[0], " is away, and what it has of job ",
        job.ToText(), " with it"));
  }
  if (files.manifests.empty() && !files.nodes_gone.empty()) {
    return absl::NotFoundError(GoneText(files));
  }
  std::vector<JobCheckpoint> list;
  std::set<std::string> paths;
  for (const JobFile& manifest : files.manifests) {
    JobCheckpoint made{
        .path = std::string(absl::StripSuffix(
            absl::StripPrefix(manifest.file.path(), kCheckpointsPrefix),
            kManifest)),
        .node_id = manifest.node_id,
        .node_name = manifest.node_name,
        .written_at = absl::FromUnixMicros(manifest.file.modified_us())};
    // Several nodes may see one storage.
    if (!paths.insert(made.path).second) continue;
    const absl::StatusOr<std::string> text = ReadText(cluster, job, manifest);
    // Retired meanwhile.
    if (absl::IsNotFound(text.status())) continue;
    COHORT_RETURN_IF_ERROR(text.status());
    made.status = ParseManifest(*text, made);
    if (!made.status.ok()) made.files.clear();
    made.is_latest = IsAt(found.checkpoint(), made.path);
    made.is_best = found.best_checkpoints_size() > 0 &&
                   IsAt(found.best_checkpoints(0), made.path);
    list.push_back(std::move(made));
  }
  std::ranges::stable_sort(list,
                           [](const JobCheckpoint& a, const JobCheckpoint& b) {
                             return a.written_at < b.written_at;
                           });
  return list;
}

absl::StatusOr<std::vector<std::string>> VerifyCheckpoint(
    const Cluster& cluster, const JobId& job, const JobCheckpoint& checkpoint) {
  std::vector<std::string> damages;
  if (!checkpoint.status.ok()) {
    damages.emplace_back(checkpoint.status.message());
  }
  for (const JobCheckpoint::File& file : checkpoint.files) {
    const absl::Status read =
        ReadVerified(cluster, job, checkpoint, file,
                     [](absl::string_view) { return absl::OkStatus(); });
    if (read.ok()) continue;
    if (!absl::IsDataLoss(read)) return read;
    damages.push_back(absl::StrCat(checkpoint.path, "/", read.message()));
  }
  return damages;
}

absl::StatusOr<std::vector<CheckpointTensor>> TensorsOf(
    const Cluster& cluster, const JobId& job, const JobCheckpoint& checkpoint,
    const std::string& part) {
  COHORT_ASSIGN_OR_RETURN(const auto files, FilesOfPart(checkpoint, part));
  std::vector<CheckpointTensor> tensors;
  for (const JobCheckpoint::File& file : files) {
    COHORT_ASSIGN_OR_RETURN(const Header header,
                            ReadHeader(cluster, job, checkpoint, file.name));
    for (const auto& [name, entry] : header.entries.items()) {
      const auto& offsets = entry["data_offsets"];
      tensors.push_back(
          {name, entry["dtype"].get<std::string>(),
           entry["shape"].get<std::vector<int64_t>>(),
           offsets[1].get<uint64_t>() - offsets[0].get<uint64_t>()});
    }
  }
  std::ranges::sort(tensors,
                    [](const CheckpointTensor& a, const CheckpointTensor& b) {
                      return a.name < b.name;
                    });
  return tensors;
}

absl::Status ExportCheckpoint(const Cluster& cluster, const JobId& job,
                              const JobCheckpoint& checkpoint,
                              const std::string& part,
                              const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(const auto files, FilesOfPart(checkpoint, part));
  std::vector<Header> headers;
  for (const JobCheckpoint::File& file : files) {
    COHORT_ASSIGN_OR_RETURN(headers.emplace_back(),
                            ReadHeader(cluster, job, checkpoint, file.name));
  }
  COHORT_ASSIGN_OR_RETURN(const std::string joined, JoinHeaders(headers));
  const std::string draft = absl::StrCat(path, ".cohort-part-", getpid());
  const UniqueFd out(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!out) return ErrnoStatus(errno, absl::StrCat("make ", draft));
  absl::Cleanup remove = [&draft] { unlink(draft.c_str()); };
  COHORT_RETURN_IF_ERROR(WriteAll(out.get(), draft, joined));
  for (const JobCheckpoint::File& file : files) {
    std::string begin;  // until the header is over
    bool is_data = false;
    const auto write = [&](absl::string_view bytes) -> absl::Status {
      if (is_data) return WriteAll(out.get(), draft, bytes);
      begin.append(bytes.data(), bytes.size());
      const size_t end = HeaderEnd(begin);
      if (end == 0 || begin.size() < end) return absl::OkStatus();
      is_data = true;
      return WriteAll(out.get(), draft, absl::string_view(begin).substr(end));
    };
    COHORT_RETURN_IF_ERROR(Annotate(
        ReadVerified(cluster, job, checkpoint, file, write), checkpoint.path));
  }
  if (rename(draft.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", path));
  }
  std::move(remove).Cancel();
  return absl::OkStatus();
}

}  // namespace cohort
