#include "trainer/comm/shm_comm.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(60);

// Ranks are processes here: rank 0 is the test, the others are children that
// run `body` and end with its answer.
class ShmCommTest : public ::testing::Test {
 protected:
  void StartWorld(int world, const std::function<bool(Comm&)>& body) {
    auto arena = shm::Arena::Create(
        dir_.path(), {.attempt = "job-1/1", .epoch = 1, .local_world = world});
    ASSERT_THAT(arena, IsOk());
    arena_ = *std::move(arena);
    for (int rank = 1; rank < world; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        auto place = shm::ArenaPlace::Claim(dir_.path(), rank);
        if (!place.ok()) _exit(2);
        auto comm = ShmComm::Create(**place, 1);
        _exit(comm.ok() && body(**comm) ? 0 : 1);
      }
      children_.push_back(child);
    }
    auto place = shm::ArenaPlace::Claim(dir_.path(), 0);
    ASSERT_THAT(place, IsOk());
    place_ = *std::move(place);
    auto comm = ShmComm::Create(*place_, 1);
    ASSERT_THAT(comm, IsOk());
    comm_ = *std::move(comm);
  }

  // How child `rank` ended.
  int Reap(int rank) {
    int status = 0;
    EXPECT_EQ(waitpid(children_[rank - 1], &status, 0), children_[rank - 1]);
    children_[rank - 1] = 0;
    return status;
  }

  void TearDown() override {
    for (const pid_t child : children_) {
      if (child == 0) continue;
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  TempDir dir_;
  std::unique_ptr<shm::Arena> arena_;
  std::vector<pid_t> children_;
  std::unique_ptr<shm::ArenaPlace> place_;
  std::unique_ptr<ShmComm> comm_;
};

bool SumsRight(Comm& comm, size_t count) {
  auto memory = comm.Allocate(count * sizeof(double));
  if (!memory.ok()) return false;
  const std::span<double> values(reinterpret_cast<double*>(memory->data()),
                                 count);
  double expected = 0;
  for (int rank = 0; rank < comm.world(); ++rank) expected += rank + 1;
  for (int round = 0; round < 20; ++round) {
    for (double& value : values) value = comm.rank() + 1;
    if (!comm.AllReduce(Buffer::Of(values), ReduceOp::kSum, kLong).ok()) {
      return false;
    }
    for (const double value : values) {
      if (value != expected) return false;
    }
  }
  return true;
}

TEST_F(ShmCommTest, ReducesBetweenProcesses) {
  StartWorld(3, [](Comm& comm) {
    return SumsRight(comm, 10) && SumsRight(comm, 50'001);
  });
  EXPECT_TRUE(SumsRight(*comm_, 10));
  EXPECT_TRUE(SumsRight(*comm_, 50'001));
  EXPECT_EQ(Reap(1), 0);
  EXPECT_EQ(Reap(2), 0);
}

TEST_F(ShmCommTest, StagesMemoryThatOnlySomeRanksAllocated) {
  const auto body = [](Comm& comm) {
    std::vector<float> own(30'000, 1.0f);
    auto memory = comm.Allocate(own.size() * sizeof(float));
    if (!memory.ok()) return false;
    std::span<float> values(reinterpret_cast<float*>(memory->data()),
                            own.size());
    if (comm.rank() == 1) values = own;
    for (float& value : values) value = 2.0f;
    return comm.AllReduce(Buffer::Of(values), ReduceOp::kSum, kLong).ok() &&
           values[0] == 4.0f && values[29'999] == 4.0f;
  };
  StartWorld(2, body);
  EXPECT_TRUE(body(*comm_));
  EXPECT_EQ(Reap(1), 0);
}

// CM-1: the process is gone while the others wait for it.
TEST_F(ShmCommTest, AbortsWhenAPeerIsKilled) {
  StartWorld(2, [](Comm& comm) {
    const bool met = comm.Barrier(kLong).ok();
    raise(SIGKILL);
    return met;
  });
  ASSERT_THAT(comm_->Barrier(kLong), IsOk());
  const absl::Status ended = comm_->Barrier(kLong);
  EXPECT_THAT(ended, StatusIs(absl::StatusCode::kAborted,
                              AllOf(HasSubstr("Barrier #2"),
                                    HasSubstr("local rank 1"))));
  EXPECT_TRUE(WIFSIGNALED(Reap(1)));
}

// The daemon sees the death and says so: everyone leaves at once.
TEST_F(ShmCommTest, AbortsWhenTheDaemonRevokesAfterADeath) {
  StartWorld(3, [](Comm& comm) {
    if (!comm.Barrier(kLong).ok()) return false;
    if (comm.rank() == 2) raise(SIGKILL);
    return absl::IsAborted(comm.Barrier(kLong));
  });
  ASSERT_THAT(comm_->Barrier(kLong), IsOk());
  EXPECT_TRUE(WIFSIGNALED(Reap(2)));
  arena_->Revoke(1);
  EXPECT_THAT(comm_->Barrier(kLong), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(Reap(1), 0);
}

// CM-1: a stopped process is alive and never arrives.
TEST_F(ShmCommTest, NamesAStoppedPeerAtTheDeadline) {
  StartWorld(3, [](Comm& comm) {
    if (!comm.Barrier(kLong).ok()) return false;
    if (comm.rank() == 1) raise(SIGSTOP);
    std::vector<float> values(10);
    return !comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum,
                           absl::Milliseconds(200))
                .ok();
  });
  ASSERT_THAT(comm_->Barrier(kLong), IsOk());
  int status = 0;
  ASSERT_EQ(waitpid(children_[0], &status, WUNTRACED), children_[0]);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(Reap(2), 0);
  // Rank 2 has been there and left; only rank 1 never came.
  std::vector<float> values(10);
  const absl::Status ended = comm_->AllReduce(
      Buffer::Of(std::span(values)), ReduceOp::kSum, absl::Milliseconds(20));
  EXPECT_THAT(ended, StatusIs(absl::StatusCode::kDeadlineExceeded,
                              AllOf(HasSubstr("AllReduce #2 (sum)"),
                                    HasSubstr("20ms"), HasSubstr("rank(s) 1"),
                                    Not(HasSubstr("rank(s) 1, ")))));
  EXPECT_THAT(comm_->Barrier(kLong),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("AllReduce #2")));
}

TEST_F(ShmCommTest, ServesOneEpochOnly) {
  StartWorld(1, nullptr);
  arena_->Revoke(3);
  EXPECT_THAT(comm_->Barrier(kLong), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(ShmComm::Create(*place_, 3),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(ShmComm::Create(*place_, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  auto next = ShmComm::Create(*place_, 4);
  ASSERT_THAT(next, IsOk());
  EXPECT_THAT((*next)->Barrier(kLong), IsOk());
}

TEST_F(ShmCommTest, SaysWhenThereIsNoMemoryToStage) {
  // Rank 1 has used up its regions; both learn why, and both go on.
  const auto body = [](Comm& comm) {
    if (comm.rank() == 1) {
      while (comm.Allocate(size_t{1} << 20).ok()) {
      }
    }
    std::vector<float> values(1'000'000, 1.0f);
    const absl::Status full =
        comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong);
    return absl::IsResourceExhausted(full) && values[0] == 1.0f &&
           comm.Barrier(kLong).ok();
  };
  StartWorld(2, body);
  EXPECT_TRUE(body(*comm_));
  EXPECT_EQ(Reap(1), 0);
}

}  // namespace
}  // namespace cohort::trainer
