#include "trainer/preflight/network_interface.h"

#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

TEST(NetworkInterfaceTest, FindsTheOneWithTheAddress) {
  const auto loopback = InterfaceOf("127.0.0.1");
  ASSERT_TRUE(loopback.has_value());
  EXPECT_EQ(loopback->name, "lo");
  EXPECT_EQ(loopback->address, "127.0.0.1");
}

TEST(NetworkInterfaceTest, ResolvesNames) {
  const auto loopback = InterfaceOf("localhost");
  ASSERT_TRUE(loopback.has_value());
  EXPECT_EQ(loopback->name, "lo");
}

TEST(NetworkInterfaceTest, AnAddressOfAnotherMachineIsOnNone) {
  EXPECT_FALSE(InterfaceOf("192.0.2.7").has_value());  // RFC 5737
}

}  // namespace
}  // namespace cohort::trainer
