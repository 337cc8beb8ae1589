#include "examples/gpt/text.h"

#include <zlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::gpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TextTest, CutsWindowsSideBySide) {
  const auto text = Text::Of("abcdefghijklmnopqrABCDEFGHIJKLMNOPQR1234", 3);
  COHORT_ASSERT_OK(text);
  // 36 bytes, the last of which is only foretold, and 4.
  EXPECT_EQ((*text)->windows(Part::kTrain), 11);
  EXPECT_EQ((*text)->windows(Part::kValidation), 1);
  EXPECT_THAT((*text)->Read(Part::kTrain, std::vector<int64_t>{10, 0}),
              ElementsAre('M', 'N', 'O', 'P', 'a', 'b', 'c', 'd'));
  EXPECT_THAT((*text)->Read(Part::kValidation, std::vector<int64_t>{0}),
              ElementsAre('1', '2', '3', '4'));
}

TEST(TextTest, RefusesATextWithoutAWindow) {
  COHORT_EXPECT_OK(Text::Of(std::string(40, 'a'), 3));
  EXPECT_THAT(Text::Of(std::string(40, 'a'), 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("too short: its last tenth must hold 4")));
  EXPECT_THAT(Text::Of("", 1), StatusIs(absl::StatusCode::kInvalidArgument));
}

class TextFileTest : public ::testing::Test {
 protected:
  // A gzip file of `bytes`, without its last `cut` bytes.
  std::string Gzip(const std::string& bytes, size_t cut) {
    const std::string path = directory_.File("text.gz");
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    gzclose(file);
    std::ifstream in(path, std::ios::binary);
    const std::string packed((std::istreambuf_iterator<char>(in)), {});
    std::ofstream(path, std::ios::binary)
        << packed.substr(0, packed.size() - cut);
    return path;
  }

  TempDir directory_;
};

TEST_F(TextFileTest, ReadsPlainAndGzip) {
  std::string bytes;
  for (unsigned i = 0; i < 3'000'000; ++i)
    bytes.push_back(static_cast<char>(i * i));
  const std::string plain = directory_.File("text");
  std::ofstream(plain, std::ios::binary) << bytes;
  for (const std::string& path : {plain, Gzip(bytes, 0)}) {
    const auto text = Text::Open(path, 16);
    COHORT_ASSERT_OK(text);
    EXPECT_EQ((*text)->size(), 3'000'000);
    const std::vector<uint8_t> row =
        (*text)->Read(Part::kTrain, std::vector<int64_t>{1});
    EXPECT_EQ(std::string(row.begin(), row.end()), bytes.substr(16, 17));
  }
}

TEST_F(TextFileTest, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(Text::Open(directory_.File("absent"), 4),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(
      Text::Open(Gzip(std::string(100'000, 'a'), 9), 4),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("text.gz is damaged")));
  EXPECT_THAT(Text::Open(Gzip("short", 0), 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("text.gz: a text of 5 bytes")));
}

}  // namespace
}  // namespace cohort::gpt
