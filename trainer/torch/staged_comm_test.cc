// Over the CPU as the device: what is copied where is the same.

#include "trainer/torch/staged_comm.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/ranks.h"
#include "trainer/local_comm.h"

namespace cohort::torch_adapter {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using trainer::Buffer;
using trainer::ReduceOp;

constexpr absl::Duration kLong = absl::Seconds(60);

// Ranks that are threads, over shared memory.
void RunStaged(int world,
               const std::function<void(StagedComm&, trainer::Comm&)>& body) {
  const TempDir directory;
  COHORT_ASSERT_OK(
      shm::Arena::Create(directory.path(),
                         {.attempt = "a", .epoch = 1, .local_world = world})
          .status());
  trainer::RunRanks(world, [&](int rank) {
    auto place = *shm::ArenaPlace::Claim(directory.path(), rank);
    auto host = *trainer::ShmComm::Create(*place, 1);
    // A peer that revokes before this one is there would keep it out.
    COHORT_ASSERT_OK(host->Barrier(kLong));
    StagedComm comm(torch::kCPU, *host);
    body(comm, *host);
  });
}

TEST(StagedCommTest, ReducesAndBroadcastsMemoryOfTheDevice) {
  RunStaged(3, [](StagedComm& comm, trainer::Comm&) {
    EXPECT_TRUE(comm.allocates_on_device());
    EXPECT_EQ(comm.world(), 3);
    const auto memory = comm.Allocate(64 + 3 * sizeof(float));
    COHORT_ASSERT_OK(memory);
    const std::span<float> few(reinterpret_cast<float*>(memory->data()), 3);
    const std::span<int64_t> one(
        reinterpret_cast<int64_t*>(memory->data() + 64), 1);
    for (int round = 1; round <= 2; ++round) {
      for (float& value : few) value = static_cast<float>(comm.rank() + round);
      one[0] = comm.rank();
      const Buffer both[] = {Buffer::Of(few), Buffer::Of(one)};
      COHORT_ASSERT_OK(comm.AllReduce(both, ReduceOp::kSum, kLong));
      EXPECT_THAT(few, Each(3.0f * static_cast<float>(round) + 3));
      EXPECT_EQ(one[0], 3);
    }
    // More than was staged before.
    std::vector<double> many(1000, comm.rank());
    COHORT_ASSERT_OK(
        comm.AllReduce(Buffer::Of(std::span(many)), ReduceOp::kAverage, kLong));
    EXPECT_THAT(many, Each(1.0));
    many.assign(1000, comm.rank());
    COHORT_ASSERT_OK(
        comm.Broadcast(Buffer::Of(std::span(many)), /*root=*/2, kLong));
    EXPECT_THAT(many, Each(2.0));
    COHORT_ASSERT_OK(comm.Barrier(kLong));
    COHORT_ASSERT_OK(comm.Zero(*memory));
    EXPECT_THAT(few, Each(0.0f));
  });
}

TEST(StagedCommTest, ARevokeReachesThePeers) {
  RunStaged(2, [](StagedComm& comm, trainer::Comm&) {
    std::vector<float> values(8, 1);
    if (comm.rank() == 1) return comm.Revoke();
    EXPECT_THAT(
        comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong),
        StatusIs(absl::StatusCode::kAborted));
    EXPECT_THAT(comm.CheckPeers(), StatusIs(absl::StatusCode::kAborted));
  });
}

// Both of its own would wait for good.
class NoMemory final : public trainer::Comm {
 public:
  NoMemory() : Comm({.rank = 0, .world = 2, .epoch = 1}) {}
  absl::StatusOr<std::span<std::byte>> Allocate(size_t) override {
    return absl::ResourceExhaustedError("/dev/shm is full");
  }
  void Revoke() override { is_revoked = true; }

  bool is_revoked = false;

 private:
  absl::Status Run(const Call&) override {
    return absl::InternalError("nobody comes");
  }
};

TEST(StagedCommTest, WhoCannotStageLetsNobodyWait) {
  NoMemory host;
  StagedComm comm(torch::kCPU, host);
  std::vector<float> values(8, 1);
  EXPECT_THAT(
      comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong),
      StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(host.is_revoked);
  EXPECT_THAT(values, Each(1.0f));
}

TEST(StagedCommTest, AloneItCopiesNothing) {
  trainer::LocalComm host;
  StagedComm comm(torch::kCPU, host);
  std::vector<float> values = {1, 2};
  COHORT_ASSERT_OK(
      comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong));
  EXPECT_THAT(values, ElementsAre(1, 2));
}

}  // namespace
}  // namespace cohort::torch_adapter
