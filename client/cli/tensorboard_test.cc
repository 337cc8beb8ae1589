#include "client/cli/tensorboard.h"

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

// As TensorFlow 2 writes them.
TEST(TensorBoardTest, WritesRecordsAsTensorFlowDoes) {
  const std::string head =
      TensorBoardEvents({}, absl::FromUnixSeconds(1), absl::ZeroDuration());
  EXPECT_EQ(absl::BytesToHexString(head),
            "1800000000000000a37f4b22"
            "09000000000000f03f1a0d627261696e2e4576656e743a32"
            "86bf577a");
}

TEST(TensorBoardTest, HasAScalarForEachMetricOfARow) {
  const std::string head =
      TensorBoardEvents({}, absl::FromUnixSeconds(1), absl::ZeroDuration());
  const std::string file =
      TensorBoardEvents({{.step = 3, .values = {{"loss", 0.5}}}},
                        absl::FromUnixSeconds(1), absl::ZeroDuration());
  ASSERT_EQ(file.substr(0, head.size()), head);
  const std::string record = file.substr(head.size());
  // Length, its checksum, wall time, step, summary{value{tag, number}}.
  EXPECT_EQ(absl::BytesToHexString(record.substr(12, record.size() - 16)),
            "09000000000000f03f"
            "1003"
            "2a0d"
            "0a0b"
            "0a046c6f7373"
            "150000003f");
}

}  // namespace
}  // namespace cohort::cli
