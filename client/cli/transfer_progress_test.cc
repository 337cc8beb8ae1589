#include "client/cli/transfer_progress.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"
#include "common/unique_fd.h"

namespace cohort::cli {
namespace {

class TransferProgressTest : public ::testing::Test {
 protected:
  TransferProgressTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    read_.Reset(ends[0]);
    write_.Reset(ends[1]);
  }

  // What was written since, without what moves the cursor.
  std::string Written() {
    std::string bytes(4096, '\0');
    const ssize_t n = read(read_.get(), bytes.data(), bytes.size());
    bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return bytes.substr(bytes.rfind("\033[K") == std::string::npos
                            ? 0
                            : bytes.rfind("\033[K") + 3);
  }

  ManualExecutor clock_;
  UniqueFd read_;
  UniqueFd write_;
};

TEST_F(TransferProgressTest, ShowsTheAverageRateTenTimesASecondAtMost) {
  TransferProgress upload("uploading", int64_t{1} << 30, clock_,
                          Progress::Kind::kLive, write_.get());
  upload.Show(512 << 20);  // There already: no part of the rate.
  EXPECT_EQ(Written(), "");
  clock_.AdvanceBy(absl::Seconds(2));
  upload.Show(612 << 20);
  EXPECT_EQ(Written(), "uploading 612MiB of 1GiB, 50MiB/s");
  clock_.AdvanceBy(absl::Milliseconds(99));
  upload.Show(613 << 20);
  EXPECT_EQ(Written(), "");
  clock_.AdvanceBy(absl::Milliseconds(1));
  upload.Show(0);
  EXPECT_EQ(Written(), "uploading 0B of 1GiB, 0B/s");
}

TEST_F(TransferProgressTest, ShowsNothingWhereNoTerminalLooks) {
  TransferProgress upload("uploading", 1000, clock_, Progress::Kind::kPlain,
                          write_.get());
  clock_.AdvanceBy(absl::Seconds(1));
  upload.Show(500);
  EXPECT_EQ(Written(), "");
}

}  // namespace
}  // namespace cohort::cli
