#include "trainer/preflight/nccl_log.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NcclLogTest, TellsNetworkAndTransports) {
  const NcclWays ways = ParseNcclLog(
      "host:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n"
      "host:7:9 [0] NCCL INFO Using network Socket\n"
      "host:7:9 [0] NCCL INFO Channel 00/02 : 0 1\n"
      "host:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "host:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "host:7:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via "
      "NET/Socket/0\n");
  EXPECT_EQ(ways.network, "Socket");
  EXPECT_THAT(ways.transports, ElementsAre("NET/Socket/0", "P2P/CUMEM"));
}

TEST(NcclLogTest, NothingIsToldOfWhatItDoesNotKnow) {
  const NcclWays ways = ParseNcclLog("Using network X\nChannel 1 via Y\n\n");
  EXPECT_EQ(ways.network, "");
  EXPECT_THAT(ways.transports, IsEmpty());
}

TEST(NcclLogTest, IsBounded) {
  std::string text;
  for (int i = 100; i < 200; ++i) {
    absl::StrAppend(&text, "NCCL INFO Channel 0 : 0 -> 1 via NET/", i,
                    std::string(1000, 'x'), "\n");
  }
  const NcclWays ways = ParseNcclLog(text);
  EXPECT_EQ(ways.transports.size(), 8u);
  EXPECT_EQ(ways.transports[0].size(), 64u);
}

}  // namespace
}  // namespace cohort::trainer
