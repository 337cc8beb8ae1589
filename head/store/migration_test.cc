#include "head/store/migration.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "cohort/v1/storage.pb.h"
#include "common/hex_text.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "head/state/rows.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

Write Row(Table table, const char* key, const char* value) {
  return {table, HexToBytes(key), HexToBytes(value)};
}

// A store as a head of schema 1 wrote it: one row of each table, every field
// set.  Never changed.
Batch StoreOfSchema1() {
  return {
      Row(Table::kCluster, "636c7573746572",
          "75cf41aa08011210636363636363636363636363636363631a1067676767676767"
          "6767676767676767672003280c30053809"),
      Row(Table::kNodes, "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e",
          "cafe7eee0a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e12066e6f64652d31180220"
          "042a0831302e302e302e3132090a0343505510c0b80232090a0347505510a09c01"
          "32100a066d656d6f72791080808080c0b8023a160a054750552d6112036770751a"
          "04483130302050280142060a0161120162420a0a047261636b1202723142090a04"
          "7a6f6e6512017a4a160a0764656661756c741205616c6963651a027231200750c1"
          "02"),
      Row(Table::kJobs, "6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a",
          "e9869fab0a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a12160a0764656661756c74"
          "1205616c6963651a02723120071a7e0a056d6e69737412072e2f747261696e1208"
          "2d2d65706f6368731201331a060a01411201311a060a014212013220042a080a03"
          "43505510904e2a080a0347505510882730043a082f726573756c747340ffffffff"
          "ffffffffff01480252206868686868686868686868686868686868686868686868"
          "68686868686868686820082803320762656361757365380240014801520b080310"
          "09180122036f6f6d58036001680270037a0c7b226c6f7373223a302e357d80010b"
          "8a01150a0f2f726573756c74732f737465702d351005180692010f2f726573756c"
          "74732f737465702d319a010954726163656261636ba00106"),
      Row(Table::kAttempts, "61616161616161616161616161616161",
          "391218d00a106161616161616161616161616161616112106a6a6a6a6a6a6a6a6a"
          "6a6a6a6a6a6a6a180220062803325a0a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e"
          "12080a0343505510904e12080a034750551088271a0a0a054750552d6110882722"
          "1c080210011a054750552d612004284d320b08031009180122036f6f6d22022001"
          "280430bce6013a0831302e302e302e3140bce6014802520672616e6b20325a160a"
          "0764656661756c741205616c6963651a0272312007620b08031009180122036f6f"
          "6d6802"),
      Row(Table::kRequests, "00000005616c6963657231",
          "258b246a0a05616c696365120272311a2062626262626262626262626262626262"
          "626262626262626262626262626262622206616e737765722804"),
      Row(Table::kPackages,
          "6868686868686868686868686868686868686868686868686868686868686868",
          "61a0e11c0a20686868686868686868686868686868686868686868686868686868"
          "686868686810e80718052006"),
      Row(Table::kEvents, "0000000000000102",
          "42be322108820210071a0d6a6f625f7375626d697474656422160a076465666175"
          "6c741205616c6963651a02723120072a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a"
          "3210616161616161616161616161616161613a106e6e6e6e6e6e6e6e6e6e6e6e6e"
          "6e6e6e42056d6e697374"),
  };
}

// A store as a head of schema 2 wrote it, as above.
Batch StoreOfSchema2() {
  return {
      Row(Table::kCluster, "636c7573746572",
          "bf742f9b08021210636363636363636363636363636363631a1067676767676767"
          "6767676767676767672003280c30053809a00101aa011061616161616161616161"
          "616161616161c00101"),
      Row(Table::kNodes, "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e",
          "c83b041e0a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e12066e6f64652d31180220"
          "042a0831302e302e302e3132090a0343505510c0b80232090a0347505510a09c01"
          "32100a066d656d6f72791080808080c0b8023a160a054750552d6112036770751a"
          "04483130302050280142060a0161120162420a0a047261636b1202723142090a04"
          "7a6f6e6512017a4a160a0764656661756c741205616c6963651a027231200750c1"
          "025a0b0a0367707512046f6e6c795a060a0462617265620e0a0366616e1203626f"
          "62180820096a05302e312e30700a"),
      Row(Table::kJobs, "6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a",
          "e8ecb99c0a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a12160a0764656661756c74"
          "1205616c6963651a02723120071a9f020a056d6e69737412072e2f747261696e12"
          "082d2d65706f6368731201331a060a01411201311a060a014212013220042a080a"
          "0343505510904e2a080a0347505510882730043a082f726573756c747340ffffff"
          "ffffffffffff014802522068686868686868686868686868686868686868686868"
          "686868686868686868685a0e0a047465616d1206766973696f6e60fbffffffffff"
          "ffffff0168017080c6868f0178c08db701800190a10f8a010d7a6f6e6520696e20"
          "28612c622992010b0a0367707512046f6e6c799201080a046261726518019a0104"
          "48313030a201047261636ba80101b201140a106b6b6b6b6b6b6b6b6b6b6b6b6b6b"
          "6b6b1002b201180a146c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c000000071001ba01"
          "05302d39253220082803320762656361757365380240014801520b080310091801"
          "22036f6f6d58036001680270037a0c7b226c6f7373223a302e357d80010b8a0115"
          "0a0f2f726573756c74732f737465702d351005180692010f2f726573756c74732f"
          "737465702d319a010954726163656261636ba00106aa010408011001aa01040802"
          "1001b00101b801c09fab03c00104ca01186e6f64652d3120776173206f7574206f"
          "66206d656d6f7279ca011172616e6b203320776173206b696c6c6564d20107636c"
          "7573746572da010408021001da010408061002"),
      Row(Table::kAttempts, "61616161616161616161616161616161",
          "4248a7e90a106161616161616161616161616161616112106a6a6a6a6a6a6a6a6a"
          "6a6a6a6a6a6a6a180220062803325f0a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e"
          "12080a0343505510904e12080a034750551088271a0a0a054750552d6110882722"
          "1c080210011a054750552d612004284d320b08031009180122036f6f6d22022001"
          "280430bce60138809bee023a0831302e302e302e3140bce6014802520672616e6b"
          "20325a160a0764656661756c741205616c6963651a0272312007620b0803100918"
          "0122036f6f6d6802720672616e6b2032a00108"),
      Row(Table::kArrays, "6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a",
          "18f522160a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a12160a0764656661756c74"
          "1205616c6963651a02723120071a9f020a056d6e69737412072e2f747261696e12"
          "082d2d65706f6368731201331a060a01411201311a060a014212013220042a080a"
          "0343505510904e2a080a0347505510882730043a082f726573756c747340ffffff"
          "ffffffffffff014802522068686868686868686868686868686868686868686868"
          "686868686868686868685a0e0a047465616d1206766973696f6e60fbffffffffff"
          "ffffff0168017080c6868f0178c08db701800190a10f8a010d7a6f6e6520696e20"
          "28612c622992010b0a0367707512046f6e6c799201080a046261726518019a0104"
          "48313030a201047261636ba80101b201140a106b6b6b6b6b6b6b6b6b6b6b6b6b6b"
          "6b6b1002b201180a146c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6c000000071001ba01"
          "05302d3925322001"),
      Row(Table::kRequests, "00000005616c6963657231",
          "258b246a0a05616c696365120272311a2062626262626262626262626262626262"
          "626262626262626262626262626262622206616e737765722804"),
      Row(Table::kPackages,
          "6868686868686868686868686868686868686868686868686868686868686868",
          "61a0e11c0a20686868686868686868686868686868686868686868686868686868"
          "686868686810e80718052006"),
      Row(Table::kEvents, "0000000000000102",
          "6949ec2c08820210071a0d6a6f625f7375626d697474656422160a076465666175"
          "6c741205616c6963651a02723120072a106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a"
          "3210616161616161616161616161616161613a106e6e6e6e6e6e6e6e6e6e6e6e6e"
          "6e6e6e42056d6e6973744a106f6f6f6f6f6f6f6f6f6f6f6f6f6f6f6f4a10707070"
          "70707070707070707070707070"),
      Row(Table::kWaitReasons, "0000000000000103",
          "5fe07fd2088302121073737373737373737373737373737373180820092a123120"
          "78207b47505520387d20285041434b2932076e6f20726f6f6d3801400348015002"
          "5801621f0a087265736f7572636512034750551802200328c0b80230f0a2043a02"
          "6e316a1d0a0347505512106a6a6a6a6a6a6a6a6a6a6a6a6a6a6a6a18d086032001"),
  };
}

void ExpectMigrated(Store& store) {
  const absl::StatusOr<Rows> rows = LoadRows(store);
  COHORT_ASSERT_OK(rows);
  EXPECT_EQ(rows->cluster->term, 3u);
  EXPECT_EQ(rows->cluster->next_event, 12u);
  ASSERT_EQ(rows->jobs.size(), 1u);
  EXPECT_EQ(rows->jobs[0].spec->name, "mnist");
  EXPECT_EQ(rows->jobs[0].stderr_tail, "Traceback");
  // What was a constant of the program is a field now.
  EXPECT_EQ(rows->jobs[0].spec->grace, absl::Seconds(10));
  EXPECT_EQ(rows->jobs[0].spec->retry_delay, absl::Seconds(1));
  EXPECT_EQ(rows->jobs[0].spec->time_limit, absl::InfiniteDuration());
  ASSERT_EQ(rows->attempts.size(), 1u);
  EXPECT_FALSE(rows->attempts[0].unclaimed());
  EXPECT_EQ(rows->nodes.size(), 1u);
  EXPECT_EQ(rows->requests.size(), 1u);
  EXPECT_EQ(rows->packages.size(), 1u);
  EXPECT_EQ(LoadRecords<EventRecord>(store)->size(), 1u);
  const auto cluster = store.LoadAll(Table::kCluster);
  EXPECT_EQ(ReadClusterStamp(cluster->front().second)->schema_version,
            kSchemaVersion);
}

// As a head of schema 3 wrote it: that a node is unfit was new, and values of
// enums.
Batch StoreOfSchema3() {
  Batch batch = StoreOfSchema2();
  batch[0] =
      Row(Table::kCluster, "636c7573746572",
          "b1ee53e108031210636363636363636363636363636363631a1067676767676767"
          "6767676767676767672003280c30053809a00101aa011061616161616161616161"
          "616161616161c00101");
  batch[1] =
      Row(Table::kNodes, "6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e",
          "53a2c7550a106e6e6e6e6e6e6e6e6e6e6e6e6e6e6e6e12066e6f64652d31180220"
          "042a0831302e302e302e3132090a0343505510c0b80232090a0347505510a09c01"
          "32100a066d656d6f72791080808080c0b8023a160a054750552d6112036770751a"
          "04483130302050280142060a0161120162420a0a047261636b1202723142090a04"
          "7a6f6e6512017a4a160a0764656661756c741205616c6963651a027231200750c1"
          "025a0b0a0367707512046f6e6c795a060a0462617265620e0a0366616e1203626f"
          "62180820096a05302e312e30700a7a076e6f20726f6f6d");
  return batch;
}

TEST(MigrationTest, AStoreOfSchema1BecomesOneOfThis) {
  MemoryDisk disk;
  MemoryStore store(disk);
  COHORT_ASSERT_OK(store.Append(0, StoreOfSchema1()));
  COHORT_ASSERT_OK(MigrateStore(store));
  ExpectMigrated(store);
}

TEST(MigrationTest, AStoreOfSchema2BecomesOneOfThis) {
  MemoryDisk disk;
  MemoryStore store(disk);
  COHORT_ASSERT_OK(store.Append(0, StoreOfSchema2()));
  COHORT_ASSERT_OK(MigrateStore(store));
  const absl::StatusOr<Rows> rows = LoadRows(store);
  COHORT_ASSERT_OK(rows);
  ASSERT_EQ(rows->nodes.size(), 1u);
  EXPECT_EQ(rows->nodes[0].build, "0.1.0");
  EXPECT_EQ(rows->nodes[0].unfit, "");
  ASSERT_EQ(rows->jobs.size(), 1u);
  EXPECT_EQ(rows->jobs[0].spec->time_limit, absl::Minutes(5));
  EXPECT_EQ(rows->attempts.size(), 1u);
  EXPECT_EQ(rows->arrays.size(), 1u);
  EXPECT_EQ(rows->wait_reasons.size(), 1u);
  EXPECT_EQ(LoadRecords<EventRecord>(store)->size(), 1u);
  const auto cluster = store.LoadAll(Table::kCluster);
  EXPECT_EQ(ReadClusterStamp(cluster->front().second)->schema_version,
            kSchemaVersion);
}

TEST(MigrationTest, AStoreOfSchema3BecomesOneOfThis) {
  MemoryDisk disk;
  MemoryStore store(disk);
  COHORT_ASSERT_OK(store.Append(0, StoreOfSchema3()));
  COHORT_ASSERT_OK(MigrateStore(store));
  const absl::StatusOr<Rows> rows = LoadRows(store);
  COHORT_ASSERT_OK(rows);
  ASSERT_EQ(rows->nodes.size(), 1u);
  EXPECT_EQ(rows->nodes[0].unfit, "no room");
  ASSERT_EQ(rows->jobs.size(), 1u);
  EXPECT_FALSE(rows->jobs[0].spec->preflight);
  EXPECT_FALSE(rows->jobs[0].preflight.has_value());
  const auto cluster = store.LoadAll(Table::kCluster);
  EXPECT_EQ(ReadClusterStamp(cluster->front().second)->schema_version,
            kSchemaVersion);
}

TEST(MigrationTest, AStoreOfSchema4BecomesOneOfThis) {
  Batch batch = StoreOfSchema3();
  batch[0] =
      Row(Table::kCluster, "636c7573746572",
          "9829268708041210636363636363636363636363636363631a1067676767676767"
          "6767676767676767672003280c30053809a00101aa011061616161616161616161"
          "616161616161c00101");
  MemoryDisk disk;
  MemoryStore store(disk);
  COHORT_ASSERT_OK(store.Append(0, batch));
  COHORT_ASSERT_OK(MigrateStore(store));
  const absl::StatusOr<Rows> rows = LoadRows(store);
  COHORT_ASSERT_OK(rows);
  ASSERT_EQ(rows->attempts.size(), 1u);
  EXPECT_EQ(rows->attempts[0].gpu_rungs, 0u);
  const auto cluster = store.LoadAll(Table::kCluster);
  EXPECT_EQ(ReadClusterStamp(cluster->front().second)->schema_version,
            kSchemaVersion);
}

TEST(MigrationTest, OnDiskToo) {
  TempDir dir;
  auto store = *RocksdbStore::Open({.path = dir.File("store")});
  COHORT_ASSERT_OK(store->Append(0, StoreOfSchema1()));
  store.reset();
  store = *RocksdbStore::Open({.path = dir.File("store")});
  COHORT_ASSERT_OK(MigrateStore(*store));
  store.reset();
  store = *RocksdbStore::Open(
      {.path = dir.File("store"), .access = StoreAccess::kInspect});
  ExpectMigrated(*store);
}

TEST(MigrationTest, AStoreThatMayOnlyBeReadIsMigratedInMemory) {
  MemoryDisk disk;
  MemoryStore store(disk);
  COHORT_ASSERT_OK(store.Append(0, StoreOfSchema1()));
  const int appends = disk.appends();
  const auto copy = MigratedCopy(store);
  COHORT_ASSERT_OK(copy);
  ExpectMigrated(**copy);
  EXPECT_EQ(disk.appends(), appends);
}

TEST(MigrationTest, NothingIsWrittenWhereNothingIsToBeDone) {
  MemoryDisk disk;
  MemoryStore store(disk);
  COHORT_EXPECT_OK(MigrateStore(store));
  EXPECT_EQ(disk.appends(), 0);
  COHORT_ASSERT_OK(store.Append(0, {ToWrite(ClusterRecord())}));
  COHORT_EXPECT_OK(MigrateStore(store));
  EXPECT_EQ(disk.appends(), 1);
}

// ---- steps of the tests' own: each puts one letter behind a text ----

namespace pb = ::cohort::storage::v1;

absl::StatusOr<std::optional<std::string>> Mark(Table table,
                                                absl::string_view message,
                                                const char* letter) {
  if (table == Table::kEvents) {
    pb::EventRow row;
    row.ParseFromArray(message.data(), static_cast<int>(message.size()));
    row.set_text(row.text() + letter);
    return row.SerializeAsString();
  }
  if (table == Table::kPackages) {
    pb::PackageRow row;
    row.ParseFromArray(message.data(), static_cast<int>(message.size()));
    row.set_size_bytes(row.size_bytes() + 1);
    return row.SerializeAsString();
  }
  return std::nullopt;
}

constexpr MigrationStep kTwoSteps[] = {
    {.from = kSchemaVersion - 2,
     .rewrite =
         [](Table table, absl::string_view message) {
           return Mark(table, message, "a");
         }},
    {.from = kSchemaVersion - 1,
     .rewrite =
         [](Table table, absl::string_view message) {
           return Mark(table, message, "b");
         }},
};

void Fill(MemoryDisk& disk, uint32_t schema) {
  pb::ClusterRow cluster;
  cluster.set_schema_version(schema);
  cluster.set_term(5);
  Batch batch = {{Table::kCluster, ClusterKey(),
                  SealRow(ClusterKey(), cluster.SerializeAsString())}};
  for (uint64_t n = 1; n <= 20; ++n) {
    EventRecord event;
    event.number = n;
    batch.push_back(ToWrite(event));
    batch.push_back(
        ToWrite(PackageRecord{.hash = absl::StrCat("h", n), .size_bytes = 0}));
  }
  MemoryStore store(disk);
  COHORT_ASSERT_OK(store.Append(0, batch));
}

void ExpectEachRowOnce(MemoryDisk& disk) {
  MemoryStore store(disk);
  std::vector<std::string> texts;
  const auto events = LoadRecords<EventRecord>(store);
  COHORT_ASSERT_OK(events);
  for (const EventRecord& event : *events) texts.push_back(event.text);
  EXPECT_EQ(texts.size(), 20u);
  EXPECT_THAT(texts, Each("ab"));
  const auto packages = LoadRecords<PackageRecord>(store);
  COHORT_ASSERT_OK(packages);
  for (const PackageRecord& package : *packages) {
    EXPECT_EQ(package.size_bytes, 2);
  }
}

// MG-1: killed at any append, which landed or did not.
TEST(MigrationTest, EachRowIsRewrittenOnceWhereverItIsKilled) {
  int kills = 0;
  for (const AppendFault fault :
       {AppendFault::kLanded, AppendFault::kNotLanded}) {
    for (int successes = 0;; ++successes) {
      MemoryDisk disk;
      Fill(disk, kSchemaVersion - 2);
      disk.FailAfter(successes, fault);
      absl::Status done = absl::UnknownError("");
      for (int start = 0; start < 2 && !done.ok(); ++start) {
        MemoryStore store(disk);
        done = MigrateStore(store, kTwoSteps, /*batch_bytes=*/64);
      }
      COHORT_ASSERT_OK(done);
      ExpectEachRowOnce(disk);
      if (disk.faults_fired() == 0) break;
      ++kills;
    }
  }
  EXPECT_GT(kills, 40);
}

// MG-2.
TEST(MigrationTest, AnOlderProgramRefusesAHalfMigratedStore) {
  MemoryDisk disk;
  Fill(disk, kSchemaVersion - 1);
  disk.FailAfter(1, AppendFault::kNotLanded);
  MemoryStore store(disk);
  EXPECT_FALSE(MigrateStore(store, std::span(kTwoSteps).last(1), 64).ok());
  MemoryStore again(disk);
  const auto rows = again.LoadAll(Table::kCluster);
  EXPECT_EQ(ReadClusterStamp(rows->front().second)->schema_version,
            kSchemaVersion);
  EXPECT_THAT(MigrateStore(again, std::span(kTwoSteps).first(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(MigrationTest, ASchemaOutOfReachNamesBothAndTheFix) {
  MemoryDisk disk;
  Fill(disk, kSchemaVersion + 1);
  MemoryStore store(disk);
  const absl::Status refused = MigrateStore(store);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(absl::StrCat(kSchemaVersion + 1)),
                             HasSubstr(absl::StrCat("to ", kSchemaVersion)))));
  EXPECT_EQ(GetReason(refused), "schema_out_of_reach");
}

TEST(MigrationTest, ADamagedRowStopsIt) {
  MemoryDisk disk;
  Fill(disk, kSchemaVersion - 2);
  disk.Corrupt(Table::kEvents, EventKey(3), "junk");
  MemoryStore store(disk);
  EXPECT_THAT(MigrateStore(store, kTwoSteps),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("events")));
}

}  // namespace
}  // namespace cohort::head
