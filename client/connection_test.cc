#include "client/connection.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    unsetenv("COHORT_ADDRESS");
    unsetenv("COHORT_CREDENTIAL_FILE");
  }

  TempDir directory_;
};

TEST_F(ConnectionTest, TakesWhatIsGivenBeforeTheEnvironment) {
  setenv("COHORT_ADDRESS", "127.0.0.1:2", 1);
  EXPECT_THAT(FindAddress("127.0.0.1:1"), IsOkAndHolds("127.0.0.1:1"));
  EXPECT_THAT(FindAddress(""), IsOkAndHolds("127.0.0.1:2"));
}

TEST_F(ConnectionTest, SaysWhichAddressIsNone) {
  EXPECT_THAT(
      FindAddress("nowhere"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"nowhere\"")));
  EXPECT_THAT(
      FindAddress("127.0.0.1:0"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("port 0")));
  setenv("COHORT_ADDRESS", "x:y", 1);
  EXPECT_THAT(FindAddress(""), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("COHORT_ADDRESS")));
}

TEST_F(ConnectionTest, ReadsTheCredentialThatTheEnvironmentNames) {
  const std::string path = directory_.File("credential");
  COHORT_ASSERT_OK(
      rpc::Credential::FromBytes(std::string(32, 'k'))->Save(path));
  setenv("COHORT_CREDENTIAL_FILE", path.c_str(), 1);
  const auto credential = FindCredential("");
  COHORT_ASSERT_OK(credential);
  EXPECT_EQ(credential->bytes(), std::string(32, 'k'));
  EXPECT_THAT(FindCredential(directory_.File("other")),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(directory_.File("other")),
                             HasSubstr("--credential-file"))));
}

TEST_F(ConnectionTest, SaysWhoNamedACredentialThatIsNone) {
  const std::string path = directory_.File("short");
  COHORT_ASSERT_OK(WriteFileAtomically(path, "short", 0600));
  setenv("COHORT_CREDENTIAL_FILE", path.c_str(), 1);
  EXPECT_THAT(
      FindCredential(""),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("COHORT_CREDENTIAL_FILE"), HasSubstr(path))));
}

TEST_F(ConnectionTest, FindsTheClusterOfUp) {
  if (geteuid() == 0) GTEST_SKIP() << "root's is outside of the test";
  setenv("HOME", directory_.path().c_str(), 1);
  const std::string up = directory_.File(".local/state/cohort/up");
  EXPECT_THAT(UpDirectory(), IsOkAndHolds(up));
  EXPECT_THAT(FindAddress(""),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("`cohort up`")));
  COHORT_ASSERT_OK(MakeDirectories(up, 0700));
  COHORT_ASSERT_OK(WriteFileAtomically(up + "/address", "127.0.0.1:9\n", 0644));
  EXPECT_THAT(FindAddress(""), IsOkAndHolds("127.0.0.1:9"));
}

}  // namespace
}  // namespace cohort::client
