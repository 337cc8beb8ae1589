#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "trainer/dataset.h"

namespace cohort::trainer {

inline constexpr int64_t kIdxClasses = 10;

// Images and labels in the idx format of MNIST and Fashion-MNIST, gzip files or
// plain ones, in memory; pixels read as floats from 0 to 1.  Immutable.
class IdxDataset final : public Dataset {
 public:
  // The first `limit` samples of <directory>/<prefix>-images-idx3-ubyte.gz and
  // <prefix>-labels-idx1-ubyte.gz; prefix is "train" or "t10k"; limit 0: all.
  // NotFound when a file is not there; DataLoss says what is wrong with one:
  // magic, lengths, labels over 9, bytes behind the end, a damaged stream.
  static absl::StatusOr<std::unique_ptr<IdxDataset>> Open(
      const std::string& directory, const std::string& prefix, int64_t limit);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t input_size() const override { return rows_ * columns_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override;

 private:
  IdxDataset() = default;

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> labels_;
};

}  // namespace cohort::trainer
