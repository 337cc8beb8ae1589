#include "head/services/last_logs.h"

#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::head {
namespace {

class LastLogsTest : public ::testing::Test {
 protected:
  absl::Status Keep(LastLogs& logs, const LastLogs::Name& name,
                    const std::vector<std::string>& pieces, int64_t offset) {
    v1::LastLog log;
    log.set_node_name("w1");
    for (const std::string& data : pieces) {
      v1::LogPiece* const piece = log.add_pieces();
      piece->set_offset(offset);
      piece->set_data(data);
      offset += static_cast<int64_t>(data.size());
    }
    std::optional<absl::Status> answer;
    logs.Keep(name, std::move(log),
              [&](absl::Status status) { answer = std::move(status); });
    time_.RunUntilIdle();
    return answer.value_or(absl::InternalError("no answer"));
  }
  absl::StatusOr<LastLogs::Found> Read(LastLogs& logs,
                                       const LastLogs::Name& name,
                                       int64_t offset) {
    std::optional<absl::StatusOr<LastLogs::Found>> answer;
    logs.Read(name, offset, [&](absl::StatusOr<LastLogs::Found> found) {
      answer = std::move(found);
    });
    time_.RunUntilIdle();
    return answer.value_or(absl::InternalError("no answer"));
  }
  LastLogs::Name Name() { return {.attempt = AttemptId::New(random_)}; }

  ManualExecutor time_;
  SeededRandom random_{1};
  TempDir temp_;
};

TEST_F(LastLogsTest, GivesWhatWasKeptFromAnyOffset) {
  LastLogs logs(temp_.File("logs"), {}, time_, time_);
  const LastLogs::Name name = Name();
  EXPECT_TRUE(absl::IsNotFound(Read(logs, name, 0).status()));
  COHORT_ASSERT_OK(Keep(logs, name, {"abc", "defg"}, 100));
  struct Case {
    int64_t offset, found_at;
    std::string data;
    bool end;
  };
  for (const Case& each :
       {Case{0, 100, "abc", false}, Case{101, 101, "bc", false},
        Case{103, 103, "defg", true}, Case{107, 107, "", true},
        Case{900, 107, "", true}, Case{-2, 105, "fg", true},
        Case{-1000, 100, "abc", false}}) {
    SCOPED_TRACE(each.offset);
    const auto found = Read(logs, name, each.offset);
    COHORT_ASSERT_OK(found);
    EXPECT_EQ(found->node_name, "w1");
    EXPECT_EQ(found->piece.offset(), each.found_at);
    EXPECT_EQ(found->piece.data(), each.data);
    EXPECT_EQ(found->piece.end(), each.end);
  }
  LastLogs again(temp_.File("logs"), {}, time_, time_);
  EXPECT_TRUE(Read(again, name, 0).ok());
}

TEST_F(LastLogsTest, TheyGoWithTheirAttempts) {
  LastLogs logs(temp_.File("logs"), {}, time_, time_);
  const auto all = [](const AttemptId&) { return true; };
  logs.RemoveForgotten(all);  // there is no directory yet
  const LastLogs::Name kept = Name();
  const LastLogs::Name forgotten = Name();
  COHORT_ASSERT_OK(Keep(logs, kept, {"abc"}, 0));
  COHORT_ASSERT_OK(Keep(logs, forgotten, {"abc"}, 0));
  logs.RemoveForgotten(all);
  time_.RunUntilIdle();
  EXPECT_TRUE(Read(logs, forgotten, 0).ok());
  logs.RemoveForgotten(
      [&](const AttemptId& attempt) { return attempt == kept.attempt; });
  time_.RunUntilIdle();
  EXPECT_TRUE(Read(logs, kept, 0).ok());
  EXPECT_TRUE(absl::IsNotFound(Read(logs, forgotten, 0).status()));
}

TEST_F(LastLogsTest, TheOldestGoWhenThereAreTooMany) {
  LastLogs logs(temp_.File("logs"), {.files = 10}, time_, time_);
  const LastLogs::Name first = Name();
  COHORT_ASSERT_OK(Keep(logs, first, {"a"}, 0));
  LastLogs::Name last;
  for (int i = 0; i < 30; ++i) {
    last = Name();
    COHORT_ASSERT_OK(Keep(logs, last, {"a"}, 0));
  }
  EXPECT_FALSE(Read(logs, first, 0).ok());
  EXPECT_TRUE(Read(logs, last, 0).ok());
  const auto files = std::filesystem::directory_iterator(temp_.File("logs"));
  EXPECT_LE(std::distance(begin(files), end(files)), 10);

  LastLogs small(temp_.File("small"), {.bytes = 5'000}, time_, time_);
  for (int i = 0; i < 30; ++i) {
    COHORT_ASSERT_OK(Keep(small, Name(), {std::string(1'000, 'x')}, 0));
  }
  const auto left = std::filesystem::directory_iterator(temp_.File("small"));
  EXPECT_LE(std::distance(begin(left), end(left)), 4);
}

TEST_F(LastLogsTest, AFullDiskKeepsNone) {
  LastLogs logs(temp_.File("logs"), {.bytes_kept_free = INT64_MAX / 2}, time_,
                time_);
  EXPECT_TRUE(absl::IsResourceExhausted(Keep(logs, Name(), {"a"}, 0)));
}

}  // namespace
}  // namespace cohort::head
