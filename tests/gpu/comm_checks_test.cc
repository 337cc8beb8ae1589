#include "tests/gpu/comm_checks.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/comm/testing/gpu_world.h"

namespace cohort::trainer {
namespace {

// The fakes hold to what the checks ask of a GPU.
// The parameter: on which GPU each rank is.
class CommChecksTest : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Gpus, CommChecksTest,
                         ::testing::Values(std::vector{0}, std::vector{0, 1},
                                           std::vector{0, 1, 2},
                                           std::vector{0, 0},
                                           std::vector{0, 0, 0}));

TEST_P(CommChecksTest, PassOverFakes) {
  GpuWorld world(GetParam());
  world.Run([&](int rank, GpuComm& comm) {
    auto copier = DeviceCopier::Open(world.driver(rank).table(), 0);
    ASSERT_THAT(copier, IsOk());
    EXPECT_THAT(CheckCollectives(comm, **copier), IsOk());
    EXPECT_THAT(CheckRepeats(comm, **copier), IsOk());
    EXPECT_THAT(CheckTooMuchMemory(comm), IsOk());
    if (world.size() == 1) return;
    EXPECT_THAT(CheckMismatch(comm), IsOk());
  });
}

// And a communicator that does nothing does not.
class IdleComm final : public Comm {
 public:
  IdleComm() : Comm({.rank = 0, .world = 2, .epoch = 1}) {}
  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override {
    memory_.resize(bytes);
    return std::span(memory_);
  }
  void Revoke() override {}

 private:
  absl::Status Run(const Call&) override { return absl::OkStatus(); }
  std::vector<std::byte> memory_;
};

TEST(CommChecksFailTest, SeeWhatIsWrong) {
  cuda::FakeDriver driver;
  auto copier = DeviceCopier::Open(driver.table(), 0);
  ASSERT_THAT(copier, IsOk());
  IdleComm comm;
  EXPECT_THAT(CheckCollectives(comm, **copier),
              StatusIs(absl::StatusCode::kDataLoss,
                       "sum of 1 f32 on the host: element 0 of 1 is 1, not 3"));
  EXPECT_THAT(CheckRepeats(comm, **copier),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(CheckMismatch(comm), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace cohort::trainer
