#include "trainer/idx_dataset.h"

#include <zlib.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Number(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

class IdxDatasetTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    gzFile file = gzopen(directory_.File(name).c_str(), "wb");
    ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    gzclose(file);
  }
  void WriteImages(const std::string& bytes) {
    Write("train-images-idx3-ubyte.gz", bytes);
  }
  void WriteLabels(const std::string& bytes) {
    Write("train-labels-idx1-ubyte.gz", bytes);
  }
  absl::StatusOr<std::unique_ptr<IdxDataset>> Open(int64_t limit = 0) {
    return IdxDataset::Open(directory_.path(), "train", limit);
  }
  void SetUp() override {
    WriteImages(images_);
    WriteLabels(labels_);
  }

  TempDir directory_;
  // Three images of 1 x 2.
  const std::string images_ =
      absl::StrCat(Number(0x803), Number(3), Number(1), Number(2),
                   std::string("\x00\xff\x33\x66\x01\x02", 6));
  const std::string labels_ =
      absl::StrCat(Number(0x801), Number(3), std::string("\x07\x00\x09", 3));
};

TEST_F(IdxDatasetTest, ReadsSamplesByIdInTheOrderAsked) {
  const auto dataset = Open();
  COHORT_ASSERT_OK(dataset);
  EXPECT_EQ((*dataset)->size(), 3);
  EXPECT_EQ((*dataset)->input_size(), 2);
  std::vector<float> inputs(4);
  std::vector<int64_t> labels(2);
  COHORT_ASSERT_OK(
      (*dataset)->Read(std::vector<int64_t>{1, 0}, inputs, labels));
  EXPECT_THAT(inputs, ElementsAre(0.2f, 0.4f, 0.0f, 1.0f));
  EXPECT_THAT(labels, ElementsAre(0, 7));
  EXPECT_THAT((*dataset)->Read(std::vector<int64_t>{3, 0}, inputs, labels),
              StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_F(IdxDatasetTest, KeepsTheFirstSamplesUpToALimit) {
  EXPECT_EQ((*Open(2))->size(), 2);
  EXPECT_EQ((*Open(99))->size(), 3);
}

TEST_F(IdxDatasetTest, NamesTheFileThatIsNotThere) {
  EXPECT_THAT(IdxDataset::Open(directory_.path(), "t10k", 0),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("t10k-labels-idx1-ubyte.gz")));
}

TEST_F(IdxDatasetTest, RefusesDamagedImages) {
  for (const std::string& bytes : std::vector<std::string>{
           "", images_.substr(0, 10), images_.substr(0, images_.size() - 1),
           images_ + "x", labels_,
           absl::StrCat(Number(0x803), Number(4), images_.substr(8)),
           absl::StrCat(Number(0x803), Number(3), Number(0), Number(2)),
           absl::StrCat(Number(0x803), Number(3), Number(257), Number(2)),
           absl::StrCat(Number(0x803), Number(0xffffffff), Number(0xffffffff),
                        Number(0xffffffff))}) {
    WriteImages(bytes);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("train-images")))
        << bytes.size() << " bytes";
  }
}

TEST_F(IdxDatasetTest, RefusesDamagedLabels) {
  for (const std::string& bytes : std::vector<std::string>{
           labels_.substr(0, labels_.size() - 1), labels_ + "x",
           absl::StrCat(Number(0x801), Number(3), "\x01\x02\x0a"),
           absl::StrCat(Number(0x801), Number(0)),
           absl::StrCat(Number(0x801), Number(0xffffffff))}) {
    WriteLabels(bytes);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("train-labels")));
  }
}

TEST_F(IdxDatasetTest, RefusesAStreamWhoseChecksumIsWrong) {
  const std::string path = directory_.File("train-images-idx3-ubyte.gz");
  FILE* file = fopen(path.c_str(), "r+b");
  ASSERT_EQ(fseek(file, -8, SEEK_END), 0);  // the CRC
  fputc(0x5a, file);
  fputc(0xa5, file);
  fclose(file);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace cohort::trainer
