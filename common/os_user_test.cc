#include "common/os_user.h"

#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(OsUserTest, IsANameOrANumber) {
  if (geteuid() == 0) {
    EXPECT_EQ(OsUserName(), "root");
  } else {
    EXPECT_NE(OsUserName(), "");
  }
}

}  // namespace
}  // namespace cohort
