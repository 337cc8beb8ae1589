#include "trainer/comm/nodes_comm.h"

#include <cstdint>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/comm/packed_addresses.h"
#include "trainer/comm/testing/ranks.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr uint64_t kEpoch = 1;

// Four ranks on two nodes.
class NodesCommTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int node = 0; node < 2; ++node) {
      ASSERT_THAT(shm::Arena::Create(
                      dirs_[node].path(),
                      {.attempt = "test", .epoch = kEpoch, .local_world = 2}),
                  IsOk());
    }
  }

  // `seats` say who is where in the gang, not in the arenas.
  absl::StatusOr<NodesComm> Join(int rank, const std::vector<Seat>& seats) {
    auto place = shm::ArenaPlace::Claim(dirs_[rank / 2].path(), rank % 2);
    if (!place.ok()) return place.status();
    places_[rank] = *std::move(place);
    Exchange exchange = exchange_.For(rank);
    return ConnectNodes({.rank = rank, .world = 4, .epoch = kEpoch},
                        seats[rank], *places_[rank], exchange);
  }

  const std::vector<Seat> seats_ = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  MemoryExchange exchange_{4};
  TempDir dirs_[2];
  std::unique_ptr<shm::ArenaPlace> places_[4];
};

TEST_F(NodesCommTest, SaysWhichCommunicatorItChoseAndWhy) {
  RunRanks(4, [&](int rank) {
    const auto joined = Join(rank, seats_);
    ASSERT_THAT(joined, IsOk());
    EXPECT_EQ(joined->description,
              "shared memory in nodes, Gloo between them (2 lanes): 4 ranks on "
              "2 nodes");
    EXPECT_THAT(joined->comm->Barrier(kLong), IsOk());
  });
}

TEST_F(NodesCommTest, IsFlatWhereNodesHaveOneRankEach) {
  RunRanks(4, [&](int rank) {
    const auto joined = Join(rank, {{0, 0}, {1, 0}, {2, 0}, {3, 0}});
    ASSERT_THAT(joined, IsOk());
    EXPECT_EQ(joined->description, "Gloo: each node has one rank");
    EXPECT_THAT(joined->comm->Barrier(kLong), IsOk());
  });
}

TEST_F(NodesCommTest, IsFlatWhereRanksOfANodeDoNotFollowEachOther) {
  RunRanks(4, [&](int rank) {
    const auto joined = Join(rank, {{0, 0}, {1, 0}, {0, 1}, {1, 1}});
    ASSERT_THAT(joined, IsOk());
    EXPECT_EQ(joined->description,
              "Gloo: rank 2 does not follow the ranks of its node");
    EXPECT_THAT(joined->comm->Barrier(kLong), IsOk());
  });
}

// HC-2: rank 3 is late, and rank 2, which waits for it, is not.
TEST_F(NodesCommTest, NamesALateRankInTheOtherNode) {
  std::latch given_up(3);
  RunRanks(4, [&](int rank) {
    auto joined = Join(rank, seats_);
    ASSERT_THAT(joined, IsOk());
    Comm& comm = *joined->comm;
    ASSERT_THAT(comm.Barrier(kLong), IsOk());
    if (rank != 3) {
      EXPECT_THAT(comm.Barrier(absl::Seconds(8)),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           HasSubstr("Barrier #2: not arrived within 8s: "
                                     "rank(s) 3")));
      given_up.count_down();
    }
    given_up.wait();
  });
}

// HC-3: node 0 is told, as by its daemon; rank 2 waits between the nodes and
// rank 3 for it.
TEST_F(NodesCommTest, TheEndOfAnEpochInANodeReachesTheOther) {
  std::latch met(4);
  RunRanks(4, [&](int rank) {
    auto joined = Join(rank, seats_);
    ASSERT_THAT(joined, IsOk());
    Comm& comm = *joined->comm;
    ASSERT_THAT(comm.Barrier(kLong), IsOk());
    met.arrive_and_wait();
    if (rank == 1) places_[rank]->arena().Revoke(kEpoch);
    if (rank < 2) {
      EXPECT_THAT(comm.Barrier(kLong), StatusIs(absl::StatusCode::kAborted));
    } else {
      EXPECT_THAT(comm.Barrier(kLong), StatusIs(absl::StatusCode::kAborted));
      EXPECT_THAT(comm.CheckPeers(), StatusIs(absl::StatusCode::kAborted));
    }
  });
}

TEST_F(NodesCommTest, TellsAllRanksOfADifferenceBetweenNodes) {
  RunRanks(4, [&](int rank) {
    auto joined = Join(rank, seats_);
    ASSERT_THAT(joined, IsOk());
    Comm& comm = *joined->comm;
    std::vector<float> values(rank < 2 ? 20'000 : 30'000, 1.0f);
    EXPECT_THAT(
        comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("20000"), HasSubstr("30000"))));
    EXPECT_EQ(values.back(), 1.0f);
    EXPECT_THAT(comm.Barrier(kLong), IsOk());
  });
}

// As Gloo's: a socket address and a number, each of which is one more.
std::vector<char> Addresses(size_t count) {
  constexpr size_t kBytes = 136;
  std::vector<char> addresses(count * kBytes);
  for (uint64_t i = 0; i < count; ++i) {
    char* const at = addresses.data() + i * kBytes;
    std::memcpy(at, "\x02\x00\x9c\x40\x0a\x01\x02\x03", 8);
    std::memcpy(at + 128, &i, sizeof(i));
  }
  return addresses;
}

// All blobs of an attempt together, in worker/exchange.h.
TEST(PackedAddressesTest, AThousandRanksFitInWhatAGangMayExchange) {
  constexpr size_t kRanks = 1000;
  const std::vector<char> addresses = Addresses(kRanks - 1);
  const std::string packed = PackAddresses(addresses, kRanks - 1);
  EXPECT_LT(packed.size() * kRanks, size_t{6} << 20);
  const auto unpacked = UnpackAddresses(packed);
  ASSERT_THAT(unpacked, IsOk());
  EXPECT_EQ(*unpacked, addresses);
}

TEST(PackedAddressesTest, PacksAnything) {
  for (const std::string& text : {std::string(), std::string("node-7"),
                                  std::string(1000, 'x'), std::string(3, 0)}) {
    const std::vector<char> data(text.begin(), text.end());
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}}) {
      const auto unpacked = UnpackAddresses(PackAddresses(data, count));
      ASSERT_THAT(unpacked, IsOk());
      EXPECT_EQ(*unpacked, data);
    }
  }
}

TEST(PackedAddressesTest, RefusesWhatWasNotPacked) {
  const std::string packed = PackAddresses(Addresses(3), 3);
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_THAT(UnpackAddresses(packed.substr(0, size)),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(UnpackAddresses(packed + "ab"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort::trainer
