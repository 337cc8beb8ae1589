#include "head/archive/backup_manifest.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

BackupManifest SomeManifest() {
  BackupManifest manifest;
  manifest.cluster = *ClusterId::FromBytes(std::string(16, 'c'));
  manifest.generation = *GenerationId::FromBytes(std::string(16, 'g'));
  manifest.term = 7;
  manifest.schema = 2;
  manifest.at = absl::FromUnixMicros(1'700'000'000'000'001);
  manifest.request_id = "r\n1";
  manifest.files = {
      {.name = "store/a b", .size_bytes = 3, .hash = Sha256::Of("abc")},
      {.name = "credential", .size_bytes = 0, .hash = Sha256::Of("")}};
  manifest.missing_packages = {"ff00"};
  return manifest;
}

TEST(BackupManifestTest, ComesBackAsItWas) {
  const BackupManifest manifest = SomeManifest();
  EXPECT_THAT(ParseBackupManifest(ToText(manifest)), IsOkAndHolds(manifest));
  EXPECT_EQ(manifest.bytes(), 3);
}

TEST(BackupManifestTest, EveryFlippedBitIsDataLoss) {
  const std::string text = ToText(SomeManifest());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_THAT(ParseBackupManifest(damaged),
                StatusIs(absl::StatusCode::kDataLoss))
        << "bit " << bit;
  }
}

TEST(BackupManifestTest, ATruncatedOneIsDataLoss) {
  const std::string text = ToText(SomeManifest());
  for (size_t size = 0; size < text.size(); ++size) {
    ASSERT_THAT(ParseBackupManifest(text.substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss))
        << "size " << size;
  }
}

TEST(BackupManifestTest, TellsANewerFormatFromDamage) {
  const std::string text = ToText(SomeManifest());
  const size_t rest = text.find('\n');
  const size_t end = text.rfind("end ");
  for (const auto& [format, code] : std::map<std::string, absl::StatusCode>{
           {"2", absl::StatusCode::kFailedPrecondition},
           {"0", absl::StatusCode::kDataLoss},
           {"x", absl::StatusCode::kDataLoss},
           {"", absl::StatusCode::kDataLoss}}) {
    const std::string body =
        absl::StrCat("cohort backup ", format, text.substr(rest, end - rest));
    EXPECT_THAT(ParseBackupManifest(
                    absl::StrCat(body, "end ", Sha256::Of(body).ToHex(), "\n")),
                StatusIs(code))
        << format;
  }
}

// Whatever program wrote it, a restore writes nowhere but below its own
// directory. Under a right checksum: what no backup writes, found by fuzzing.
TEST(BackupManifestTest, WhatIsNotWrittenSoIsDataLoss) {
  const std::string text = ToText(SomeManifest());
  const size_t last = text.rfind('\n', text.size() - 2) + 1;
  const size_t sum = text.size() - 1 - 2 * Digest::kBytes;
  const std::string body = text.substr(0, last);
  const std::string label = text.substr(last, sum - last);
  for (const std::string& other :
       {body + "term 3\n", body + "\n", body + "cluster 00\n"}) {
    EXPECT_THAT(ParseBackupManifest(absl::StrCat(
                    other, label, Sha256::Of(other).ToHex(), "\n")),
                StatusIs(absl::StatusCode::kDataLoss))
        << other;
  }
}

TEST(BackupManifestTest, NamesThatLeaveTheDirectoryAreRefused) {
  for (const char* name :
       {"/etc/passwd", "../x", "store/../../x", "a//b", ""}) {
    BackupManifest manifest = SomeManifest();
    manifest.files[0].name = name;
    EXPECT_THAT(ParseBackupManifest(ToText(manifest)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("list")))
        << name;
  }
}

}  // namespace
}  // namespace cohort::head
