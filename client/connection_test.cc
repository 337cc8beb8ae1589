#include "client/connection.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/saved_clusters.h"
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
    setenv("COHORT_CONFIG_DIR", directory_.File("clusters").c_str(), 1);
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

TEST_F(ConnectionTest, MeansTheClusterInUse) {
  const auto credential = *rpc::Credential::FromBytes(std::string(32, 'k'));
  COHORT_ASSERT_OK(SaveCluster("prod", "10.0.0.1:7710", credential));
  COHORT_ASSERT_OK(SaveCluster("test", "10.0.0.2:7710", credential));
  EXPECT_TRUE(HasCluster(""));
  EXPECT_THAT(FindAddress(""), IsOkAndHolds("10.0.0.2:7710"));
  COHORT_ASSERT_OK(UseCluster("prod"));
  EXPECT_THAT(FindAddress(""), IsOkAndHolds("10.0.0.1:7710"));
  EXPECT_EQ(FindCredential("")->bytes(), credential.bytes());
  setenv("COHORT_ADDRESS", "127.0.0.1:2", 1);
  EXPECT_THAT(FindAddress(""), IsOkAndHolds("127.0.0.1:2"));
  unsetenv("COHORT_ADDRESS");

  COHORT_ASSERT_OK(ForgetCluster("prod"));
  EXPECT_THAT(DirectoryInUse(), IsOkAndHolds(""));
  ASSERT_EQ(SavedClusters()->size(), 1u);
  EXPECT_EQ(SavedClusters()->front().address, "10.0.0.2:7710");
  EXPECT_FALSE(SavedClusters()->front().in_use);
}

TEST_F(ConnectionTest, RefusesNamesOfClustersThatAreNone) {
  const auto credential = *rpc::Credential::FromBytes(std::string(32, 'k'));
  for (const char* name : {"", "..", "a/b", ".in-use", "a b"}) {
    EXPECT_THAT(SaveCluster(name, "10.0.0.1:1", credential),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(UseCluster(name), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(ForgetCluster(name), StatusIs(absl::StatusCode::kNotFound));
  }
}

}  // namespace
}  // namespace cohort::client
