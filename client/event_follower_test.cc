#include "client/event_follower.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A head with its events, of which each restore makes another history.
class Head {
 public:
  void Add(int count, const std::string& kind = "k") {
    for (; count > 0; --count) events_.push_back(Of(kind, ""));
  }
  // What it has now, to restore it later.
  std::vector<v1::Event> Backup() const { return events_; }
  void Restore(std::vector<v1::Event> backup) {
    events_ = std::move(backup);
    generation_ = absl::StrCat("g", ++restores_);
    events_.push_back(
        Of("store_restored",
           absl::StrCat("generation ", absl::BytesToHexString(generation_))));
  }
  void Trim(size_t count) { trimmed_ = count; }

  absl::StatusOr<v1::ListEventsResponse> List(
      const v1::ListEventsRequest& request) const {
    if (!request.generation().empty() && request.generation() != generation_) {
      return SetReason(absl::FailedPreconditionError("other history"),
                       "history_replaced");
    }
    if (request.after() > events_.size()) {
      return absl::OutOfRangeError("no such event");
    }
    if (request.wait() && request.after() == events_.size()) {
      return absl::DeadlineExceededError("nothing new");
    }
    v1::ListEventsResponse page;
    page.set_generation(generation_);
    size_t at = request.after();
    if (at < trimmed_) page.set_skipped(trimmed_ - at);
    at = std::max(at, trimmed_);
    for (size_t looked_at = 0; looked_at < 2 && at < events_.size();
         ++looked_at, ++at) {
      v1::Event event = events_[at];
      event.set_number(at + 1);
      const bool wanted =
          request.kind().empty() || request.kind() == event.kind();
      const bool of_job = request.job_id().empty() || event.kind() == "job";
      if (wanted && of_job) *page.add_events() = event;
    }
    page.set_next(at);
    page.set_more(at < events_.size());
    return page;
  }

 private:
  static v1::Event Of(const std::string& kind, const std::string& text) {
    v1::Event event;
    event.set_kind(kind);
    event.set_text(text);
    return event;
  }

  std::vector<v1::Event> events_;
  std::string generation_ = "g0";
  int restores_ = 0;
  size_t trimmed_ = 0;
};

class EventFollowerTest : public ::testing::Test {
 protected:
  // Follows until there is nothing new, then does `next` and goes on, once for
  // each of them.
  void Follow(std::vector<std::function<void()>> next,
              v1::ListEventsRequest request = {}) {
    size_t done = 0;
    const auto ask = [&](const v1::ListEventsRequest& asked) {
      auto page = head_.List(asked);
      while (absl::IsDeadlineExceeded(page.status()) && done < next.size()) {
        next[done++]();
        page = head_.List(asked);
      }
      return page;
    };
    const auto sink = [&](const Event& event, const EventPlace& place) {
      seen_.push_back(event.number());
      if (place.history_replaced) replaced_.push_back(event.number());
      skipped_ += place.skipped;
      return absl::OkStatus();
    };
    EXPECT_THAT(EventFollower(ask, request, /*follows=*/true, sink).Run(),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    EXPECT_EQ(done, next.size());
  }

  Head head_;
  std::vector<uint64_t> seen_;
  std::vector<uint64_t> replaced_;
  uint64_t skipped_ = 0;
};

TEST_F(EventFollowerTest, GoesOnWithWhatComes) {
  head_.Add(5);
  Follow({[&] { head_.Add(2); }});
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(replaced_, IsEmpty());
}

// EF-1, where the old life had as many events and more.
TEST_F(EventFollowerTest, ARestoreIsToldAndFollowedFromWhereHistoriesPart) {
  head_.Add(3);
  const auto backup = head_.Backup();
  head_.Add(4);  // 4 to 7, which the new history has otherwise
  Follow({[&] {
    head_.Restore(backup);
    head_.Add(2);
  }});
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4, 5, 6, 7, 4, 5, 6));
  EXPECT_THAT(replaced_, ElementsAre(4));
}

TEST_F(EventFollowerTest, ANewHistoryThatIsLongerAlreadyIsNoticed) {
  head_.Add(3);
  const auto backup = head_.Backup();
  head_.Add(1);
  Follow({[&] {
    head_.Restore(backup);
    head_.Add(9);
  }});
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  EXPECT_THAT(replaced_, ElementsAre(4));
}

TEST_F(EventFollowerTest, WhoWasBehindTheBackupMissesNothing) {
  head_.Add(3);
  std::vector<v1::Event> backup;
  Follow({[&] {
    head_.Add(2);
    backup = head_.Backup();
    head_.Add(7);
    head_.Restore(backup);
  }});
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(replaced_, ElementsAre(6));
}

TEST_F(EventFollowerTest, WhoFiltersIsToldToo) {
  head_.Add(2, "job");
  const auto backup = head_.Backup();
  head_.Add(2, "job");
  v1::ListEventsRequest request;
  request.set_job_id("job");
  Follow({[&] {
            head_.Restore(backup);
            head_.Add(3);
          },
          [&] { head_.Add(1, "job"); }},
         request);
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4, 3, 7));
  EXPECT_THAT(replaced_, ElementsAre(3));
}

TEST_F(EventFollowerTest, EachOfSeveralRestoresIsFollowed) {
  head_.Add(2);
  const auto first = head_.Backup();
  head_.Add(1);
  std::vector<v1::Event> second;
  Follow({[&] {
            head_.Restore(first);  // 3
            head_.Add(1);
          },
          [&] {
            second = head_.Backup();
            head_.Add(2);  // 5 and 6
          },
          [&] { head_.Restore(second); },  // 5
          // Both at once, and of the first backup again.
          [&] {
            head_.Restore(second);
            head_.Restore(first);  // 3
          }});
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 3, 4, 5, 6, 5, 3));
  EXPECT_THAT(replaced_, ElementsAre(3, 5, 3));
}

TEST_F(EventFollowerTest, ARestoreThatIsNotKeptAnyMoreIsToldWithTheNextEvent) {
  head_.Add(3);
  const auto backup = head_.Backup();
  Follow({[&] {
    head_.Restore(backup);
    head_.Add(3);
    head_.Trim(5);
  }});
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 6, 7));
  EXPECT_THAT(replaced_, ElementsAre(6));
  EXPECT_EQ(skipped_, 0u);
}

}  // namespace
}  // namespace cohort::client
