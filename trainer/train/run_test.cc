#include "trainer/train/run.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "trainer/local_comm.h"
#include "trainer/testing/thread_gang.h"
#include "trainer/train/testing/run_session.h"

namespace cohort::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trainer::CheckpointRecord;

// y = 3 x, learnt from 40 samples.
class Line final : public trainer::Dataset {
 public:
  explicit Line(int64_t size = 40) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t input_size() const override { return 1; }
  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      inputs[i] = static_cast<float>(ids[i]) / static_cast<float>(size_);
      labels[i] = ids[i];
    }
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
};

struct Case {
  int64_t epochs = 2;
  int64_t batch = 5;
  int64_t samples = 40;
  CheckpointPolicy policy;
  std::optional<CheckpointRecord> restore{};
  // Rank 1 is told at this step that it has to go.
  size_t notice_at = 0;
  int64_t stop_after = 0;
  bool is_scored = false;  // by "score"
  std::string root{};      // of its checkpoints, instead of one of its own
  // Instead of the loss, of that rank.
  std::function<void(Run& run, double loss)> report{};
};

struct Outcome {
  absl::Status status;
  double weight = 0;
  std::string note;
  double score = 0;
  std::vector<HistoryRow> rows;
  std::vector<CheckpointRecord> committed;
  std::string last_report;
  Metrics told;
};

absl::Status Loop(Run& run, const Case& setup, Outcome& outcome) {
  const auto data = std::make_shared<Line>(setup.samples);
  std::vector<double> weight = {run.is_lead() ? 1.0 : 7.0};
  std::vector<double> gradient(1);
  COHORT_RETURN_IF_ERROR(run.Prepare("weight", std::span(weight)));
  COHORT_RETURN_IF_ERROR(run.State("note", outcome.note));
  auto* const loader = run.Loader(data, {.batch_size = setup.batch, .seed = 3});
  run.CheckpointEvery(setup.policy);
  run.StopAfter(setup.stop_after);
  for (auto epoch : run.Epochs(setup.epochs)) {
    for (const auto& batch : epoch.Batches(loader)) {
      double loss = 0;
      gradient[0] = 0;
      for (const float x : batch.inputs) {
        const double off = (weight[0] - 3) * x;
        loss += off * off / static_cast<double>(batch.size());
        gradient[0] += 2 * off * x / static_cast<double>(batch.size());
      }
      COHORT_RETURN_IF_ERROR(run.Average(std::span(gradient)));
      weight[0] -= 0.3 * gradient[0];
      outcome.note += std::to_string(run.step() + 1) + ";";
      if (setup.report != nullptr) {
        setup.report(run, loss);
      } else {
        run.Report({{"loss", loss}});
      }
    }
    const absl::StatusOr<double> score = run.Evaluate(
        "score", *data,
        [](const trainer::Batch& batch) {
          double sum = 0;
          for (const int64_t label : batch.labels) {
            sum += static_cast<double>(label);
          }
          return sum;
        },
        /*batch_size=*/7);
    COHORT_RETURN_IF_ERROR(score.status());
    outcome.score = *score;
  }
  outcome.weight = weight[0];
  return run.status();
}

Outcome TrainRank(trainer::Comm& comm, const std::string& root,
                  const Case& setup) {
  const MachineClock clock;
  RunSession session(comm, root, setup.restore);
  if (comm.rank() == 1 && setup.notice_at > 0) {
    session.on_report = [&](size_t reports) {
      if (reports == setup.notice_at) {
        session.told = trainer::RunNotice{.deadline = absl::Seconds(1)};
      }
    };
  }
  Outcome outcome;
  Run::Options options;
  if (setup.is_scored) options.score_attribute = "score";
  options.on_metrics = [&](const Metrics& metrics) { outcome.told = metrics; };
  Run run(session, nullptr, clock, options);
  absl::Status done = run.Open();
  if (done.ok()) done = Loop(run, setup, outcome);
  outcome.status = run.Close(done);
  outcome.rows = run.history().Rows();
  outcome.committed = session.committed;
  if (!session.reports.empty()) outcome.last_report = session.reports.back();
  return outcome;
}

class RunTest : public ::testing::Test {
 protected:
  // Of each rank.
  std::vector<Outcome> Train(int world, const Case& setup) {
    std::vector<Outcome> outcomes(static_cast<size_t>(world));
    std::string root = setup.root;
    if (root.empty()) {
      root = directory_.File("attempt-" + std::to_string(++attempts_));
    }
    trainer::RunThreadGang(world, [&](trainer::Comm& comm) {
      outcomes[static_cast<size_t>(comm.rank())] = TrainRank(comm, root, setup);
    });
    return outcomes;
  }

 private:
  TempDir directory_;
  int attempts_ = 0;
};

TEST_F(RunTest, GoesOnExactlyFromAnyCheckpoint) {
  const Case setup{.policy = {.steps = 3}};
  const std::vector<Outcome> whole = Train(2, setup);
  COHORT_ASSERT_OK(whole[0].status);
  EXPECT_EQ(whole[0].weight, whole[1].weight) << "both have rank 0's weight";
  // 40 samples over 2 ranks of 5: 4 steps an epoch.
  ASSERT_EQ(whole[0].committed.size(), 4u);
  EXPECT_TRUE(whole[1].committed.empty());
  for (const CheckpointRecord& record : whole[0].committed) {
    Case resumed = setup;
    resumed.restore = record;
    const std::vector<Outcome> again = Train(2, resumed);
    COHORT_ASSERT_OK(again[0].status);
    if (record.step == 8) continue;  // nothing is left to do
    EXPECT_EQ(again[0].weight, whole[0].weight) << record.step;
    EXPECT_EQ(again[0].note, "1;2;3;4;5;6;7;8;");
    ASSERT_EQ(again[0].rows.size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(again[0].rows[i].metrics, whole[0].rows[i].metrics);
    }
  }
}

// From 2 ranks to 3 to 1: what is saved is there, whoever wrote it.
TEST_F(RunTest, GoesOnWithAnotherNumberOfRanks) {
  Case setup{.policy = {.steps = 3}, .stop_after = 3};
  const Outcome two = Train(2, setup)[0];
  COHORT_ASSERT_OK(two.status);
  setup.restore = two.committed.back();
  setup.stop_after = 5;
  const std::vector<Outcome> three = Train(3, setup);
  for (const Outcome& rank : three) COHORT_ASSERT_OK(rank.status);
  EXPECT_EQ(three[1].note, "1;2;3;4;5;");
  EXPECT_EQ(three[0].rows.front().metrics, two.rows.front().metrics);
  setup.restore = three[0].committed.back();
  setup.stop_after = 0;
  const Outcome one = Train(1, setup)[0];
  COHORT_ASSERT_OK(one.status);
  EXPECT_EQ(one.rows[4].metrics, three[0].rows[4].metrics);
  EXPECT_NEAR(one.weight, 3, 0.5);
}

TEST_F(RunTest, FailsBeforeItsFirstStepWhereRanksSeeOtherStorages) {
  TempDir directory;
  std::vector<absl::Status> ends(2);
  trainer::RunThreadGang(2, [&](trainer::Comm& comm) {
    const MachineClock clock;
    RunSession session(comm, directory.File(std::to_string(comm.rank())), {});
    session.SetNodeCount(2);
    train::Run run(session, nullptr, clock, {});
    ends[comm.rank()] = run.Open();
  });
  for (const absl::Status& end : ends) {
    EXPECT_THAT(end, StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("rank 1 does not see")));
  }
}

// On all ranks alike, at a later step.
TEST_F(RunTest, FailsWhenACheckpointCannotBeWritten) {
  Case setup{.policy = {.steps = 1}};
  setup.root = "/proc/none";
  for (const Outcome& outcome : Train(2, setup)) {
    EXPECT_FALSE(outcome.status.ok());
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("/proc/none"));
    EXPECT_TRUE(outcome.committed.empty());
  }
}

TEST_F(RunTest, SavesWhenItIsTold) {
  const auto steps = [](const Outcome& outcome) {
    std::vector<int64_t> at;
    for (const auto& record : outcome.committed) at.push_back(record.step);
    return at;
  };
  EXPECT_THAT(steps(Train(1, {.policy = {.steps = 3}})[0]),
              ElementsAre(3, 6, 8, 9, 12, 15, 16));
  EXPECT_THAT(steps(Train(1, {.policy = {.epoch_ends = false}})[0]),
              ElementsAre(16));
  EXPECT_THAT(steps(Train(1, {.epochs = 1,
                              .policy = {.interval = absl::Duration()}})[0]),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  // What is due at the last batch of an epoch belongs to the next one.
  EXPECT_THAT(steps(Train(1, {.policy = {.steps = 8, .epoch_ends = false}})[0]),
              ElementsAre(8, 16));
  // Wherever in the gang the notice comes, once.
  EXPECT_THAT(steps(Train(2, {.notice_at = 2})[0]), ElementsAre(3, 4, 8));
}

TEST_F(RunTest, ScoresWhatWasEvaluatedAndSavesWhatIsBetter) {
  const auto saved = [&](bool on_improvement) {
    return Train(1, {.epochs = 3,
                     .policy = {.epoch_ends = false,
                                .on_improvement = on_improvement},
                     .is_scored = true})[0]
        .committed;
  };
  // The score is the same in each epoch: the first is the best.
  const std::vector<CheckpointRecord> better = saved(true);
  ASSERT_EQ(better.size(), 2u);
  EXPECT_EQ(better[0].step, 8);
  EXPECT_EQ(better[0].score, 19.5);
  EXPECT_EQ(better[1].step, 24);
  EXPECT_EQ(saved(false).size(), 1u);
  // A step's state that was not evaluated has none.
  const auto steps = Train(1, {.policy = {.steps = 3}, .is_scored = true})[0];
  ASSERT_FALSE(steps.committed.empty());
  EXPECT_FALSE(steps.committed[0].score.has_value());
}

TEST_F(RunTest, TellsTheLastMetrics) {
  const std::vector<Outcome> ranks = Train(2, {});
  EXPECT_EQ(ranks[0].told.at("step"), 8);
  EXPECT_EQ(ranks[0].told.at("score"), 19.5);
  EXPECT_TRUE(ranks[1].told.empty());
}

TEST_F(RunTest, StopsAfterAStepAndGoesOnFromThere) {
  const double whole = Train(1, {})[0].weight;
  const Outcome stopped = Train(1, {.stop_after = 5})[0];
  ASSERT_EQ(stopped.committed.size(), 1u);
  EXPECT_EQ(stopped.committed[0].step, 5);
  EXPECT_EQ(stopped.rows.size(), 5u);
  Case resumed;
  resumed.restore = stopped.committed[0];
  EXPECT_EQ(Train(1, resumed)[0].weight, whole);
}

TEST_F(RunTest, EvaluatesAlikeWhateverTheWorld) {
  for (const int world : {1, 2, 3}) {
    const Outcome outcome = Train(world, {.batch = 2})[0];
    COHORT_ASSERT_OK(outcome.status);
    EXPECT_EQ(outcome.score, 19.5) << world;
    EXPECT_THAT(outcome.last_report, HasSubstr("\"score\":19.5"));
    EXPECT_THAT(outcome.last_report, HasSubstr("\"progress\":1.0"));
  }
}

TEST_F(RunTest, RefusesAMetricThatIsNoNumber) {
  const auto outcomes =
      Train(2, {.report = [](train::Run& run, double loss) {
              const bool breaks = run.rank() == 1 && run.step() == 2;
              run.Report({{"loss", breaks ? std::nan("") : loss}});
            }});
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.status,
                StatusIs(absl::StatusCode::kInternal,
                         HasSubstr("loss is nan at step 3 on rank 1")));
  }
}

TEST_F(RunTest, NoticesRanksThatReportDifferentThings) {
  for (const bool same_number : {true, false}) {
    const auto outcomes =
        Train(2, {.report = [&](train::Run& run, double loss) {
                std::map<std::string, Metric> metrics;
                metrics.emplace(run.is_lead() ? "loss" : "cost", loss);
                if (run.is_lead() && !same_number) metrics.emplace("more", 1);
                run.Report(metrics);
              }});
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("every rank is to ")));
    }
  }
}

TEST_F(RunTest, RefusesWhatCannotBe) {
  EXPECT_THAT(Train(3, {.samples = 2})[0].status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 samples for 3 ranks")));
  Case other;
  other.restore = Train(1, {.epochs = 1})[0].committed.back();
  other.batch = 4;
  EXPECT_THAT(Train(1, other)[0].status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("batch 5, not 4")));
  other.restore->path += "-none";
  EXPECT_THAT(Train(1, other)[0].status,
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("every node of the gang")));
}

// A loop over `data` of one rank, told by `body` what to do in each step.
absl::Status LoopAlone(const std::string& root,
                       std::optional<CheckpointRecord> restore,
                       const std::function<absl::Status(Run&)>& body,
                       RunSession** out = nullptr) {
  static std::unique_ptr<RunSession> session;
  static trainer::LocalComm comm;
  const MachineClock clock;
  session = std::make_unique<RunSession>(comm, root, std::move(restore));
  if (out != nullptr) *out = session.get();
  Run run(*session, nullptr, clock, {});
  COHORT_RETURN_IF_ERROR(run.Open());
  return run.Close(body(run));
}

TEST_F(RunTest, RefusesAnEpochThatIsLeftOrBegunTwice) {
  const auto data = std::make_shared<Line>();
  EXPECT_THAT(
      LoopAlone("/nonexistent", std::nullopt,
                [&](train::Run& run) {
                  auto* const loader = run.Loader(data);
                  run.CheckpointEvery({.epoch_ends = false});
                  for (auto epoch : run.Epochs(2)) {
                    for ([[maybe_unused]] auto& batch : epoch.Batches(loader)) {
                      break;
                    }
                  }
                  return run.status();
                }),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("epoch 1 was left after step 0")));
  EXPECT_THAT(LoopAlone("/nonexistent", std::nullopt,
                        [&](train::Run& run) {
                          auto* const loader = run.Loader(data);
                          for (auto epoch : run.Epochs(2)) {
                            for (int i = 0; i < 2; ++i) {
                              for ([[maybe_unused]] auto& batch :
                                   epoch.Batches(loader)) {
                              }
                            }
                          }
                          return run.status();
                        }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("one loop over Batches")));
}

TEST_F(RunTest, RefusesMetricsThatItCannotShow) {
  const auto data = std::make_shared<Line>();
  for (const char* name : {"step", "progress"}) {
    EXPECT_THAT(LoopAlone("/nonexistent", std::nullopt,
                          [&](train::Run& run) {
                            return run
                                .Evaluate(name, *data,
                                          [](const auto&) { return 1; })
                                .status();
                          }),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  }
  EXPECT_THAT(LoopAlone("/nonexistent", std::nullopt,
                        [&](train::Run& run) {
                          run.Report({{"late", 1}});
                          return run.status();
                        }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("outside of a step")));
  EXPECT_THAT(
      LoopAlone("/nonexistent", std::nullopt,
                [&](train::Run& run) {
                  return run
                      .Evaluate("score", Line(0), [](const auto&) { return 1; })
                      .status();
                }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("on 0 samples")));
}

// Within a step and behind an epoch's last batch: what is saved belongs to a
// step, and a run that resumes has each batch once.
TEST_F(RunTest, SavesBetweenStepsWhereverItIsAsked) {
  TempDir directory;
  const auto sum_of = [&](const char* root, int64_t in_step, bool behind,
                          std::optional<CheckpointRecord> restore,
                          std::vector<CheckpointRecord>& committed) {
    std::vector<double> sum(1);
    RunSession* session = nullptr;
    COHORT_EXPECT_OK(LoopAlone(
        directory.File(root), std::move(restore),
        [&](train::Run& run) -> absl::Status {
          COHORT_RETURN_IF_ERROR(run.Prepare("sum", std::span(sum)));
          auto* const loader =
              run.Loader(std::make_shared<Line>(), {.batch_size = 10});
          for (auto epoch : run.Epochs(2)) {
            for (const auto& batch : epoch.Batches(loader)) {
              for (const int64_t label : batch.labels) {
                sum[0] += static_cast<double>(label);
              }
              if (run.step() + 1 == in_step) {
                COHORT_RETURN_IF_ERROR(run.Checkpoint());
              }
            }
            if (behind) COHORT_RETURN_IF_ERROR(run.Checkpoint());
          }
          return run.status();
        },
        &session));
    committed = session->committed;
    return sum[0];
  };
  std::vector<CheckpointRecord> committed, ignored;
  const double whole = sum_of("whole", 2, true, std::nullopt, committed);
  EXPECT_EQ(whole, 2 * 780);
  ASSERT_EQ(committed.size(), 3u);  // of steps 2, 4 and 8
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sum_of(i == 0 ? "a" : "b", 0, false, committed[i], ignored),
              whole)
        << committed[i].step;
  }
}

TEST_F(RunTest, RefusesToPrepareTwiceAndStateOfAnotherType) {
  trainer::RunThreadGang(1, [&](trainer::Comm& comm) {
    const MachineClock clock;
    RunSession session(comm, "/nonexistent", Train(1, {})[0].committed.back());
    train::Run run(session, nullptr, clock, {});
    COHORT_ASSERT_OK(run.Open());
    std::vector<double> weight(1);
    COHORT_ASSERT_OK(run.Prepare("weight", std::span(weight)));
    double number = 0;
    EXPECT_THAT(run.State("note", number),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("\"note\" is of another type")));
    EXPECT_THAT(run.status(), StatusIs(absl::StatusCode::kInvalidArgument));
    train::Run fresh(session, nullptr, clock, {});
    COHORT_ASSERT_OK(fresh.Prepare("weight", std::span(weight)));
    EXPECT_THAT(fresh.Prepare("weight", std::span(weight)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("prepared before")));
  });
}

}  // namespace
}  // namespace cohort::train
