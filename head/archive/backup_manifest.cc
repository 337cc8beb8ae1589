#include "head/archive/backup_manifest.h"

#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/hex_text.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr char kFirstLine[] = "cohort backup 1";
constexpr absl::string_view kAnyFirstLine = "cohort backup ";
constexpr int kFormat = 1;
constexpr char kEnd[] = "end ";

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the backup's list of files is damaged: ", what));
}

// Within the directory, whatever it says.
bool IsSafeName(absl::string_view name) {
  if (name.empty() || name.front() == '/') return false;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

// What a line says.  Nonsense is left out, so that ToText writes another text.
void ReadLine(absl::string_view key, absl::string_view value,
              BackupManifest& manifest) {
  if (key == "file") {
    const std::vector<absl::string_view> words =
        absl::StrSplit(value, absl::MaxSplits(' ', 2));
    if (words.size() != 3) return;
    BackupManifest::File& file = manifest.files.emplace_back();
    (void)absl::SimpleAtoi(words[0], &file.size_bytes);
    file.hash = Digest::FromHex(words[1]).value_or(Digest());
    file.name = std::string(words[2]);
  } else if (key == "missing-package") {
    manifest.missing_packages.emplace_back(value);
  } else if (key == "cluster") {
    manifest.cluster = ClusterId::FromHex(value).value_or(ClusterId());
  } else if (key == "generation") {
    manifest.generation = GenerationId::FromHex(value).value_or(GenerationId());
  } else if (key == "request") {
    manifest.request_id = HexToBytes(value);
  } else if (key == "term") {
    (void)absl::SimpleAtoi(value, &manifest.term);
  } else if (key == "schema") {
    (void)absl::SimpleAtoi(value, &manifest.schema);
  } else if (key == "at") {
    int64_t micros = 0;
    (void)absl::SimpleAtoi(value, &micros);
    manifest.at = absl::FromUnixMicros(micros);
  }
}

}  // namespace

int64_t BackupManifest::bytes() const {
  int64_t sum = 0;
  for (const File& file : files) sum += file.size_bytes;
  return sum;
}

std::string ToText(const BackupManifest& manifest) {
  std::string text = absl::StrCat(
      kFirstLine, "\ncluster ", manifest.cluster.ToHex(), "\ngeneration ",
      manifest.generation.ToHex(), "\nterm ", manifest.term, "\nschema ",
      manifest.schema, "\nat ", absl::ToUnixMicros(manifest.at), "\nrequest ",
      absl::BytesToHexString(manifest.request_id), "\n");
  for (const std::string& hash : manifest.missing_packages) {
    absl::StrAppend(&text, "missing-package ", hash, "\n");
  }
  for (const BackupManifest::File& file : manifest.files) {
    absl::StrAppend(&text, "file ", file.size_bytes, " ", file.hash.ToHex(),
                    " ", file.name, "\n");
  }
  return absl::StrCat(text, kEnd, Sha256::Of(text).ToHex(), "\n");
}

absl::StatusOr<BackupManifest> ParseBackupManifest(absl::string_view text) {
  const size_t end = text.rfind(kEnd);
  if (!absl::StartsWith(text, kAnyFirstLine)) {
    return Damaged("it does not begin as one");
  }
  if (end == absl::string_view::npos ||
      text.substr(end) !=
          absl::StrCat(kEnd, Sha256::Of(text.substr(0, end)).ToHex(), "\n")) {
    return Damaged("its checksum is wrong, or its end is missing");
  }
  const absl::string_view first = text.substr(0, text.find('\n'));
  if (first != kFirstLine) {
    int format = 0;
    if (!absl::SimpleAtoi(first.substr(kAnyFirstLine.size()), &format) ||
        format <= kFormat) {
      return Damaged("its first line names no format of a backup");
    }
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            "it begins with \"", absl::CHexEscape(first.substr(0, 40)),
            "\" and so comes from the future of this program: restore it with "
            "the newer cohort that wrote it")),
        "backup_from_the_future");
  }
  BackupManifest manifest;
  for (const absl::string_view line :
       absl::StrSplit(text.substr(0, end), '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    ReadLine(pair.first, pair.second, manifest);
  }
  if (absl::string_view(ToText(manifest)) != text) {
    return Damaged("it is not as it is written");
  }
  for (const BackupManifest::File& file : manifest.files) {
    if (file.size_bytes >= 0 && IsSafeName(file.name)) continue;
    return Damaged(absl::StrCat("\"", absl::CHexEscape(file.name), "\""));
  }
  return manifest;
}

}  // namespace cohort::head
