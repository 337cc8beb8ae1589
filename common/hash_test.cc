#include "common/hash.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

// FIPS 180-2, appendix B.
TEST(Sha256Test, MatchesTheStandard) {
  EXPECT_EQ(Sha256::Of("").ToHex(),
            "e3b0c44298fc1c149afbf4c8996fb924"
            "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256::Of("abc").ToHex(),
            "ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, PiecesMakeTheWholeAndItStartsAnew) {
  Sha256 sha;
  sha.Update("a");
  sha.Update("");
  sha.Update("bc");
  EXPECT_EQ(sha.Finish(), Sha256::Of("abc"));
  EXPECT_EQ(sha.Finish(), Sha256::Of(""));
}

// RFC 4231, cases 1 and 2.
TEST(HmacSha256Test, MatchesTheStandard) {
  EXPECT_EQ(HmacSha256(std::string(20, '\x0b'), "Hi There").ToHex(),
            "b0344c61d8db38535ca8afceaf0bf12b"
            "881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(HmacSha256("Jefe", "what do ya want for nothing?").ToHex(),
            "5bdcc146bf60754e6a042426089575c7"
            "5a003f089d2739839dec58b964ec3843");
}

TEST(DigestTest, GoesThroughHexAndRefusesTheRest) {
  const Digest digest = Sha256::Of("x");
  EXPECT_THAT(Digest::FromHex(digest.ToHex()), IsOkAndHolds(digest));
  EXPECT_THAT(Digest::FromBytes(digest.bytes()), IsOkAndHolds(digest));
  EXPECT_THAT(Digest::FromHex("../../etc"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Digest::FromBytes("short"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ConstantTimeEqualsTest, Compares) {
  EXPECT_TRUE(ConstantTimeEquals("secret", "secret"));
  EXPECT_FALSE(ConstantTimeEquals("secret", "secreT"));
  EXPECT_FALSE(ConstantTimeEquals("secret", "secret0"));
  EXPECT_TRUE(ConstantTimeEquals("", ""));
}

// RFC 3720, B.4.
TEST(Crc32cTest, MatchesTheStandard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, PiecesMakeTheWhole) {
  SeededRandom random(TestSeed());
  const std::string bytes = random.Bytes(1000);
  const uint32_t whole = Crc32c(bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut += 37) {
    EXPECT_EQ(Crc32c(bytes.substr(cut), Crc32c(bytes.substr(0, cut))), whole);
  }
}

}  // namespace
}  // namespace cohort
