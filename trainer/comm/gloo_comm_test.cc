#include "trainer/comm/gloo_comm.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/testing/ranks.h"

// Gloo leaks the 64 bytes of getaddrinfo when no address of them can be bound.
// By its file: names of functions need a symbolizer.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libgloo\n";
}

namespace cohort::trainer {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

TEST(GlooCommTest, SaysWhenTheAddressIsNotOurs) {
  MemoryExchange exchange(2);
  Exchange mine = exchange.For(0);
  EXPECT_THAT(
      ConnectGloo({.rank = 0, .world = 2, .hostname = "192.0.2.1"}, mine),
      StatusIs(absl::StatusCode::kUnavailable));
}

TEST(GlooCommTest, RefusesARankOutsideTheWorld) {
  MemoryExchange exchange(2);
  Exchange mine = exchange.For(0);
  EXPECT_THAT(ConnectGloo({.rank = 2, .world = 2}, mine),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(GlooCommTest, PassesOnWhyTheExchangeFailed) {
  MemoryExchange exchange(2);
  Exchange mine = exchange.For(0);
  EXPECT_THAT(
      ConnectGloo(
          {.rank = 0, .world = 2, .connect_deadline = absl::Milliseconds(20)},
          mine),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               HasSubstr("not all ranks came")));
}

TEST(GlooCommTest, RefusesAPeerOfAnotherEpoch) {
  // As if a zombie had got hold of this epoch's addresses.
  MemoryExchange exchange(2);
  RunRanks(2, [&](int rank) {
    Exchange inner = exchange.For(rank);
    Exchange mine = [&](absl::string_view tag, std::string blob,
                        absl::Duration deadline) {
      const absl::string_view without_epoch = tag.substr(tag.rfind('/'));
      return inner(without_epoch, std::move(blob), deadline);
    };
    auto comm = ConnectGloo(
        {.rank = rank, .world = 2, .epoch = static_cast<uint64_t>(5 + rank)},
        mine);
    ASSERT_THAT(comm, IsOk());
    EXPECT_THAT(
        (*comm)->Barrier(kLong),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("epoch 6")));
  });
}

// Gloo writes to sockets that peers have closed.
TEST(GlooCommTest, SurvivesWritingToAClosedConnection) {
  signal(SIGPIPE, SIG_DFL);
  for (int round = 0; round < 20; ++round) {
    MemoryExchange exchange(3);
    std::latch connected(3);
    RunRanks(3, [&](int rank) {
      Exchange mine = exchange.For(rank);
      auto comm = ConnectGloo({.rank = rank, .world = 3}, mine);
      ASSERT_THAT(comm, IsOk());
      std::vector<float> values(300'000);
      connected.arrive_and_wait();
      if (rank == 1) (*comm)->Revoke();
      EXPECT_THAT((*comm)->AllReduce(Buffer::Of(std::span(values)),
                                     ReduceOp::kSum, kLong),
                  StatusIs(absl::StatusCode::kAborted));
    });
  }
}

TEST(GlooCommTest, TellsThatAPeerLeft) {
  MemoryExchange exchange(2);
  RunRanks(2, [&](int rank) {
    Exchange mine = exchange.For(rank);
    auto comm = ConnectGloo({.rank = rank, .world = 2}, mine);
    ASSERT_THAT(comm, IsOk());
    ASSERT_THAT((*comm)->Barrier(kLong), IsOk());
    if (rank == 0) return;
    EXPECT_THAT((*comm)->Barrier(kLong),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 0")));
  });
}

// Blobs between two processes, over a socket pair.
Exchange SocketExchange(int rank, int fd) {
  return
      [rank, fd](absl::string_view, std::string mine,
                 absl::Duration) -> absl::StatusOr<std::vector<std::string>> {
        std::string theirs(4096, '\0');
        const ssize_t sent = send(fd, mine.data(), mine.size(), 0);
        const ssize_t got = recv(fd, theirs.data(), theirs.size(), 0);
        if (sent < 0 || got < 0) return absl::InternalError("socket");
        theirs.resize(got);
        std::vector<std::string> all = {std::move(mine), std::move(theirs)};
        if (rank == 1) std::swap(all[0], all[1]);
        return all;
      };
}

TEST(GlooCommTest, AbortsWhenAPeersProcessIsKilled) {
  std::array<int, 2> fds = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    Exchange mine = SocketExchange(1, fds[1]);
    auto comm = ConnectGloo({.rank = 1, .world = 2}, mine);
    if (comm.ok() && (*comm)->Barrier(kLong).ok()) raise(SIGKILL);
    _exit(1);
  }
  Exchange mine = SocketExchange(0, fds[0]);
  auto comm = ConnectGloo({.rank = 0, .world = 2}, mine);
  ASSERT_THAT(comm, IsOk());
  EXPECT_THAT((*comm)->Barrier(kLong), IsOk());
  std::vector<float> values(1'000'000);
  EXPECT_THAT(
      (*comm)->AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kLong),
      StatusIs(absl::StatusCode::kAborted, HasSubstr("AllReduce #2")));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace cohort::trainer
