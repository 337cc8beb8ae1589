// The manifest of a backup: refused as damage or as of a newer format, or
// exactly what is written of it.

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/hash.h"
#include "common/status_util.h"
#include "head/archive/backup_manifest.h"
#include "tests/fuzz/fuzz.h"

namespace head = cohort::head;

namespace {

void Read(const std::string& text) {
  const auto manifest = head::ParseBackupManifest(text);
  if (!manifest.ok()) {
    COHORT_CHECK(absl::IsDataLoss(manifest.status()) ||
                 cohort::GetReason(manifest.status()) ==
                     "backup_from_the_future")
        << manifest.status();
    return;
  }
  COHORT_CHECK(head::ToText(*manifest) == text) << text;
}

// The checksum would stop nearly every mutation at the door: its hex digits,
// at the end of the text, made right.
std::string WithChecksum(std::string text) {
  constexpr size_t kHex = 64;
  if (text.size() < kHex + 1) return text;
  const size_t line = text.rfind('\n', text.size() - 2);
  const size_t end = line == std::string::npos ? 0 : line + 1;
  const std::string sum =
      absl::BytesToHexString(cohort::Sha256::Of(text.substr(0, end)).bytes());
  text.replace(text.size() - kHex - 1, kHex, sum);
  return text;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  head::BackupManifest manifest;
  manifest.cluster = *cohort::ClusterId::FromBytes(std::string(16, 'c'));
  manifest.generation = *cohort::GenerationId::FromBytes(std::string(16, 'g'));
  manifest.term = 3;
  manifest.schema = 2;
  manifest.at = absl::FromUnixSeconds(1'800'000'000);
  manifest.request_id = "r-1";
  manifest.files = {{"store/CURRENT", 16, cohort::Sha256::Of("x")},
                    {"credential", 32, cohort::Sha256::Of("y")}};
  manifest.missing_packages = {std::string(64, 'a')};
  return {head::ToText(manifest), head::ToText(head::BackupManifest())};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Read(text);
  Read(WithChecksum(text));
  return 0;
}
