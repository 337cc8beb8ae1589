#include "rpc/credential.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "rpc/authenticator.h"
#include "rpc/certificate.h"

namespace cohort::rpc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CredentialTest : public ::testing::Test {
 protected:
  void WriteFile(const std::string& bytes, mode_t mode) {
    std::ofstream(path_, std::ios::binary) << bytes;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }

  TempDir directory_;
  const std::string path_ = directory_.File("credential");
  SeededRandom random_{3};
};

TEST_F(CredentialTest, SaveKeepsSecretAndAuthorityInAPrivateFile) {
  const std::string authority = AuthorityOf(NewPrivateKey())->certificate;
  const Credential made =
      Credential::FromBytes(random_.Bytes(32))->For(authority);
  COHORT_ASSERT_OK(made.Save(path_));
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const auto loaded = Credential::Load(path_);
  COHORT_ASSERT_OK(loaded);
  EXPECT_EQ(loaded->bytes(), made.bytes());
  EXPECT_EQ(loaded->authority(), authority);
  EXPECT_FALSE(loaded->IsRank());
  EXPECT_EQ(
      MintRankCredential(made, {AttemptId::New(random_), 1, 2}).authority(),
      authority);
}

TEST_F(CredentialTest, LoadNamesAMissingFileAndTheFix) {
  EXPECT_THAT(
      Credential::Load(path_),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr(path_), HasSubstr("COHORT_CREDENTIAL_FILE"))));
}

TEST_F(CredentialTest, LoadRefusesAFileThatOthersCanRead) {
  WriteFile(std::string(32, 'x'), 0640);
  EXPECT_THAT(Credential::Load(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("chmod 600 " + path_)));
}

TEST_F(CredentialTest, LoadWaitsForNoPipe) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(Credential::Load(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not a regular file")));
}

TEST_F(CredentialTest, LoadRefusesAnotherUsersFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  WriteFile(std::string(32, 'x'), 0600);
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_THAT(Credential::Load(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("12345"), HasSubstr("chown"))));
}

TEST_F(CredentialTest, LoadRefusesWhatIsDamaged) {
  const std::string whole = Credential::FromBytes(random_.Bytes(32))
                                ->For(AuthorityOf(NewPrivateKey())->certificate)
                                .ToText();
  for (const std::string& text :
       {std::string(), std::string(32, 'x'), std::string(60, 'x'),
        whole.substr(0, 40), whole.substr(0, whole.size() / 2), whole.substr(7),
        whole + std::string(20'000, '\n')}) {
    WriteFile(text, 0600);
    EXPECT_THAT(Credential::Load(path_),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(path_), HasSubstr("copy it again"))))
        << text;
  }
}

TEST_F(CredentialTest, LoadRefusesADirectory) {
  EXPECT_FALSE(Credential::Load(directory_.path()).ok());
}

TEST_F(CredentialTest, SaveKeepsARankCredential) {
  const Credential cluster = *Credential::FromBytes(random_.Bytes(32));
  const Credential rank =
      MintRankCredential(cluster, {AttemptId::New(random_), 1, 2});
  COHORT_ASSERT_OK(rank.Save(path_));
  const auto loaded = Credential::Load(path_);
  COHORT_ASSERT_OK(loaded);
  EXPECT_TRUE(loaded->IsRank());
  EXPECT_EQ(loaded->bytes(), rank.bytes());
}

TEST_F(CredentialTest, HexRoundTrips) {
  const Credential cluster = *Credential::FromBytes(random_.Bytes(32));
  EXPECT_EQ(Credential::FromHex(cluster.ToHex())->bytes(), cluster.bytes());
  EXPECT_FALSE(Credential::FromHex("").ok());
  EXPECT_FALSE(Credential::FromHex(std::string(64, 'g')).ok());
  EXPECT_FALSE(Credential::FromHex(std::string(63, 'a')).ok());
  EXPECT_FALSE(Credential::FromHex(std::string(64, 'A')).ok());
  EXPECT_FALSE(Credential::FromHex(std::string(122, 'a')).ok());
}

// Golden: ranks of a running job hold such a credential across an upgrade.
TEST_F(CredentialTest, MintsTheSameCredentialInEveryRelease) {
  const Credential cluster = *Credential::FromBytes(std::string(32, '\x01'));
  const AttemptId attempt = *AttemptId::FromBytes(std::string(16, '\x02'));
  EXPECT_EQ(MintRankCredential(cluster, {attempt, 3, 4}).ToHex(),
            "02020202020202020202020202020202000000030000000000000004"
            "88eca2979d064cc6db9a5e5ce7570d7d"
            "e7a3547dd9237b8f20a6bfc024e589b7");
}

// Golden: users and workers hold such credentials across an upgrade.
TEST_F(CredentialTest, MakesTheSameTokensInEveryRelease) {
  const Credential cluster = *Credential::FromBytes(std::string(32, '\x01'));
  const Credential token = Credential::OfToken(cluster, "12345678");
  EXPECT_TRUE(token.IsToken());
  EXPECT_EQ(token.TokenId(), "12345678");
  EXPECT_EQ(token.ToHex(),
            "3132333435363738ceb471fdbd92d6b58b473633"
            "af89a7a17d6610ad534e796b299ce3039a6e3592");
  const Credential rank = MintRankCredential(
      token, {*AttemptId::FromBytes(std::string(16, '\x02')), 3, 4});
  EXPECT_TRUE(rank.IsRank());
  EXPECT_EQ(rank.TokenId(), "12345678");
  EXPECT_EQ(ProcessOf(rank).slot, 3);
  EXPECT_EQ(ProcessOf(rank).incarnation, 4u);
}

TEST_F(CredentialTest, AFileGetsAnotherAuthority) {
  TempDir directory;
  const std::string path = directory.path() + "/credential";
  const std::string old = NewAuthority().certificate;
  const std::string next = NewAuthority().certificate;
  const Credential made = Credential::FromBytes(std::string(32, 's'))->For(old);
  EXPECT_THAT(RenewAuthority(made, next),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  COHORT_ASSERT_OK(made.Save(path));
  const Credential held = *Credential::Load(path);
  EXPECT_EQ(held.file(), path);
  EXPECT_THAT(RenewAuthority(held, "no certificate"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  COHORT_EXPECT_OK(RenewAuthority(held, next));
  EXPECT_EQ(Credential::Load(path)->authority(), next);
  EXPECT_EQ(Credential::Load(path)->bytes(), held.bytes());
  // Where the file is a link, it stays one.
  const std::string link = path + ".link";
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  COHORT_EXPECT_OK(RenewAuthority(*Credential::Load(link), old));
  EXPECT_EQ(Credential::Load(path)->authority(), old);
  COHORT_EXPECT_OK(RenewAuthority(*Credential::Load(link), next));
  // Another cluster's by now.
  COHORT_ASSERT_OK(
      Credential::FromBytes(std::string(32, 't'))->For(old).Save(path));
  COHORT_EXPECT_OK(RenewAuthority(held, next));
  EXPECT_EQ(Credential::Load(path)->authority(), old);
}

class AuthenticatorTest : public ::testing::Test {
 protected:
  SeededRandom random_{4};
  const Credential cluster_ = *Credential::FromBytes(random_.Bytes(32));
  const Authenticator authenticator_{cluster_};
};

TEST_F(AuthenticatorTest, KnowsTheCluster) {
  const auto principal =
      authenticator_.Authenticate(cluster_.AuthorizationHeader());
  COHORT_ASSERT_OK(principal);
  EXPECT_EQ(principal->role, Role::kAdmin);
  EXPECT_EQ(principal->name, "cluster");
  EXPECT_TRUE(principal->process.attempt.IsNil());
}

TEST_F(AuthenticatorTest, KnowsWhichProcessARankIs) {
  const ProcessId process = {AttemptId::New(random_), 70'000,
                             uint64_t{1} << 40};
  const auto principal = authenticator_.Authenticate(
      MintRankCredential(cluster_, process).AuthorizationHeader());
  COHORT_ASSERT_OK(principal);
  EXPECT_EQ(principal->role, Role::kRank);
  EXPECT_EQ(principal->process, process);
}

TEST_F(AuthenticatorTest, AWorkerKnowsTheRanksOfItsOwnToken) {
  const Credential worker = Credential::OfToken(cluster_, "12345678");
  const Credential other = Credential::OfToken(cluster_, "87654321");
  const Authenticator authenticator(worker);
  const ProcessId process = {AttemptId::New(random_), 1, 2};
  const auto principal = authenticator.Authenticate(
      MintRankCredential(worker, process).AuthorizationHeader());
  COHORT_ASSERT_OK(principal);
  EXPECT_EQ(principal->role, Role::kRank);
  EXPECT_EQ(principal->process, process);
  for (const Credential& holder : {other, cluster_}) {
    EXPECT_FALSE(
        authenticator
            .Authenticate(
                MintRankCredential(holder, process).AuthorizationHeader())
            .ok());
  }
  // Tokens are the head's to know.
  EXPECT_FALSE(authenticator_.Authenticate(worker.AuthorizationHeader()).ok());
}

// AU-1, AU-3.
TEST_F(AuthenticatorTest, RefusesEverythingElseWithoutALeak) {
  const ProcessId process = {AttemptId::New(random_), 0, 1};
  const std::string minted = MintRankCredential(cluster_, process).bytes();
  // Another attempt, slot and incarnation under the same HMAC.
  std::string forged = minted;
  forged[3] ^= 1;
  std::string other_slot = minted;
  other_slot[19] ^= 1;
  std::string newer = minted;
  newer[27] ^= 2;
  const Credential other = *Credential::FromBytes(random_.Bytes(32));
  for (const std::string& header :
       {std::string(), std::string("Bearer "), std::string("Bearer zz"),
        std::string("Basic dXNlcg=="), cluster_.ToHex(),
        cluster_.AuthorizationHeader() + "00", other.AuthorizationHeader(),
        Credential::FromBytes(forged)->AuthorizationHeader(),
        Credential::FromBytes(other_slot)->AuthorizationHeader(),
        Credential::FromBytes(newer)->AuthorizationHeader(),
        MintRankCredential(other, process).AuthorizationHeader()}) {
    EXPECT_THAT(authenticator_.Authenticate(header),
                StatusIs(absl::StatusCode::kUnauthenticated,
                         AllOf(HasSubstr("--credential-file"),
                               Not(HasSubstr(cluster_.ToHex())))))
        << header;
  }
}

}  // namespace
}  // namespace cohort::rpc
