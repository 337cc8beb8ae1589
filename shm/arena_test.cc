#include "shm/arena.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/hex_text.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/barrier.h"
#include "shm/futex.h"

namespace cohort::shm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

class ArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<Arena> Create(int local_world) {
    auto arena = Arena::Create(
        dir_.path(),
        {.attempt = "job-7/2", .epoch = 3, .local_world = local_world});
    EXPECT_THAT(arena, IsOk());
    return *std::move(arena);
  }
  std::unique_ptr<ArenaPlace> Claim(int local_rank) {
    auto place = ArenaPlace::Claim(dir_.path(), local_rank);
    EXPECT_THAT(place, IsOk());
    return *std::move(place);
  }

  TempDir dir_;
};

// The layout that other builds rely on: change it only with a new version.
TEST_F(ArenaTest, ControlHeaderHasTheseBytes) {
  Create(2)->Revoke(2);
  std::ifstream file(dir_.File("arena"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(bytes.size(), 4096 + 2 * 143360u);
  bytes.resize(256);
  const std::string expected =
      absl::StrCat(HexToBytes("434f484f5254534d"
                              "01000000"
                              "01000000"
                              "0070040000000000"),
                   std::string(40, '\0'),             // header
                   "job-7/2", std::string(57, '\0'),  // attempt
                   HexToBytes("0300000000000000"      // epoch
                              "02000000"              // local world
                              "00300200"),            // slot bytes
                   std::string(48, '\0'),             //
                   HexToBytes("0200000000000000"),    // revoked
                   std::string(56, '\0'));
  EXPECT_EQ(absl::BytesToHexString(bytes), absl::BytesToHexString(expected));
}

TEST_F(ArenaTest, OpensWithWhatItWasCreatedWith) {
  Create(4);
  auto arena = Arena::Open(dir_.path());
  COHORT_ASSERT_OK(arena);
  EXPECT_EQ((*arena)->attempt(), "job-7/2");
  EXPECT_EQ((*arena)->epoch(), 3u);
  EXPECT_EQ((*arena)->local_world(), 4);
  EXPECT_EQ((*arena)->revoked_epoch(), 0u);
  EXPECT_EQ((*arena)->pid(3), 0);
}

TEST_F(ArenaTest, RefusesBadOptions) {
  EXPECT_THAT(Arena::Create(dir_.path(), {.attempt = "a", .local_world = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Arena::Create(dir_.path(), {.attempt = "a", .local_world = 65}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("64")));
  EXPECT_THAT(Arena::Create(dir_.path(), {.attempt = ""}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Arena::Create(dir_.path(), {.attempt = std::string(64, 'a')}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ArenaTest, RefusesADamagedHeader) {
  Create(1);
  std::fstream file(dir_.File("arena"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(136);  // local world
  file.write("\x09", 1);
  file.close();
  EXPECT_THAT(Arena::Open(dir_.path()), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(ArenaTest, ShowsMetricsToTheDaemon) {
  const auto arena = Create(2);
  const auto place = Claim(1);
  COHORT_ASSERT_OK(place->metrics().Publish("{\"loss\": 0.5}"));
  EXPECT_EQ(arena->metrics(1).ReadAfter(0)->payload, "{\"loss\": 0.5}");
  EXPECT_EQ(arena->pid(1), getpid());
}

// AR-1.
TEST_F(ArenaTest, GivesAPlaceToOneHolderAtATime) {
  const auto arena = Create(2);
  auto place = Claim(0);
  EXPECT_TRUE(arena->IsHeld(0));
  EXPECT_FALSE(arena->IsHeld(1));
  EXPECT_THAT(ArenaPlace::Claim(dir_.path(), 0),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr(absl::StrCat(getpid()))));
  place.reset();
  EXPECT_FALSE(arena->IsHeld(0));
  COHORT_EXPECT_OK(ArenaPlace::Claim(dir_.path(), 0));
}

// AR-1: however the process ends.
TEST_F(ArenaTest, TakesThePlaceFromAKilledProcess) {
  const auto arena = Create(1);
  const pid_t child = fork();
  if (child == 0) {
    const auto place = ArenaPlace::Claim(dir_.path(), 0);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(arena->pid(0), child);
  EXPECT_FALSE(arena->IsHeld(0));
  COHORT_EXPECT_OK(ArenaPlace::Claim(dir_.path(), 0));
}

TEST_F(ArenaTest, RefusesAPlaceOutsideTheWorld) {
  Create(2);
  EXPECT_THAT(ArenaPlace::Claim(dir_.path(), 2),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ArenaPlace::Claim(dir_.path(), -1),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ArenaTest, LetsAPeerReachAllocatedMemory) {
  Create(2);
  const auto owner = Claim(0);
  const auto peer = Claim(1);
  COHORT_ASSERT_OK(owner->Allocate(100));
  auto memory = owner->Allocate(3'000'000);  // does not fit the first region
  COHORT_ASSERT_OK(memory);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 64, 0u);
  (*memory)[2'999'999] = std::byte{9};

  const auto location = owner->Locate(memory->data() + 64, 2'999'936);
  ASSERT_TRUE(location);
  auto view = peer->MapPeer(0, *location, 2'999'936);
  COHORT_ASSERT_OK(view);
  EXPECT_EQ((*view)[2'999'935], std::byte{9});
}

TEST_F(ArenaTest, DoesNotLocateForeignMemory) {
  Create(1);
  const auto place = Claim(0);
  auto memory = place->Allocate(1000);
  COHORT_ASSERT_OK(memory);
  std::string foreign(10, 'x');
  EXPECT_FALSE(place->Locate(foreign.data(), 10));
  EXPECT_FALSE(place->Locate(memory->data(), 2 << 20));  // past its end
}

TEST_F(ArenaTest, RefusesAPeersRangeThatIsNotThere) {
  Create(2);
  const auto owner = Claim(0);
  const auto peer = Claim(1);
  COHORT_ASSERT_OK(owner->Allocate(100));
  EXPECT_THAT(peer->MapPeer(0, {.region = 0, .offset = 1 << 20}, 1),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(peer->MapPeer(0, {.region = 0, .offset = ~uint64_t{0}}, 1),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(peer->MapPeer(0, {.region = 1}, 1),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(peer->MapPeer(0, {.region = 64}, 1),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(ArenaTest, AllocatesPastTheRegionsOfADeadPredecessor) {
  Create(1);
  auto place = Claim(0);
  auto old_memory = place->Allocate(10);
  COHORT_ASSERT_OK(old_memory);
  (*old_memory)[0] = std::byte{5};
  place.reset();
  place = Claim(0);
  auto memory = place->Allocate(10);
  COHORT_ASSERT_OK(memory);
  EXPECT_EQ((*memory)[0], std::byte{0});
  EXPECT_EQ(place->Locate(memory->data(), 10)->region, 1u);
}

TEST_F(ArenaTest, AllocatesOverWhatAPredecessorLeftHalfMade) {
  Create(1);
  std::ofstream(dir_.File("rank-0.0")) << "half";
  COHORT_EXPECT_OK(Claim(0)->Allocate(10));
}

TEST_F(ArenaTest, SaysWhenTheRegionsAreUsedUp) {
  Create(1);
  const auto place = Claim(0);
  for (uint32_t i = 0; i < kRegionsMax; ++i) {
    COHORT_ASSERT_OK(place->Allocate(size_t{1} << 20));
  }
  EXPECT_THAT(
      place->Allocate(size_t{1} << 20),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("64 regions")));
}

// BR-1.
TEST_F(ArenaTest, BarrierHoldsEveryRankUntilTheLastArrives) {
  constexpr int kWorld = 3;
  constexpr int kRounds = 500;
  const auto arena = Create(kWorld);
  std::atomic<int> arrived{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto place = Claim(rank);
      Barrier barrier(*place, /*epoch=*/3);
      for (int round = 1; round <= kRounds; ++round) {
        arrived.fetch_add(1);
        barrier.Arrive();
        ASSERT_THAT(barrier.Wait(After(kLong)), IsOk());
        ASSERT_GE(arrived.load(), round * kWorld);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// BR-2.
TEST_F(ArenaTest, BarrierNamesTheMissingAtItsDeadline) {
  Create(3);
  const auto place = Claim(1);
  Barrier barrier(*place, 3);
  barrier.Arrive();
  EXPECT_THAT(barrier.Wait(After(absl::Milliseconds(1))),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(barrier.Missing(), ElementsAre(0, 2));
}

// BR-2.
TEST_F(ArenaTest, BarrierEndsWhenTheEpochIsRevoked) {
  const auto arena = Create(2);
  const auto place = Claim(0);
  std::thread daemon([&] { arena->Revoke(3); });
  Barrier barrier(*place, 3);
  barrier.Arrive();
  EXPECT_THAT(barrier.Wait(After(kLong)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 3")));
  daemon.join();
}

// BR-2.
TEST_F(ArenaTest, BarrierNoticesThatAMissingProcessDied) {
  const auto arena = Create(2);
  const pid_t child = fork();
  if (child == 0) {
    const auto place = ArenaPlace::Claim(dir_.path(), 1);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto place = Claim(0);
  Barrier barrier(*place, 3);
  barrier.Arrive();
  EXPECT_THAT(barrier.Wait(After(kLong)),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr(absl::StrCat("local rank 1 (pid ", child))));
  EXPECT_EQ(arena->revoked_epoch(), 3u);
}

TEST_F(ArenaTest, TellsThatItsFileWasCut) {
  const auto arena = Create(2);
  EXPECT_TRUE(arena->IsWhole());
  ASSERT_EQ(truncate((arena->directory() + "/arena").c_str(), 100), 0);
  EXPECT_FALSE(arena->IsWhole());
}

TEST_F(ArenaTest, BarrierCountsAnewInALaterEpoch) {
  const auto arena = Create(2);
  const auto first = Claim(0);
  const auto second = Claim(1);
  Barrier ahead(*first, 3);
  ahead.Arrive();
  ahead.Arrive();
  arena->Revoke(3);
  Barrier left(*first, 4);
  Barrier right(*second, 4);
  left.Arrive();
  EXPECT_THAT(left.Missing(), ElementsAre(1));
  right.Arrive();
  COHORT_EXPECT_OK(left.Wait(After(kLong)));
  COHORT_EXPECT_OK(right.Wait(After(kLong)));
}

}  // namespace
}  // namespace cohort::shm
