#include "head/state/history.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "head/services/event_reader.h"
#include "head/state/cluster_state.h"
#include "head/state/history_line.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "head/testing/no_links.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Whose wall clock a test sets as it likes.
class JumpyClock final : public Clock {
 public:
  absl::Duration Monotonic() const override { return monotonic_; }
  absl::Time Wall() const override { return wall_; }

  void Advance(absl::Duration by) {
    monotonic_ += by;
    wall_ += by;
  }
  void StepWall(absl::Duration by) { wall_ += by; }

 private:
  absl::Duration monotonic_ = absl::Hours(1);
  absl::Time wall_ = absl::FromUnixSeconds(1'700'000'000);
};

constexpr absl::Duration kDay = absl::Hours(24);
constexpr int64_t kMany = 1'000'000'000;

// ---- one kind ----

class HistoryLineTest : public ::testing::Test {
 protected:
  using Line = HistoryLine<uint64_t>;

  static std::vector<uint64_t> TrimAll(Line& line) {
    std::vector<uint64_t> gone;
    while (const std::optional<uint64_t> due = line.Due()) {
      gone.push_back(*due);
      line.Trim(*due);
    }
    return gone;
  }

  JumpyClock clock_;
};

TEST_F(HistoryLineTest, KeepsTheNewestByCount) {
  Line line({.count_max = 10, .bytes_max = kMany, .age_max = kDay}, clock_);
  std::vector<uint64_t> gone;
  for (uint64_t i = 0; i < 1'000; ++i) {
    line.Put(i, 1);
    for (const uint64_t each : TrimAll(line)) gone.push_back(each);
    ASSERT_LE(line.count(), 10);
  }
  ASSERT_THAT(gone, SizeIs(990));
  for (uint64_t i = 0; i < gone.size(); ++i) EXPECT_EQ(gone[i], i);
  EXPECT_EQ(line.Level("x").trimmed, 990);
}

TEST_F(HistoryLineTest, KeepsTheNewestByBytes) {
  Line line({.count_max = kMany, .bytes_max = 1'000, .age_max = kDay}, clock_);
  for (uint64_t i = 0; i < 1'000; ++i) {
    line.Put(i, static_cast<int64_t>(i % 100));
    TrimAll(line);
    ASSERT_LE(line.bytes(), 1'000);
  }
  EXPECT_EQ(line.Oldest(), 990u);
  line.Put(990, 1'000);  // it has grown, in its place
  EXPECT_THAT(TrimAll(line), ElementsAre(990));
}

TEST_F(HistoryLineTest, KeepsTheYoungByAge) {
  Line line({.count_max = kMany, .bytes_max = kMany, .age_max = kDay}, clock_);
  for (uint64_t i = 0; i < 100; ++i) {
    line.Put(i, 1);
    clock_.Advance(absl::Hours(1));
    TrimAll(line);
    ASSERT_LE(line.count(), 24);
  }
  EXPECT_EQ(line.Oldest(), 77u);
  line.Renew(77);
  EXPECT_EQ(line.Oldest(), 78u);
  line.Remove(78);
  EXPECT_EQ(line.Oldest(), 79u);
  EXPECT_EQ(line.bytes(), line.count());
}

TEST_F(HistoryLineTest, KeepsTheVeryYoungWhateverTheirNumber) {
  Line line({.count_max = 1,
             .bytes_max = 1,
             .age_max = kDay,
             .age_min = absl::Minutes(2)},
            clock_);
  for (uint64_t i = 0; i < 10; ++i) line.Put(i, 10);
  EXPECT_THAT(TrimAll(line), IsEmpty());
  clock_.Advance(absl::Minutes(2));
  line.Put(10, 0);
  EXPECT_THAT(TrimAll(line), SizeIs(10));
}

TEST_F(HistoryLineTest, NoStepOfTheWallClockMakesAnythingOld) {
  Line line({.count_max = kMany, .bytes_max = kMany, .age_max = kDay}, clock_);
  for (uint64_t i = 0; i < 10; ++i) line.Put(i, 1);
  clock_.StepWall(absl::Hours(10 * 365 * 24));
  EXPECT_THAT(TrimAll(line), IsEmpty());
  clock_.StepWall(-absl::Hours(20 * 365 * 24));
  EXPECT_THAT(TrimAll(line), IsEmpty());
  clock_.Advance(kDay);
  EXPECT_THAT(TrimAll(line), SizeIs(10));
}

TEST_F(HistoryLineTest, CountsAgeAcrossStarts) {
  std::vector<Line::Loaded> stored;
  for (uint64_t day = 0; day < 60; ++day) {
    stored.push_back({day, clock_.Wall(), 1});
    clock_.Advance(kDay);
  }
  Line line({.count_max = kMany, .bytes_max = kMany, .age_max = 30 * kDay},
            clock_);
  line.Load(stored);
  EXPECT_EQ(TrimAll(line).size(), 31u);
  EXPECT_EQ(line.Oldest(), 31u);
  line.Put(60, 1);
  EXPECT_EQ(line.count(), 30);
}

TEST_F(HistoryLineTest, AWrongWallClockAtAStartMakesNothingOld) {
  for (const int years : {10, -10}) {
    for (const bool then : {true, false}) {
      std::vector<Line::Loaded> stored;
      for (uint64_t i = 0; i < 10; ++i) {
        // It was wrong while half of them were stored, or is so now.
        if (then && i == 5) clock_.StepWall(years * 365 * kDay);
        stored.push_back({i, clock_.Wall(), 1});
      }
      if (!then) clock_.StepWall(years * 365 * kDay);
      Line line({.count_max = kMany, .bytes_max = kMany, .age_max = 30 * kDay},
                clock_);
      line.Load(stored);
      EXPECT_THAT(TrimAll(line), IsEmpty()) << years << " years";
      clock_.Advance(28 * kDay);
      EXPECT_THAT(TrimAll(line), IsEmpty()) << years << " years";
      clock_.Advance(2 * kDay);
      EXPECT_THAT(TrimAll(line), SizeIs(10)) << years << " years";
    }
  }
}

TEST_F(HistoryLineTest, AgeBeginsAnewWhereTooEarlyIsWorse) {
  Line line({.count_max = kMany,
             .bytes_max = kMany,
             .age_max = kDay,
             .age_begins_anew = true},
            clock_);
  line.Load({{1, clock_.Wall() - 2 * kDay, 1}, {2, clock_.Wall() - kDay, 1}});
  clock_.Advance(kDay - absl::Seconds(1));
  EXPECT_THAT(TrimAll(line), IsEmpty());
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(TrimAll(line), ElementsAre(1, 2));
}

// ---- a head's ----

// A state over a memory store; each change is committed at once.
class HistoryTest : public ::testing::Test, public NoLinks {
 protected:
  HistoryTest() {
    for (HistoryCaps* caps : {&limits_.history.jobs, &limits_.history.events,
                              &limits_.history.nodes, &limits_.history.requests,
                              &limits_.history.wait_reasons}) {
      caps->count_max = kMany;
      caps->bytes_max = kMany;
    }
    limits_.history.elements_max = kMany;
    Start();
  }

  // As a start of the head.
  void Start() {
    store_ = std::make_unique<MemoryStore>(disk_);
    absl::StatusOr<Rows> rows = LoadRows(*store_);
    COHORT_ASSERT_OK(rows);
    const uint64_t term = rows->cluster ? rows->cluster->term() : 0;
    state_ = std::make_unique<ClusterState>(limits_, clock_, random_, *this,
                                            *this, *std::move(rows));
    Transition transition;
    state_->TakeTerm(transition);
    COHORT_ASSERT_OK(store_->Append(term, transition.TakeBatch()));
  }

  // Gives how many rows it deleted.
  size_t Submit(Transition transition) {
    const Batch batch = transition.TakeBatch();
    if (!batch.empty()) {
      EXPECT_THAT(store_->Append(state_->cluster().term(), batch), IsOk());
    }
    size_t deleted = 0;
    for (const Write& write : batch) deleted += !write.value.has_value();
    return deleted;
  }

  RequestKey Key() {
    return {.principal = "cluster",
            .request_id = absl::StrCat("request-", ++requests_),
            .body_hash = "body"};
  }

  JobId Add(JobSpec spec = OneWorker()) {
    SetCommand(spec, {"train"});
    SetResource(spec, kCpu, Amount::FromUnits(1));
    Transition transition;
    const auto job = state_->SubmitJob(Key(), "default", spec, transition);
    EXPECT_THAT(job, IsOk());
    Submit(std::move(transition));
    return job.value_or(JobId());
  }
  void Stop(const JobId& job) {
    Transition transition;
    EXPECT_THAT(state_->StopJob(Key(), job, transition), IsOk());
    Submit(std::move(transition));
    while (state_->HasToGoOn()) {
      Transition turn;
      state_->GoOn(turn);
      Submit(std::move(turn));
    }
  }
  absl::Status Remove(const JobId& job) {
    Transition transition;
    const absl::Status removed = state_->RemoveJob(Key(), job, transition);
    Submit(std::move(transition));
    return removed;
  }
  JobId AddEnded(JobSpec spec = OneWorker()) {
    const JobId job = Add(std::move(spec));
    Stop(job);
    return job;
  }

  size_t Tick() {
    clock_.Advance(limits_.tick_period);
    Transition transition;
    state_->Tick(transition);
    return Submit(std::move(transition));
  }

  HistoryLevel Level(const std::string& kind) const {
    for (const HistoryLevel& level : state_->HistoryLevels()) {
      if (kind == level.kind) return level;
    }
    ADD_FAILURE() << "no kind " << kind;
    return {};
  }

  // What the store has of a table: rows, bytes.
  std::pair<int64_t, int64_t> Stored(Table table) {
    MemoryStore reader(disk_);
    const auto rows = reader.LoadAll(table);
    EXPECT_THAT(rows, IsOk());
    int64_t bytes = 0;
    for (const auto& [key, value] : *rows) {
      bytes += static_cast<int64_t>(key.size() + value.size());
    }
    return {static_cast<int64_t>(rows->size()), bytes};
  }

  // HI-1 of events, with what is on disk.
  void ExpectEventsCounted() {
    const auto [rows, bytes] = Stored(Table::kEvents);
    EXPECT_EQ(Level("events").count, rows);
    EXPECT_EQ(Level("events").bytes, bytes);
  }
  // Where every job has ended.
  void ExpectJobsCounted() {
    int64_t bytes = 0;
    for (const Table table : {Table::kJobs, Table::kAttempts, Table::kProcesses,
                              Table::kArrays, Table::kSpecs}) {
      bytes += Stored(table).second;
    }
    EXPECT_EQ(Level("jobs").bytes, bytes);
  }

  ClusterLimits limits_;
  JumpyClock clock_;
  SeededRandom random_{11};
  MemoryDisk disk_;
  std::unique_ptr<MemoryStore> store_;
  std::unique_ptr<ClusterState> state_;
  int requests_ = 0;
};

// HI-1, HI-2.
TEST_F(HistoryTest, KeepsTheJobsThatEndedLast) {
  limits_.history.jobs.count_max = 10;
  Start();
  // Submitted first, ended last.
  const JobId slow = Add();
  std::vector<JobId> jobs;
  for (int i = 0; i < 100; ++i) {
    jobs.push_back(AddEnded());
    ASSERT_LE(Level("jobs").count, 10);
  }
  Stop(slow);
  Tick();
  ExpectJobsCounted();
  EXPECT_EQ(state_->jobs().size(), 10u);
  EXPECT_NE(state_->jobs().Find(slow), nullptr);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(state_->jobs().Find(jobs[i]) != nullptr, i >= 91) << i;
  }
}

// HI-1.
TEST_F(HistoryTest, KeepsJobsWithinTheirBytes) {
  limits_.history.jobs.bytes_max = 20'000;
  Start();
  JobSpec spec = OneWorker();
  for (int i = 0; i < 200; ++i) {
    spec.set_name(std::string(static_cast<size_t>(i * 7 % 200), 'n'));
    AddEnded(spec);
    Tick();
    ASSERT_LE(Level("jobs").bytes, 20'000);
  }
  ExpectJobsCounted();
  EXPECT_GT(state_->jobs().size(), 20u);
}

// HI-1.
TEST_F(HistoryTest, KeepsJobsForTheirTime) {
  Start();
  for (int day = 0; day < 100; ++day) {
    AddEnded();
    clock_.Advance(kDay);
    Tick();
    ASSERT_LE(state_->jobs().size(), 31u);
    // A start changes little.
    if (day % 7 == 3) {
      Start();
      Tick();
    }
  }
  EXPECT_GE(state_->jobs().size(), 29u);
  clock_.Advance(30 * kDay);
  Tick();
  EXPECT_EQ(state_->jobs().size(), 0u);
  EXPECT_EQ(Level("jobs").bytes, 0);
}

// HI-1.
TEST_F(HistoryTest, KeepsTheLastEventsByCountBytesAndAge) {
  limits_.history.events.count_max = 50;
  Start();
  for (int i = 0; i < 200; ++i) {
    AddEnded();
    ASSERT_LE(Level("events").count, 50);
  }
  ExpectEventsCounted();
  limits_.history.events.bytes_max = 3'000;
  Start();
  for (int i = 0; i < 200; ++i) {
    AddEnded();
    Tick();
    ASSERT_LE(Level("events").bytes, 3'000);
  }
  ExpectEventsCounted();
  clock_.Advance(limits_.history.events.age_max);
  Tick();
  EXPECT_EQ(Stored(Table::kEvents).first, 0);
  AddEnded();
  ExpectEventsCounted();
}

// EV-1: who asks for what was trimmed is told how much.
TEST_F(HistoryTest, TellsWhoFollowsEventsOfTheGap) {
  limits_.history.events.count_max = 10;
  Start();
  for (int i = 0; i < 100; ++i) AddEnded();
  const uint64_t last = state_->cluster().next_event() - 1;
  const auto page = ReadEvents(*store_, {.after = 5, .last = last});
  COHORT_ASSERT_OK(page);
  EXPECT_THAT(page->events, SizeIs(10));
  EXPECT_EQ(page->skipped, last - 5 - 10);
  EXPECT_EQ(page->events.front().number(), last - 9);
}

// What a start finds is what there was.
TEST_F(HistoryTest, CountsTheSameAfterAStart) {
  JobSpec array = OneWorker();
  array.set_array("0-29");
  for (int i = 0; i < 20; ++i) {
    AddEnded();
    AddEnded(array);
    clock_.Advance(absl::Hours(3));
  }
  Add();
  std::map<std::string, std::pair<int64_t, int64_t>> before;
  for (const HistoryLevel& level : state_->HistoryLevels()) {
    before[level.kind] = {level.count, level.bytes};
  }
  EXPECT_EQ(before["jobs"].first, 40);
  Start();
  for (const HistoryLevel& level : state_->HistoryLevels()) {
    if (std::string(level.kind) == "events") continue;  // one more
    EXPECT_EQ(before[level.kind], std::make_pair(level.count, level.bytes))
        << level.kind;
  }
  ExpectEventsCounted();
}

// However much is beyond the caps at once, a decision stays short, and what
// lives goes on.
TEST_F(HistoryTest, ForgetsABoundedAmountAtOnce) {
  JobSpec spec = OneWorker();
  spec.set_array("0-9999");
  for (int i = 0; i < 3; ++i) AddEnded(spec);
  for (int i = 0; i < 500; ++i) AddEnded();
  EXPECT_EQ(state_->jobs().size(), 30'500u);
  limits_.history.jobs.age_max = kDay;
  limits_.history.events.age_max = kDay;
  Start();
  clock_.Advance(kDay);
  int ticks = 0;
  while (state_->jobs().size() > 1) {
    ASSERT_LT(++ticks, 200);
    EXPECT_LE(Tick(), 3 * 1'000 + 50);
    if (ticks != 5) continue;
    // In the middle of it.
    Add();
    Registration node;
    node.id = NodeId::New(random_);
    node.node.set_name("n");
    node.node.set_host("10.0.0.1");
    SetResource(node.node, kCpu, Amount::FromUnits(1));
    node.observed.set_full(true);
    Transition transition;
    COHORT_ASSERT_OK(state_->RegisterNode(node, transition));
    Submit(std::move(transition));
    EXPECT_EQ(state_->jobs().CountOf(v1::JOB_STATE_STARTING), 1);
  }
  EXPECT_GE(ticks, 30);
  EXPECT_EQ(Stored(Table::kArrays).first, 0);
  EXPECT_EQ(Level("jobs").bytes, 0);
}

// An array that is half gone is not found any more, and a head that starts then
// goes on where the one before was.
TEST_F(HistoryTest, GoesOnWithAnArrayThatIsHalfGone) {
  JobSpec spec = OneWorker();
  spec.set_array("0-4999");
  const JobId array = AddEnded(spec);
  limits_.history.jobs.count_max = 1;
  Start();
  const JobId after = AddEnded();
  Tick();
  ASSERT_GT(state_->jobs().size(), 2u);
  ASSERT_LT(state_->jobs().size(), 5'001u);
  EXPECT_THAT(state_->jobs().Named(array), IsEmpty());
  EXPECT_EQ(StateOf(state_->jobs(), array), std::nullopt);
  // Nothing asks for it now but that it is not whole.
  limits_.history.jobs.count_max = kMany;
  Start();
  EXPECT_THAT(state_->jobs().Named(array), IsEmpty());
  for (int i = 0; i < 10; ++i) Tick();
  EXPECT_EQ(state_->jobs().size(), 1u);
  EXPECT_NE(state_->jobs().Find(after), nullptr);
  EXPECT_EQ(Stored(Table::kArrays).first, 0);
  ExpectJobsCounted();
}

// HI-2.
TEST_F(HistoryTest, KeepsAnArrayWhileAnElementLives) {
  limits_.history.jobs.count_max = 1;
  limits_.history.elements_max = 1;
  Start();
  JobSpec spec = OneWorker();
  spec.set_array("0-99");
  const JobId array = Add(spec);
  for (uint32_t i = 0; i < 99; ++i) Stop(array.Element(i));
  for (int i = 0; i < 3; ++i) AddEnded();
  Tick();
  EXPECT_THAT(state_->jobs().Named(array), SizeIs(100));
  EXPECT_EQ(Level("jobs").count, 1);
  Stop(array.Element(99));
  Tick();
  EXPECT_EQ(state_->jobs().size(), 0u) << "more elements than are kept";
}

TEST_F(HistoryTest, RemovesAnEndedJobWhenAPersonSaysSo) {
  const JobId job = Add();
  EXPECT_THAT(Remove(job), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("only what has ended")));
  Stop(job);
  COHORT_EXPECT_OK(Remove(job));
  EXPECT_EQ(state_->jobs().Find(job), nullptr);
  EXPECT_THAT(Remove(job), StatusIs(absl::StatusCode::kNotFound));
  Start();
  EXPECT_EQ(state_->jobs().size(), 0u);
  EXPECT_EQ(Stored(Table::kSpecs).first, 0);
  ExpectJobsCounted();
}

TEST_F(HistoryTest, RemovesNothingThatOthersWaitFor) {
  const JobId first = AddEnded();
  JobSpec spec = OneWorker();
  spec.set_hold(true);
  AddAfter(spec, first, v1::DEPENDENCY_KIND_ANY);
  Stop(Add(spec));
  COHORT_EXPECT_OK(Remove(first));
  const JobId second = AddEnded();
  spec = OneWorker();
  spec.set_hold(true);
  AddAfter(spec, second, v1::DEPENDENCY_KIND_ANY);
  Add(spec);
  EXPECT_THAT(Remove(second), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("waited for")));
}

// BD-1.
TEST_F(HistoryTest, RemovesALargeArrayInTurns) {
  JobSpec spec = OneWorker();
  spec.set_array("0-4999");
  const JobId array = AddEnded(spec);
  EXPECT_THAT(Remove(array.Element(3)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("remove its array")));
  COHORT_EXPECT_OK(Remove(array));
  EXPECT_GT(state_->jobs().size(), 3'000u);
  EXPECT_THAT(state_->jobs().Named(array), IsEmpty());
  Start();
  for (int i = 0; i < 10; ++i) Tick();
  EXPECT_EQ(state_->jobs().size(), 0u);
  EXPECT_EQ(Stored(Table::kArrays).first, 0);
}

// HI-2.
TEST_F(HistoryTest, KeepsWhatOthersWaitForHoweverOldAndLarge) {
  const JobId first = AddEnded();
  JobSpec spec = OneWorker();
  spec.set_hold(true);
  AddAfter(spec, first, v1::DEPENDENCY_KIND_ANY);
  const JobId waits = Add(spec);
  limits_.history.jobs.count_max = 1;
  limits_.history.jobs.bytes_max = 1;
  limits_.history.jobs.age_max = kDay;
  Start();
  for (int i = 0; i < 10; ++i) AddEnded();
  clock_.Advance(100 * kDay);
  Tick();
  EXPECT_EQ(state_->jobs().size(), 2u);
  EXPECT_NE(state_->jobs().Find(first), nullptr);
  Stop(waits);
  Tick();
  EXPECT_EQ(state_->jobs().size(), 0u);
}

// A wall clock that is far off, either way, and set right again, with starts of
// the head in between: nothing is lost.
TEST_F(HistoryTest, AWallClockThatIsOffLosesNothing) {
  for (const int years : {10, -10}) {
    for (int i = 0; i < 10; ++i) AddEnded();
    const size_t jobs = state_->jobs().size();
    const int64_t events = Level("events").count;
    clock_.StepWall(years * 365 * kDay);
    Tick();
    Start();
    Tick();
    AddEnded();
    clock_.StepWall(-years * 365 * kDay);
    Tick();
    Start();
    Tick();
    EXPECT_EQ(state_->jobs().size(), jobs + 1);
    EXPECT_GE(Level("events").count, events + 2);
    ExpectEventsCounted();
  }
}

// HI-1, HI-2.
TEST_F(HistoryTest, KeepsDeadNodesByCountBytesAndAge) {
  limits_.history.nodes.count_max = 5;
  Start();
  const auto add_dead = [this] {
    Registration node;
    node.id = NodeId::New(random_);
    node.node.set_name(std::string(20, 'n'));
    node.node.set_host("10.0.0.1");
    SetResource(node.node, kCpu, Amount::FromUnits(1));
    node.observed.set_full(true);
    Transition transition;
    COHORT_ASSERT_OK(state_->RegisterNode(node, transition));
    Submit(std::move(transition));
    for (absl::Duration t; t < 2 * limits_.node_timeout;
         t += limits_.tick_period) {
      Tick();
    }
  };
  for (int i = 0; i < 20; ++i) {
    add_dead();
    ASSERT_LE(state_->nodes().CountOf(v1::NODE_STATE_DEAD), 5);
  }
  EXPECT_EQ(Level("nodes").count, 5);
  EXPECT_EQ(Level("nodes").bytes, Stored(Table::kNodes).second);
  limits_.history.nodes.bytes_max = Level("nodes").bytes / 2;
  Start();
  Tick();
  EXPECT_EQ(Level("nodes").count, 2);
  EXPECT_EQ(Level("nodes").bytes, Stored(Table::kNodes).second);
  clock_.Advance(limits_.history.nodes.age_max);
  Tick();
  EXPECT_EQ(state_->nodes().records().size(), 0u);
}

}  // namespace
}  // namespace cohort::head
