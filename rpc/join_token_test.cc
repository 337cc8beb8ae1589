#include "rpc/join_token.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "rpc/certificate.h"

namespace cohort::rpc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class JoinTokenTest : public ::testing::Test {
 protected:
  const Credential cluster_ =
      Credential::FromBytes(std::string(Credential::kClusterBytes, 'c'))
          ->For(AuthorityOf(NewPrivateKey())->certificate);
  const JoinToken token_ =
      JoinToken::Of(Credential::OfToken(cluster_, "12345678"));
};

TEST_F(JoinTokenTest, ReadsBack) {
  const std::string text = token_.ToText();
  EXPECT_THAT(text, StartsWith(absl::StrCat(
                        "cohort1.", *FingerprintOf(cluster_.authority()),
                        ".3132333435363738.")));
  const auto read = JoinToken::Parse(absl::StrCat("  ", text, "\n"));
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->fingerprint, token_.fingerprint);
  EXPECT_EQ(read->token, token_.token);
}

TEST_F(JoinTokenTest, RefusesEachBeginningAndWhatIsDamaged) {
  const std::string text = token_.ToText();
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    const auto read = JoinToken::Parse(text.substr(0, bytes));
    EXPECT_THAT(read, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("copy the whole line")));
    EXPECT_THAT(read.status().message(), Not(HasSubstr(text.substr(100))));
  }
  EXPECT_FALSE(JoinToken::Parse(text + "0").ok());
  EXPECT_FALSE(JoinToken::Parse(text + ".0").ok());
  EXPECT_FALSE(JoinToken::Parse("cohort2" + text.substr(7)).ok());
  std::string damaged = text;
  damaged[90] = 'x';
  EXPECT_FALSE(JoinToken::Parse(damaged).ok());
}

}  // namespace
}  // namespace cohort::rpc
