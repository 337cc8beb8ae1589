#include "head/archive/restore.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "head/archive/testing/archive_fixture.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() {
    EXPECT_THAT(fixture_.Backup(backup()).status(), IsOk());
    fixture_.CloseStore();
  }

  std::string backup() const { return fixture_.path("backup"); }
  std::string target() const { return fixture_.path("new"); }

  absl::StatusOr<RestoreReport> Restore() {
    return RestoreBackup(backup(), target(), /*keys=*/"", "user/ada",
                         fixture_.executor(), random_);
  }

  static absl::StatusOr<Rows> RowsIn(const std::string& state_dir) {
    auto store = RocksdbStore::Open(
        {.path = state_dir + "/store", .access = StoreAccess::kInspect});
    if (!store.ok()) return store.status();
    return LoadRows(**store);
  }

  void ExpectNothingMade() {
    EXPECT_FALSE(fs::exists(target()));
    EXPECT_FALSE(fs::exists(target() + ".restoring"));
  }

  ArchiveFixture fixture_;
  SeededRandom random_{TestSeed()};
};

// RT-1, RT-2, RT-3.
TEST_F(RestoreTest, MakesAnotherGenerationWhoseAttemptsAreOrphans) {
  const auto report = Restore();
  COHORT_ASSERT_OK(report);
  EXPECT_EQ(report->cluster, FilledId<ClusterId>('c'));
  EXPECT_EQ(report->jobs, 2);
  EXPECT_EQ(report->orphans, 1);

  const auto rows = RowsIn(target());
  COHORT_ASSERT_OK(rows);
  EXPECT_EQ(IdOf<ClusterId>(rows->cluster->cluster_id()),
            FilledId<ClusterId>('c'));
  const auto generation = IdOf<GenerationId>(rows->cluster->generation());
  EXPECT_EQ(generation, report->generation);
  EXPECT_NE(generation, FilledId<GenerationId>('g'));
  EXPECT_GE(rows->cluster->term(), 65'536u);
  EXPECT_TRUE(rows->cluster->settling());
  ASSERT_EQ(rows->attempts.size(), 1u);
  EXPECT_EQ(rows->attempts[0].orphaned_since, fixture_.executor().Wall());
  EXPECT_EQ(rows->attempts[0].epoch, 1);
  for (const JobRecord& job : rows->jobs) {
    const bool has_ended = job.id == FilledId<JobId>('e');
    EXPECT_EQ(job.row.epoch(), has_ended ? 1 : 1'000'001);
    EXPECT_EQ(job.row.incarnations(), has_ended ? 1u : 1'000'001u);
  }
  EXPECT_THAT(ReadFile(target() + "/ca.key"), IsOkAndHolds("a key"));
  EXPECT_THAT(ReadFile(target() + "/credential"),
              IsOkAndHolds(std::string(32, 's')));
  EXPECT_TRUE(fs::exists(target() + "/packages/" + fixture_.package_hex()));
  EXPECT_FALSE(fs::exists(target() + "/BACKUP"));
  EXPECT_FALSE(fs::exists(target() + ".restoring"));
  auto store = RocksdbStore::Open(
      {.path = target() + "/store", .access = StoreAccess::kInspect});
  COHORT_ASSERT_OK(store);
  const auto events = LoadRecords<EventRecord>(**store);
  COHORT_ASSERT_OK(events);
  EXPECT_EQ(events->back().kind(), "store_restored");
  EXPECT_EQ(events->back().principal(), "user/ada");
  store->reset();
  // It opens to write, with a mark that fits.
  COHORT_EXPECT_OK(RocksdbStore::Open({.path = target() + "/store"}));
}

TEST_F(RestoreTest, AnEmptyDirectoryIsTaken) {
  fs::create_directory(target());
  COHORT_EXPECT_OK(Restore());
}

TEST_F(RestoreTest, TheBackupIsNotChanged) {
  const auto before = ReadTree(backup());
  COHORT_ASSERT_OK(Restore());
  EXPECT_EQ(ReadTree(backup()), before);
}

TEST_F(RestoreTest, AStoreThatIsThereIsNotTouched) {
  const auto before = ReadTree(fixture_.state_dir());
  for (const std::string& there :
       {fixture_.state_dir(), fixture_.state_dir() + "/credential", backup()}) {
    const auto refused = RestoreBackup(backup(), there, /*keys=*/"", "user/ada",
                                       fixture_.executor(), random_);
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument,
                                  AllOf(HasSubstr(there),
                                        HasSubstr("name a new directory"))));
    EXPECT_EQ(GetReason(refused.status()), "directory_exists");
  }
  EXPECT_EQ(ReadTree(fixture_.state_dir()), before);
}

TEST_F(RestoreTest, ALinkIsNoTargetWhereverItPoints) {
  fs::create_directory(fixture_.path("empty"));
  for (const char* to : {"empty", "nowhere"}) {
    const std::string link = fixture_.path("link");
    fs::create_directory_symlink(fixture_.path(to), link);
    for (const std::string& named : {link, link + "/"}) {
      EXPECT_THAT(
          RestoreBackup(backup(), named, /*keys=*/"", "user/ada",
                        fixture_.executor(), random_),
          StatusIs(absl::StatusCode::kInvalidArgument,
                   AllOf(HasSubstr("symbolic link to " + fixture_.path(to)),
                         HasSubstr("name a new directory"))));
    }
    EXPECT_TRUE(fs::is_symlink(link));
    fs::remove(link);
  }
  EXPECT_TRUE(fs::is_empty(fixture_.path("empty")));
  EXPECT_FALSE(fs::exists(fixture_.path("nowhere")));
}

TEST_F(RestoreTest, EmptyNamesAreRefused) {
  EXPECT_THAT(RestoreBackup(backup(), "", /*keys=*/"", "user/ada",
                            fixture_.executor(), random_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--state-dir is empty")));
  EXPECT_THAT(
      RestoreBackup("", target(), /*keys=*/"", "user/ada", fixture_.executor(),
                    random_),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("DIR is empty")));
  ExpectNothingMade();
}

TEST_F(RestoreTest, WhatIsNoBackupIsRefused) {
  for (const std::string& directory :
       {fixture_.state_dir(), fixture_.path("missing")}) {
    EXPECT_THAT(
        RestoreBackup(directory, target(), /*keys=*/"", "user/ada",
                      fixture_.executor(), random_),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(directory), HasSubstr("is not a backup"))));
  }
  ExpectNothingMade();
}

TEST_F(RestoreTest, TheBackupItselfIsNoTarget) {
  const auto before = ReadTree(backup());
  fs::create_directory_symlink(backup(), fixture_.path("link"));
  for (const std::string& inside :
       {backup(), backup() + "/new", backup() + "/packages/a/b",
        fixture_.path("link") + "/new"}) {
    SCOPED_TRACE(inside);
    EXPECT_THAT(
        RestoreBackup(backup(), inside, /*keys=*/"", "user/ada",
                      fixture_.executor(), random_),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(inside)));
    EXPECT_EQ(ReadTree(backup()), before);
  }
}

TEST_F(RestoreTest, NothingWithinAHeadsDirectoryIsATarget) {
  const std::string head = fixture_.path("head_of_another");
  COHORT_ASSERT_OK(RestoreBackup(backup(), head, /*keys=*/"", "user/ada",
                                 fixture_.executor(), random_));
  const auto before = ReadTree(head);
  for (const std::string& inside : {head + "/new", head + "/store/a/b"}) {
    EXPECT_THAT(
        RestoreBackup(backup(), inside, /*keys=*/"", "user/ada",
                      fixture_.executor(), random_),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(inside)));
    EXPECT_EQ(ReadTree(head), before);
  }
}

TEST_F(RestoreTest, ParentsThatWereMadeForNothingAreRemoved) {
  const std::string name = "store.mark";
  fs::remove(backup() + "/" + name);
  EXPECT_THAT(RestoreBackup(backup(), fixture_.path("a") + "/b/c", /*keys=*/"",
                            "user/ada", fixture_.executor(), random_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(name)));
  EXPECT_FALSE(fs::exists(fixture_.path("a")));
}

TEST_F(RestoreTest, ABackupFromTheFutureIsRefused) {
  BackupManifest manifest =
      *ParseBackupManifest(*ReadFile(backup() + "/BACKUP"));
  manifest.schema = kSchemaVersion + 1;
  COHORT_ASSERT_OK(
      WriteFileAtomically(backup() + "/BACKUP", ToText(manifest), 0600));
  EXPECT_THAT(Restore(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("from the future")));
  const std::string text = "cohort backup 2\nsomething new\n";
  COHORT_ASSERT_OK(WriteFileAtomically(
      backup() + "/BACKUP",
      absl::StrCat(text, "end ", Sha256::Of(text).ToHex(), "\n"), 0600));
  EXPECT_THAT(Restore(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr("BACKUP"),
                                        HasSubstr("from the future"))));
  ExpectNothingMade();
}

// Every file, cut short, made longer, missing, and with one bit flipped.
TEST_F(RestoreTest, ADamagedFileIsNamedAndNothingIsMade) {
  const uint64_t seed = TestSeed();
  const auto files = ReadTree(backup());
  for (const auto& [name, bytes] : files) {
    const std::string path = absl::StrCat(backup(), "/", name);
    for (int kind = 0; kind < 6; ++kind) {
      std::string damaged = bytes;
      if (kind == 0) damaged.resize(bytes.size() / 2);
      if (kind == 1) damaged.push_back('\0');
      if (kind >= 2 && kind < 5 && !bytes.empty()) {
        const size_t bit = random_.Below(8 * bytes.size());
        damaged[bit / 8] =
            static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      }
      if (damaged == bytes && kind != 5) continue;
      std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
      if (kind == 5) fs::remove(path);
      SCOPED_TRACE(absl::StrCat("seed ", seed, " ", name, " kind ", kind));

      const auto refused = Restore();
      const bool no_manifest = name == "BACKUP" && kind == 5;
      EXPECT_THAT(refused,
                  StatusIs(no_manifest ? absl::StatusCode::kInvalidArgument
                                       : absl::StatusCode::kDataLoss,
                           HasSubstr(name)));
      ExpectNothingMade();
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    }
  }
  COHORT_EXPECT_OK(Restore());
}

// A restore that was killed is done again.
TEST_F(RestoreTest, WhatAKilledRestoreLeftIsNotInTheWay) {
  fs::create_directories(target() + ".restoring/store");
  COHORT_ASSERT_OK(
      WriteFileAtomically(target() + ".restoring/store/junk.log", "x", 0600));
  COHORT_EXPECT_OK(Restore());
  EXPECT_FALSE(fs::exists(target() + "/store/junk.log"));
}

TEST_F(RestoreTest, TakesTheKeysOfTheHeadThatRan) {
  const std::string keys = fixture_.path("keys");
  COHORT_ASSERT_OK(MakeDirectories(keys, 0700));
  const auto restore = [&](const std::string& to) {
    return RestoreBackup(backup(), to, keys, "user/ada", fixture_.executor(),
                         random_);
  };
  EXPECT_THAT(restore(target()), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("--keys")));
  for (const char* const name : {"/credential", "/revoked"}) {
    COHORT_ASSERT_OK(WriteFileAtomically(keys + name, "later", 0600));
  }
  COHORT_ASSERT_OK(restore(target()));
  EXPECT_EQ(*ReadFile(target() + "/credential"), "later");
  EXPECT_EQ(*ReadFile(target() + "/revoked"), "later");
}

TEST_F(RestoreTest, ARestoreOfABackupOfARestoreIsYetAnotherGeneration) {
  const auto first = Restore();
  COHORT_ASSERT_OK(first);
  Rows rows = *RowsIn(target());
  const absl::Time since = rows.attempts[0].orphaned_since;
  (void)ChangeGeneration(rows, "user/ada", since + absl::Hours(1), random_);
  EXPECT_NE(IdOf<GenerationId>(rows.cluster->generation()), first->generation);
  EXPECT_GT(rows.cluster->term(), first->term);
  EXPECT_EQ(rows.attempts[0].orphaned_since, since);
}

// What a person has ended goes on ending: it is not asked again.
TEST(ChangeGenerationTest, WhatAPersonHasEndedIsNotAnOrphanAgain) {
  SeededRandom random(TestSeed());
  Rows rows;
  rows.cluster = NewCluster();
  AttemptRecord& ended = rows.attempts.emplace_back();
  ended.state = v1::ATTEMPT_STATE_ENDING;
  ended.cause = v1::ATTEMPT_CAUSE_ORPHAN;
  AttemptRecord& runs = rows.attempts.emplace_back();
  runs.state = v1::ATTEMPT_STATE_RUNNING;
  (void)ChangeGeneration(rows, "user/ada", absl::UnixEpoch(), random);
  EXPECT_FALSE(rows.attempts[0].orphaned());
  EXPECT_TRUE(rows.attempts[1].orphaned());
}

// Of two backups the older one may be restored last.
TEST(ChangeGenerationTest, ALaterRestoreHasAHigherTerm) {
  SeededRandom random(TestSeed());
  Rows newer;
  newer.cluster = NewCluster();
  newer.cluster->set_term(1000);
  Rows older = newer;
  older.cluster->set_term(1);
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  (void)ChangeGeneration(newer, "user/ada", now, random);
  (void)ChangeGeneration(older, "user/ada", now + absl::Minutes(1), random);
  EXPECT_GT(older.cluster->term(), newer.cluster->term());
}

// HD-1: a follower of the new generation has followed no earlier one.
TEST(ChangeGenerationTest, NoLifeOfBeforeIsOneOfTheNewGeneration) {
  SeededRandom random(TestSeed());
  Rows rows;
  rows.cluster = NewCluster();
  rows.cluster->add_lives()->set_nonce(7);
  (void)ChangeGeneration(rows, "user/ada", absl::UnixEpoch(), random);
  EXPECT_TRUE(rows.cluster->lives().empty());
}

// Nor do restarts of a head, or that a backup was of a restored store.
TEST(ChangeGenerationTest, OnlyTheTimeOfTheRestoreOrdersGenerations) {
  SeededRandom random(TestSeed());
  Rows backup;
  backup.cluster = NewCluster();
  backup.cluster->set_term(3);
  absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const auto restore = [&](Rows rows) {
    now += absl::Milliseconds(10);
    (void)ChangeGeneration(rows, "user/ada", now, random);
    return rows;
  };
  Rows first = restore(backup);
  first.cluster->set_term(first.cluster->term() +
                          1'000);  // it crashes in a loop
  const Rows second = restore(backup);
  EXPECT_GT(second.cluster->term(), first.cluster->term());
  const Rows of_restored = restore(first);
  EXPECT_GT(of_restored.cluster->term(), second.cluster->term());
  EXPECT_GT(restore(backup).cluster->term(), of_restored.cluster->term());
  now -= absl::Hours(1);  // on a machine whose clock is behind
  EXPECT_GT(restore(of_restored).cluster->term(), of_restored.cluster->term());
  EXPECT_LT(restore(backup).cluster->term(), uint64_t{1} << 53);
}

}  // namespace
}  // namespace cohort::head
