#include "head/autoscaler/provider_watch.h"

#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/latch.h"
#include "common/strand.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "head/autoscaler/followed_program.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ProviderWatchTest : public ::testing::Test {
 protected:
  ~ProviderWatchTest() override {
    watch_.reset();
    strand_.Stop();
    pool_.Stop();
  }
  std::vector<std::string> Script(const std::string& body) {
    std::string path = directory_.path() + "/provider";
    std::ofstream(path) << "#!/bin/sh\n" << body;
    chmod(path.c_str(), 0755);
    return {path, "watch"};
  }
  absl::Status Follow(const std::string& body) {
    return FollowProgram(
        Script(body), kVariables,
        [this](std::string line) { lines_.push_back(std::move(line)); }, stop_);
  }
  // Until `count` events have come.
  void Watch(const std::string& body, size_t count) {
    watch_.emplace(Script(body), kVariables, strand_,
                   [this, count](const ProviderEvent& event) {
                     events_.push_back(event);
                     if (events_.size() == count) there_.Open();
                   });
    there_.Wait();
  }

  const std::vector<std::string> kVariables = {"PATH=/usr/bin:/bin"};
  TempDir directory_;
  std::atomic<bool> stop_ = false;
  std::vector<std::string> lines_;
  std::vector<ProviderEvent> events_;  // the strand's
  Latch there_;
  ThreadPool pool_{2};
  Strand strand_{pool_};
  std::optional<ProviderWatch> watch_;
};

TEST_F(ProviderWatchTest, GivesLinesAndHowAProgramEnded) {
  COHORT_EXPECT_OK(Follow("echo a; echo; printf 'b\\nhalf'"));
  EXPECT_THAT(lines_, ElementsAre("a", "b"));
  EXPECT_EQ(Follow("echo one >&2; echo no quota >&2; exit 3"),
            absl::AbortedError("exit status 3: no quota"));
  EXPECT_EQ(Follow("echo no such command >&2; exit 2"),
            absl::UnimplementedError("exit status 2: no such command"));
  EXPECT_EQ(Follow("kill -9 $$"), absl::AbortedError("ended by signal 9"));
  EXPECT_EQ(FollowProgram(
                {"/nothing/there"}, {}, [](const std::string&) {}, stop_)
                .code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ProviderWatchTest, CutsALineWithoutEnd) {
  COHORT_EXPECT_OK(
      Follow("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo b"));
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_EQ(lines_[0].size(), kFollowedLineBytesMax);
  EXPECT_EQ(lines_[1], "b");
}

TEST_F(ProviderWatchTest, WhatItLeavesInItsGroupGoesWithIt) {
  COHORT_EXPECT_OK(Follow("sleep 1000 >/dev/null 2>&1 & echo $!"));
  ASSERT_THAT(lines_, SizeIs(1));
  // Once the kernel has ended it, this is empty.
  std::string first = "sleep";
  while (first == "sleep") {
    std::ifstream words(absl::StrCat("/proc/", lines_[0], "/cmdline"));
    first.clear();
    std::getline(words, first, '\0');
  }
}

TEST_F(ProviderWatchTest, TellsEventsThroughGarbageAndEnds) {
  Watch(R"(
echo garbage
echo '{"event": "asleep", "id": "a"}'
echo '{"event": "notice", "id": "a"}'
echo '{"event": "notice", "id": "a", "deadline_s": -1}'
echo '{"event": "notice", "id": "a", "deadline_s": 30, "reason": "spot"}'
echo '{"event": "gone", "id": "b"}'
exit 1
)",
        4);  // it was started again
  EXPECT_EQ(events_[0].id, "a");
  EXPECT_EQ(events_[0].notice, absl::Seconds(30));
  EXPECT_EQ(events_[0].reason, "spot");
  EXPECT_EQ(events_[1].id, "b");
  EXPECT_FALSE(events_[1].notice.has_value());
  EXPECT_EQ(events_[2].id, "a");
}

TEST_F(ProviderWatchTest, EndsAProgramThatOnlyWaits) {
  Watch(R"(echo '{"event": "gone", "id": "b"}'; exec sleep 1000)", 1);
  watch_.reset();  // does not wait for it
}

TEST(ParseProviderEventTest, SaysWhatIsWrong) {
  for (const char* line :
       {"", "[]", "{}", R"({"event": "gone"})", R"({"id": "a"})",
        R"({"event": "gone", "id": 3})",
        R"({"event": "notice", "id": "a", "deadline_s": "1"})"}) {
    EXPECT_EQ(ParseProviderEvent(line).status().code(),
              absl::StatusCode::kInvalidArgument)
        << line;
  }
  EXPECT_THAT(std::string(ParseProviderEvent(R"({"event": "up", "id": "a"})")
                              .status()
                              .message()),
              HasSubstr("gone or notice"));
}

}  // namespace
}  // namespace cohort::head
