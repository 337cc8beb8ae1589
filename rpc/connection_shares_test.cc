#include "rpc/connection_shares.h"

#include <set>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::rpc {
namespace {

// A process with that many descriptors, which gives out the lowest free one.
class ConnectionSharesTest : public ::testing::Test {
 protected:
  static constexpr int kDescriptors = 100;

  bool Connect(const std::string& host) {
    int fd = 0;
    while (open_.contains(fd)) ++fd;
    const bool admitted = shares_.Admit(
        fd, /*inode=*/1, host, static_cast<size_t>(kDescriptors - fd), now_);
    if (admitted) open_.insert(fd);
    return admitted;
  }
  int ConnectAll(const std::string& host) {
    int count = 0;
    while (Connect(host)) ++count;
    return count;
  }

  std::set<int> open_;
  absl::Duration now_ = absl::ZeroDuration();
  ConnectionShares shares_{
      [this](int fd, ino_t) { return open_.contains(fd); }};
};

// GL-3
TEST_F(ConnectionSharesTest, OneHostGetsHalfAndOthersGetIn) {
  EXPECT_EQ(ConnectAll("a"), 50);
  EXPECT_TRUE(Connect("b"));
  EXPECT_FALSE(Connect("a"));
}

TEST_F(ConnectionSharesTest, WhatHasEndedCountsNoMore) {
  open_ = {10, 11};
  EXPECT_TRUE(shares_.Admit(10, 1, "a", /*free=*/2, now_));
  EXPECT_TRUE(shares_.Admit(11, 1, "a", 2, now_));
  EXPECT_FALSE(shares_.Admit(12, 1, "a", 2, now_));
  open_.clear();
  EXPECT_FALSE(shares_.Admit(12, 1, "a", 2, now_));  // looked at just now
  now_ += absl::Seconds(2);
  EXPECT_TRUE(shares_.Admit(12, 1, "a", 2, now_));
}

TEST_F(ConnectionSharesTest, ADescriptorThatComesAgainIsCountedOnce) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(Connect("a"));
    open_.clear();
  }
  EXPECT_EQ(ConnectAll("a"), 50);
}

}  // namespace
}  // namespace cohort::rpc
