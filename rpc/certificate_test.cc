#include "rpc/certificate.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::rpc {
namespace {

using ::testing::HasSubstr;

// The head writes no certificate down but its authority's, in the credential.
TEST(CertificateTest, AnAuthorityIsTheSameForOneKey) {
  const std::string key = NewPrivateKey();
  const auto authority = AuthorityOf(key);
  COHORT_ASSERT_OK(authority);
  EXPECT_EQ(AuthorityOf(key)->certificate, authority->certificate);
  EXPECT_NE(AuthorityOf(NewPrivateKey())->certificate, authority->certificate);
  EXPECT_EQ(FingerprintOf(authority->certificate)->size(), 64u);
}

// Both ends of a call between actors make it, and share the secret only.
TEST(CertificateTest, AServerOfASecretIsTheSameAtBothEnds) {
  const Identity server = ServerOfSecret(std::string(32, 's'));
  EXPECT_EQ(ServerOfSecret(std::string(32, 's')).certificate,
            server.certificate);
  EXPECT_NE(ServerOfSecret(std::string(32, 't')).certificate,
            server.certificate);
}

TEST(CertificateTest, EveryServerHasAKeyOfItsOwn) {
  const Identity authority = *AuthorityOf(NewPrivateKey());
  const Identity one = IssueServer(authority);
  const Identity other = IssueServer(authority);
  EXPECT_NE(one.certificate, other.certificate);
  EXPECT_NE(one.private_key, other.private_key);
  EXPECT_THAT(one.private_key, HasSubstr("PRIVATE KEY"));
}

TEST(CertificateTest, RefusesWhatIsNoKeyAndNoCertificate) {
  const std::string key = NewPrivateKey();
  for (const std::string& text :
       {std::string(), std::string("key"), key.substr(0, key.size() / 2)}) {
    EXPECT_THAT(AuthorityOf(text), StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
    EXPECT_THAT(FingerprintOf(text),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

TEST(CertificateTest, AnAuthorityOfARotationIsReadWithItsCertificate) {
  const Identity first = *AuthorityOf(NewPrivateKey());
  const Identity next = NewAuthority();
  EXPECT_EQ(ServerNameOf(first.certificate), kServerName);
  EXPECT_EQ(ServerNameOf(""), kServerName);
  EXPECT_THAT(ServerNameOf(next.certificate),
              ::testing::MatchesRegex("cohort-[0-9a-f]{16}"));
  const auto read = ReadAuthority(next.private_key + next.certificate);
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->certificate, next.certificate);
  EXPECT_EQ(ReadAuthority(first.private_key)->certificate, first.certificate);
  EXPECT_EQ(ReadAuthority(first.private_key + first.certificate)->certificate,
            first.certificate);
  for (const std::string& text :
       {std::string(), first.certificate, next.private_key + first.certificate,
        next.private_key + "more"}) {
    EXPECT_THAT(ReadAuthority(text),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace cohort::rpc
