#include "head/services/event_reader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EventReaderTest : public ::testing::Test {
 protected:
  // Events `first` to `last`, each a second after the other.
  void Store(uint64_t first, uint64_t last) {
    Batch batch;
    for (uint64_t number = first; number <= last; ++number) {
      EventRecord event;
      event.set_number(number);
      *event.mutable_at() = rpc::ToWire(At(number));
      event.set_kind("k");
      if (number % 2 == 0) event.set_job_id(IdBytes(job_.Element(1)));
      if (number % 3 == 0) event.set_node_id(IdBytes(node_));
      batch.push_back(ToWrite(event));
    }
    COHORT_ASSERT_OK(store_.Append(0, batch));
  }
  void Trim(uint64_t first, uint64_t last) {
    Batch batch;
    for (uint64_t number = first; number <= last; ++number) {
      batch.push_back({Table::kEvents, RowKey(number), std::nullopt});
    }
    COHORT_ASSERT_OK(store_.Append(0, batch));
  }
  static absl::Time At(uint64_t number) {
    return absl::FromUnixSeconds(1'000 + static_cast<int64_t>(number));
  }
  static std::vector<uint64_t> NumbersOf(const EventPage& page) {
    std::vector<uint64_t> numbers;
    for (const EventRecord& event : page.events) {
      numbers.push_back(event.number());
    }
    return numbers;
  }
  EventPage Read(const EventQuery& query) {
    const auto page = ReadEvents(store_, query);
    COHORT_EXPECT_OK(page);
    return page.value_or(EventPage());
  }

  SeededRandom random_{7};
  const JobId job_ = JobId::New(random_);
  const NodeId node_ = NodeId::New(random_);
  MemoryDisk disk_;
  MemoryStore store_{disk_};
};

TEST_F(EventReaderTest, GivesWhatIsAboveACursorAndDurable) {
  Store(1, 9);
  const EventPage page = Read({.after = 3, .last = 7});
  EXPECT_THAT(NumbersOf(page), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(page.next, 7u);
  EXPECT_EQ(page.skipped, 0u);
  EXPECT_THAT(NumbersOf(Read({.after = 7, .last = 7})), IsEmpty());
}

TEST_F(EventReaderTest, FindsTheEventsOfAnAttemptOnSeveralNodes) {
  Batch batch;
  for (uint64_t number = 1; number <= 3; ++number) {
    EventRecord event;
    event.set_number(number);
    event.set_kind(number == 2 ? "gang" : "other");
    for (int i = 0; number > 1 && i < 2; ++i) {
      const bool ours = number == 2 && i == 1;
      event.add_node_ids(IdBytes(ours ? node_ : NodeId::New(random_)));
    }
    batch.push_back(ToWrite(event));
  }
  COHORT_ASSERT_OK(store_.Append(0, batch));
  EXPECT_THAT(NumbersOf(Read({.last = 3, .filter = {.nodes = {node_}}})),
              ElementsAre(2));
  EXPECT_THAT(NumbersOf(Read({.last = 3, .filter = {.kind = "gang"}})),
              ElementsAre(2));
  EXPECT_THAT(NumbersOf(Read({.last = 3, .filter = {.kind = "other"}})),
              ElementsAre(1, 3));
}

// EV-1.
TEST_F(EventReaderTest, ShowsEachEventOncePageByPage) {
  Store(1, 25);
  for (const size_t rows : {1, 3, 7, 100}) {
    for (const size_t events : {1, 4, 100}) {
      EventQuery query{.last = 25, .events_max = events, .rows_max = rows};
      std::vector<uint64_t> seen;
      while (query.after < query.last) {
        const EventPage page = Read(query);
        ASSERT_GT(page.next, query.after);
        for (const uint64_t number : NumbersOf(page)) seen.push_back(number);
        query.after = page.next;
      }
      ASSERT_EQ(seen.size(), 25u) << rows << " " << events;
      for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i + 1);
    }
  }
}

TEST_F(EventReaderTest, SaysWhatHistoryHasTrimmed) {
  Store(1, 10);
  Trim(1, 6);
  const EventPage page = Read({.after = 2, .last = 10});
  EXPECT_EQ(page.skipped, 4u);
  EXPECT_THAT(NumbersOf(page), ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(Read({.after = 6, .last = 10}).skipped, 0u);
  // All that was asked for.
  const EventPage gone = Read({.after = 2, .last = 5});
  EXPECT_EQ(gone.skipped, 3u);
  EXPECT_EQ(gone.next, 5u);
  EXPECT_THAT(NumbersOf(gone), IsEmpty());
}

TEST_F(EventReaderTest, LooksAtTimeJobAndNode) {
  Store(1, 12);
  EventQuery query{.last = 12};
  query.filter.since = At(9);
  EXPECT_THAT(NumbersOf(Read(query)), ElementsAre(9, 10, 11, 12));
  query.filter.job = job_;  // the array of the element
  EXPECT_THAT(NumbersOf(Read(query)), ElementsAre(10, 12));
  query.filter.job = job_.Element(1);
  EXPECT_THAT(NumbersOf(Read(query)), ElementsAre(10, 12));
  query.filter.job = job_.Element(2);
  EXPECT_THAT(NumbersOf(Read(query)), IsEmpty());
  query.filter = {.nodes = {node_}};
  EXPECT_THAT(NumbersOf(Read(query)), ElementsAre(3, 6, 9, 12));
}

TEST_F(EventReaderTest, RefusesADamagedRow) {
  Store(1, 3);
  disk_.Corrupt(Table::kEvents, RowKey(2), "garbage");
  EXPECT_THAT(ReadEvents(store_, {.last = 3}).status(),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace cohort::head
