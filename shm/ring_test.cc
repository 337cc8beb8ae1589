#include "shm/ring.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "common/unique_fd.h"
#include "shm/futex.h"
#include "shm/ring_pair.h"

namespace cohort::shm {
namespace {

constexpr uint64_t kAnyStamp = ~uint64_t{0};
constexpr size_t kRingBytes = 256;

class RingTest : public ::testing::Test {
 protected:
  std::string Pop() {
    std::string bytes;
    const absl::StatusOr<bool> popped = reader_.Pop(kAnyStamp, bytes);
    COHORT_EXPECT_OK(popped);
    return popped.ok() && *popped ? bytes : "nothing";
  }

  RingHead head_ = {};
  alignas(64) std::byte data_[kRingBytes] = {};
  RingWriter writer_{{&head_, data_, kRingBytes}};
  RingReader reader_{{&head_, data_, kRingBytes}};
};

TEST_F(RingTest, MessagesComeInOrderAlsoAcrossTheEnd) {
  SeededRandom random(TestSeed());
  std::deque<std::string> inside;
  for (int i = 0; i < 5'000; ++i) {
    if (random.Below(2) == 0) {
      const std::string bytes = random.Bytes(random.Below(80));
      if (writer_.Push(0, bytes)) inside.push_back(bytes);
    } else if (!inside.empty()) {
      EXPECT_TRUE(reader_.HasMore());
      EXPECT_EQ(Pop(), inside.front());
      inside.pop_front();
    } else {
      EXPECT_FALSE(reader_.HasMore());
      EXPECT_EQ(Pop(), "nothing");
    }
    EXPECT_EQ(writer_.HasUnread(), !inside.empty());
  }
}

TEST_F(RingTest, TakesNoMoreThanItHolds) {
  EXPECT_FALSE(writer_.Push(0, std::string(kRingBytes - 15, 'x')));
  EXPECT_TRUE(writer_.Push(0, std::string(kRingBytes - 16, 'x')));
  EXPECT_FALSE(writer_.Push(0, ""));
  EXPECT_EQ(Pop(), std::string(kRingBytes - 16, 'x'));
  EXPECT_TRUE(writer_.Push(0, ""));
  EXPECT_EQ(Pop(), "");
}

TEST_F(RingTest, AMessageWaitsForItsStamp) {
  EXPECT_TRUE(writer_.Push(7, "later"));
  std::string bytes;
  EXPECT_THAT(reader_.Pop(6, bytes), IsOkAndHolds(false));
  EXPECT_THAT(reader_.Pop(7, bytes), IsOkAndHolds(true));
  EXPECT_EQ(bytes, "later");
}

TEST_F(RingTest, TheWriterKnowsWhetherTheReaderLooks) {
  EXPECT_FALSE(writer_.IsLookedAt());
  reader_.SetLooks(true);
  EXPECT_TRUE(writer_.IsLookedAt());
  reader_.SetLooks(false);
  EXPECT_FALSE(writer_.IsLookedAt());
}

// RG-2.
TEST_F(RingTest, GarbageIsAnErrorOrWrongBytes) {
  SeededRandom random(TestSeed());
  int errors = 0;
  for (int i = 0; i < 20'000; ++i) {
    RingHead head = {};
    // To its end, so that a sanitizer sees what is beyond.
    const auto data = std::make_unique<std::byte[]>(kRingBytes);
    RingWriter writer({&head, data.get(), kRingBytes});
    RingReader reader({&head, data.get(), kRingBytes});
    for (int j = 0; j < 4; ++j) {
      writer.Push(0, random.Bytes(random.Below(60)));
      const uint64_t word = random.Below(2) == 0
                                ? random.Below(1024)
                                : ~uint64_t{0} - random.Below(1024);
      switch (random.Below(4)) {
        case 0:
          head.written = word;
          break;
        case 1:
          head.read = word;
          break;
        default:
          std::memcpy(data.get() + random.Below(kRingBytes / 8) * 8, &word, 8);
      }
      std::string bytes;
      errors += reader.Pop(kAnyStamp, bytes).ok() ? 0 : 1;
      EXPECT_LE(bytes.size(), kRingBytes);
    }
  }
  EXPECT_GT(errors, 1'000);
}

TEST(RingPairTest, OnlyWhatWasOfferedIsOpened) {
  auto pair = RingPair::Create();
  COHORT_ASSERT_OK(pair);
  EXPECT_FALSE((*pair)->IsShared());
  RingPlace place = (*pair)->place();

  RingPlace other = place;
  other.token[3] ^= 1;
  EXPECT_THAT(RingPair::Open(other),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  // Neither a device nor a file that can be cut.
  const UniqueFd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  other = {.pid = place.pid, .fd = static_cast<uint32_t>(zero.get())};
  EXPECT_THAT(RingPair::Open(other),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  other.fd = 1'000'000;
  EXPECT_FALSE(RingPair::Open(other).ok());
  EXPECT_FALSE((*pair)->IsShared());

  auto opened = RingPair::Open(place);
  COHORT_ASSERT_OK(opened);
  EXPECT_TRUE((*pair)->IsShared());
  std::string bytes;
  EXPECT_TRUE((*pair)->writer().Push(0, "there"));
  EXPECT_THAT((*opened)->reader().Pop(0, bytes), IsOkAndHolds(true));
  EXPECT_EQ(bytes, "there");
  EXPECT_TRUE((*opened)->writer().Push(0, "back"));
  EXPECT_THAT((*pair)->reader().Pop(0, bytes), IsOkAndHolds(true));
  EXPECT_EQ(bytes, "back");

  (*pair)->Close();
  EXPECT_FALSE(RingPair::Open(place).ok());
}

// Two processes: every message, whole, until one is killed.
TEST(RingPairTest, TwoProcesses) {
  auto pair = RingPair::Create();
  COHORT_ASSERT_OK(pair);
  const RingPlace place = (*pair)->place();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto opened = RingPair::Open(place);
    std::string bytes;
    for (uint64_t i = 0; opened.ok(); ++i) {
      while (!(*opened)->reader().Pop(kAnyStamp, bytes).value_or(false)) {
        SpinPause();
      }
      while (!(*opened)->writer().Push(i, bytes)) SpinPause();
    }
    _exit(1);
  }
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) {
    const std::string sent = absl::StrCat(i, std::string(i % 300, 'x'));
    ASSERT_TRUE((*pair)->writer().Push(0, sent));
    while (!(*pair)->reader().HasMore()) SpinPause();
    ASSERT_THAT((*pair)->reader().Pop(kAnyStamp, bytes), IsOkAndHolds(true));
    ASSERT_EQ(bytes, sent);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace cohort::shm
