#include "trainer/token_dataset.h"

#include <sys/stat.h>
#include <zlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenDatasetTest : public ::testing::Test {
 protected:
  std::string Plain(const std::string& bytes) {
    const std::string path = directory_.File("tokens.bin");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
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
  static std::vector<float> Sample(const TokenDataset& dataset, int64_t id) {
    std::vector<float> tokens(static_cast<size_t>(dataset.input_size()));
    std::vector<int64_t> label(1);
    COHORT_EXPECT_OK(dataset.Read({&id, 1}, tokens, label));
    EXPECT_EQ(label[0], static_cast<int64_t>(tokens.back()));
    return tokens;
  }

  TempDir directory_;
};

TEST_F(TokenDatasetTest, CutsWindowsSideBySide) {
  const std::string path = Plain("abcdefghijklmnopqrABCDEFGHIJKLMNOPQR1234");
  const auto train = TokenDataset::Open(path, {.context = 3, .to = 0.9});
  COHORT_ASSERT_OK(train);
  // Of 36 tokens the last is only foretold.
  EXPECT_EQ((*train)->size(), 11);
  EXPECT_THAT(Sample(**train, 10), ElementsAre('M', 'N', 'O', 'P'));
  const auto rest = TokenDataset::Open(path, {.context = 3, .from = 0.9});
  COHORT_ASSERT_OK(rest);
  EXPECT_EQ((*rest)->size(), 1);
  EXPECT_THAT(Sample(**rest, 0), ElementsAre('1', '2', '3', '4'));
}

TEST_F(TokenDatasetTest, ReadsTokensOfSeveralBytes) {
  const std::string path = Plain(std::string("\x01\x02\xff\xff\x00\x00", 6));
  const auto tokens =
      TokenDataset::Open(path, {.context = 2, .token_bytes = 2});
  COHORT_ASSERT_OK(tokens);
  EXPECT_THAT(Sample(**tokens, 0), ElementsAre(0x0201, 0xffff, 0));
  EXPECT_THAT(
      TokenDataset::Open(path, {.context = 2, .token_bytes = 4}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("tokens.bin: 6 bytes are not a whole number")));
}

// gzip's first bytes are tokens of GPT-2's vocabulary.
TEST_F(TokenDatasetTest, TakesNoFileOfWideTokensForGzip) {
  const auto tokens =
      TokenDataset::Open(Plain(std::string("\x1f\x8b\x08\x00", 4)),
                         {.context = 1, .token_bytes = 2});
  COHORT_ASSERT_OK(tokens);
  EXPECT_THAT(Sample(**tokens, 0), ElementsAre(0x8b1f, 8));
}

TEST_F(TokenDatasetTest, RefusesATokenThatAFloatCannotHold) {
  const auto tokens =
      TokenDataset::Open(Plain(std::string("\0\0\0\0\0\0\0\1", 8)),
                         {.context = 1, .token_bytes = 4});
  COHORT_ASSERT_OK(tokens);
  std::vector<float> sample(2);
  std::vector<int64_t> label(1);
  EXPECT_THAT((*tokens)->Read(std::vector<int64_t>{0}, sample, label),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("token 1 is")));
  EXPECT_THAT((*tokens)->Read(std::vector<int64_t>{1}, sample, label),
              StatusIs(absl::StatusCode::kOutOfRange, "sample 1 of 1"));
}

TEST_F(TokenDatasetTest, ReadsGzipAsItReadsAPlainFile) {
  std::string bytes;
  for (unsigned i = 0; i < 3'000'000; ++i)
    bytes.push_back(static_cast<char>(i * i));
  for (const std::string& path : {Plain(bytes), Gzip(bytes, 0)}) {
    const auto text = TokenDataset::Open(path, {.context = 16});
    COHORT_ASSERT_OK(text);
    EXPECT_EQ((*text)->size(), 2'999'999 / 16);
    const std::vector<float> row = Sample(**text, 1);
    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(row[i], static_cast<unsigned char>(bytes[16 + i]));
    }
  }
}

TEST_F(TokenDatasetTest, SaysWhatIsWrong) {
  EXPECT_THAT(TokenDataset::Open(directory_.File("absent"), {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  // Opening a pipe would wait for somebody who writes.
  const std::string pipe = directory_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(TokenDataset::Open(pipe, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pipe")));
  EXPECT_THAT(TokenDataset::Open(directory_.path(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("file")));
  EXPECT_THAT(
      TokenDataset::Open(Gzip(std::string(100'000, 'a'), 9), {}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("text.gz is damaged")));
  for (const std::string& path : {Plain(""), Plain("abcd"), Gzip("abcd", 0)}) {
    EXPECT_THAT(TokenDataset::Open(path, {.context = 4}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("too short for one window of 4")));
  }
  for (const TokenOptions& wrong :
       {TokenOptions{.context = 0}, TokenOptions{.token_bytes = 3},
        TokenOptions{.from = 0.5, .to = 0.5}, TokenOptions{.to = 1.5}}) {
    EXPECT_THAT(TokenDataset::Open(Plain("abcd"), wrong),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace cohort::trainer
