#include "common/secret_box.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

class SecretBoxTest : public ::testing::Test {
 protected:
  SecretBox BoxOf(const std::string& text) {
    return *SecretBox::FromText(text);
  }

  SeededRandom random_{1};
  const std::string one_ = std::string(64, '1');
  const std::string two_ = std::string(64, '2');
};

TEST_F(SecretBoxTest, OpensWhatItSealed) {
  const SecretBox box = BoxOf(one_ + "\n");
  for (const std::string& text :
       {std::string(), std::string("a\0b", 3), std::string(100'000, 'x')}) {
    const std::string sealed = box.Seal(text, random_);
    EXPECT_EQ(sealed.find("xxxx"), std::string::npos);
    EXPECT_TRUE(box.Knows(sealed));
    EXPECT_EQ(box.Open(sealed), text);
    EXPECT_NE(box.Seal(text, random_), sealed);
  }
}

TEST_F(SecretBoxTest, AnotherKeyOpensNothing) {
  const std::string sealed = BoxOf(one_).Seal("secret", random_);
  EXPECT_FALSE(BoxOf(two_).Knows(sealed));
  EXPECT_EQ(BoxOf(two_).Open(sealed), std::nullopt);
  EXPECT_EQ(BoxOf(absl::StrCat(two_, "\n", one_)).Open(sealed), "secret");
}

TEST_F(SecretBoxTest, OpensNothingThatWasChanged) {
  const SecretBox box = BoxOf(one_);
  const std::string sealed = box.Seal("secret", random_);
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_EQ(box.Open(changed), std::nullopt) << i;
    EXPECT_EQ(box.Open(sealed.substr(0, i)), std::nullopt) << i;
  }
  EXPECT_EQ(box.Open("secret"), std::nullopt);
}

TEST_F(SecretBoxTest, KeysAreLinesOfHexDigits) {
  for (const std::string& text :
       {std::string(), one_.substr(1), one_ + one_, one_ + "\nsecret"}) {
    EXPECT_THAT(SecretBox::FromText(text),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

}  // namespace
}  // namespace cohort
