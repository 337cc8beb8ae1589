#include "trainer/idx_dataset.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "trainer/gzip_file.h"

namespace cohort::trainer {
namespace {

// "unsigned byte, three dimensions" and "unsigned byte, one dimension".
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;
// Bounds on what a header may claim before memory is taken for it.
constexpr uint32_t kSamplesMax = 10'000'000;
constexpr uint32_t kSideMax = 256;

absl::StatusOr<uint32_t> ReadNumber(GzipFile& file) {
  std::array<uint8_t, 4> bytes{};
  COHORT_RETURN_IF_ERROR(file.Read(bytes));
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

// Reads the magic and the number of samples.
absl::StatusOr<uint32_t> ReadCount(GzipFile& file, uint32_t magic) {
  COHORT_ASSIGN_OR_RETURN(const uint32_t found, ReadNumber(file));
  if (found != magic) {
    return file.Broken(absl::StrCat("begins with ", absl::Hex(found),
                                    ", not with ", absl::Hex(magic),
                                    ": another kind of file"));
  }
  COHORT_ASSIGN_OR_RETURN(const uint32_t count, ReadNumber(file));
  if (count == 0 || count > kSamplesMax) {
    return file.Broken(absl::StrCat("claims ", count, " samples"));
  }
  return count;
}

size_t Wanted(uint32_t count, int64_t limit) {
  return limit > 0 ? static_cast<size_t>(std::min<int64_t>(count, limit))
                   : count;
}

}  // namespace

absl::StatusOr<std::unique_ptr<IdxDataset>> IdxDataset::Open(
    const std::string& directory, const std::string& prefix, int64_t limit) {
  std::unique_ptr<IdxDataset> dataset(new IdxDataset());

  COHORT_ASSIGN_OR_RETURN(
      GzipFile labels, GzipFile::Open(absl::StrCat(directory, "/", prefix,
                                                   "-labels-idx1-ubyte.gz")));
  COHORT_ASSIGN_OR_RETURN(const uint32_t count,
                          ReadCount(labels, kLabelsMagic));
  dataset->labels_.resize(count);
  COHORT_RETURN_IF_ERROR(labels.Read(dataset->labels_));
  COHORT_RETURN_IF_ERROR(labels.ExpectEnd());
  for (const uint8_t label : dataset->labels_) {
    if (label >= kIdxClasses) {
      return labels.Broken(absl::StrCat("holds a label ", int{label}));
    }
  }

  COHORT_ASSIGN_OR_RETURN(
      GzipFile images, GzipFile::Open(absl::StrCat(directory, "/", prefix,
                                                   "-images-idx3-ubyte.gz")));
  COHORT_ASSIGN_OR_RETURN(const uint32_t image_count,
                          ReadCount(images, kImagesMagic));
  if (image_count != count) {
    return images.Broken(absl::StrCat(
        "has ", image_count, " images, and there are ", count, " labels"));
  }
  COHORT_ASSIGN_OR_RETURN(const uint32_t rows, ReadNumber(images));
  COHORT_ASSIGN_OR_RETURN(const uint32_t columns, ReadNumber(images));
  if (rows == 0 || columns == 0 || rows > kSideMax || columns > kSideMax) {
    return images.Broken(
        absl::StrCat("claims images of ", rows, " x ", columns));
  }
  dataset->rows_ = rows;
  dataset->columns_ = columns;
  dataset->pixels_.resize(size_t{count} * rows * columns);
  COHORT_RETURN_IF_ERROR(images.Read(dataset->pixels_));
  COHORT_RETURN_IF_ERROR(images.ExpectEnd());

  const size_t kept = Wanted(count, limit);
  dataset->labels_.resize(kept);
  dataset->pixels_.resize(kept * rows * columns);
  return dataset;
}

absl::Status IdxDataset::Read(std::span<const int64_t> ids,
                              std::span<float> inputs,
                              std::span<int64_t> labels) const {
  const auto image = static_cast<size_t>(input_size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= size()) {
      return absl::OutOfRangeError(
          absl::StrCat("sample ", ids[i], " of ", size()));
    }
    const auto id = static_cast<size_t>(ids[i]);
    labels[i] = labels_[id];
    const uint8_t* pixels = pixels_.data() + id * image;
    float* out = inputs.data() + i * image;
    for (size_t p = 0; p < image; ++p) {
      out[p] = static_cast<float>(pixels[p]) / 255.0f;
    }
  }
  return absl::OkStatus();
}

}  // namespace cohort::trainer
