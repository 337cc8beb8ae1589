#include "worker/worker_socket.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "rpc/authenticator.h"
#include "rpc/credential.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;

class WorkerSocketTest : public testing::Test {
 protected:
  const TempDir temp_;
  const std::string path_ = temp_.File("worker.sock");
  MachineClock clock_;
  rpc::Router router_{
      {},
      rpc::Authenticator(*rpc::Credential::FromBytes(std::string(32, 'c'))),
      clock_};
};

TEST_F(WorkerSocketTest, IsMadeAgainWhereSomebodyRemovedIt) {
  WorkerSocket socket(router_, path_);
  COHORT_ASSERT_OK(socket.Listen());
  EXPECT_TRUE(fs::is_socket(path_));
  EXPECT_THAT(socket.Renew(), IsOkAndHolds(false));
  fs::remove(path_);
  EXPECT_THAT(socket.Renew(), IsOkAndHolds(true));
  EXPECT_TRUE(fs::is_socket(path_));
  EXPECT_THAT(socket.Renew(), IsOkAndHolds(false));
  socket.Close();
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_THAT(socket.Renew(), IsOkAndHolds(false)) << "it is closed";
}

// One that has lost the runtime directory may end after the next one began.
TEST_F(WorkerSocketTest, RemovesNoSocketOfAnother) {
  WorkerSocket first(router_, path_);
  COHORT_ASSERT_OK(first.Listen());
  fs::remove(path_);
  WorkerSocket second(router_, path_);
  COHORT_ASSERT_OK(second.Listen());
  first.Close();
  EXPECT_TRUE(fs::is_socket(path_));
  second.Close();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(WorkerSocketTest, SaysWhereItCannotBe) {
  const fs::path directory = temp_.File("gone");
  fs::create_directory(directory);
  WorkerSocket socket(router_, directory / "worker.sock");
  COHORT_ASSERT_OK(socket.Listen());
  fs::remove_all(directory);
  EXPECT_FALSE(socket.Renew().ok());
  fs::create_directory(directory);
  EXPECT_THAT(socket.Renew(), IsOkAndHolds(true));
}

}  // namespace
}  // namespace cohort::worker
