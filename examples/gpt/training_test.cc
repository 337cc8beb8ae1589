#include "examples/gpt/training.h"

#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/comm/testing/ranks.h"
#include "trainer/testing/gang_session.h"

namespace cohort::gpt {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using trainer::CheckpointRecord;
using trainer::GangSession;
using trainer::RunPlace;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Outcome {
  std::vector<absl::Status> ranks;
  std::vector<CheckpointRecord> committed;  // in order
  std::string model;                        // bytes of the last one
  std::vector<std::string> reports;         // rank 0's
  std::string output;

  absl::Status first() const {
    for (const absl::Status& status : ranks) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
};

class GptTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tiny_.data = directory_.File("text");
    std::ofstream text(tiny_.data);
    for (int i = 0; i < 400; ++i) text << "the whale " << i % 10 << " swims. ";
    tiny_.shape = {.context = 16, .width = 16, .heads = 2, .layers = 1};
    tiny_.batch = 8;
    tiny_.epochs = 2;
    tiny_.lr = 0.01;
    tiny_.prompt = "the ";
    tiny_.sample = 20;
    tiny_.loss_log = directory_.File("loss.log");
  }

  // A gang whose ranks are threads.
  Outcome Run(int world, const TrainOptions& options,
              std::optional<CheckpointRecord> restore = std::nullopt) {
    ++attempts_;
    const std::string home = directory_.File(absl::StrCat("run-", attempts_));
    EXPECT_EQ(mkdir(home.c_str(), 0755), 0);
    const auto arena = shm::Arena::Create(
        home, {.attempt = "gpt-test", .epoch = 1, .local_world = world});
    EXPECT_THAT(arena, IsOk());
    Outcome outcome;
    outcome.ranks.resize(world);
    testing::internal::CaptureStdout();
    trainer::RunRanks(world, [&](int rank) {
      const RunPlace place{.job_id = "test",
                           .attempt = attempts_,
                           .rank = rank,
                           .world = world,
                           .local_rank = rank,
                           .local_world = world,
                           .checkpoint_root = home + "/checkpoints",
                           .restore = restore};
      outcome.ranks[rank] = Train(home, place, options, outcome);
    });
    outcome.output = testing::internal::GetCapturedStdout();
    if (!outcome.committed.empty()) {
      outcome.model =
          Slurp(outcome.committed.back().path + "/model.safetensors");
    }
    return outcome;
  }

  // Goes on by a second with each report, so of a gang of one.
  class ReportClock final : public Clock {
   public:
    explicit ReportClock(const Outcome& outcome) : outcome_(outcome) {}

    absl::Duration Monotonic() const override {
      return absl::Seconds(outcome_.reports.size());
    }
    absl::Time Wall() const override { return absl::UnixEpoch(); }

   private:
    const Outcome& outcome_;
  };

  // Rank 0 alone writes to `outcome`.
  static absl::Status Train(const std::string& home, const RunPlace& place,
                            const TrainOptions& options, Outcome& outcome) {
    const auto on_report = [&](absl::string_view metrics) {
      if (place.rank == 0) outcome.reports.emplace_back(metrics);
    };
    const auto on_commit = [&](const CheckpointRecord& record) {
      outcome.committed.push_back(record);
    };
    COHORT_ASSIGN_OR_RETURN(
        const std::unique_ptr<GangSession> session,
        GangSession::Join(home, place, on_report, on_commit));
    const ReportClock reports(outcome);
    const MachineClock machine;
    Training training(
        options, *session, torch::kCPU,
        place.world == 1 ? static_cast<const Clock&>(reports) : machine);
    COHORT_RETURN_IF_ERROR(training.Run());
    return session->Finish();
  }

  std::vector<double> Losses() const {
    std::ifstream in(tiny_.loss_log);
    std::vector<double> losses;
    int64_t step = 0;
    for (double loss = 0; in >> step >> loss;) losses.push_back(loss);
    return losses;
  }

  TrainOptions tiny_;
  TempDir directory_;

 private:
  int attempts_ = 0;
};

TEST_F(GptTrainingTest, LearnsAText) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    tiny_.precision = precision;
    const Outcome outcome = Run(1, tiny_);
    COHORT_ASSERT_OK(outcome.first());
    const std::vector<double> losses = Losses();
    ASSERT_GT(losses.size(), 50u);
    // At first every byte is as likely as any other.
    EXPECT_NEAR(losses.front(), std::log(256), 0.2);
    EXPECT_LT(losses.back(), 1.5);
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr("epoch 2/2  loss "), HasSubstr("sample: the "),
                      HasSubstr("validation loss: ")));
    EXPECT_THAT(
        outcome.reports.back(),
        AllOf(HasSubstr("\"epoch\": 2"), HasSubstr("\"validation_loss\": ")));
    EXPECT_THAT(outcome.committed, SizeIs(2));
  }
}

// GT-1
TEST_F(GptTrainingTest, GoesOnExactlyFromACheckpointInTheMiddle) {
  tiny_.checkpoint_every = 17;
  const Outcome whole = Run(2, tiny_);
  COHORT_ASSERT_OK(whole.first());
  const std::string whole_log = Slurp(tiny_.loss_log);
  ASSERT_GE(whole.committed.size(), 4u);
  for (size_t i = 0; i + 1 < whole.committed.size(); ++i) {
    const Outcome resumed = Run(2, tiny_, whole.committed[i]);
    COHORT_ASSERT_OK(resumed.first());
    EXPECT_EQ(resumed.model, whole.model)
        << "from step " << whole.committed[i].step;
    EXPECT_EQ(Slurp(tiny_.loss_log), whole_log);
  }
  tiny_.seed = 2;
  EXPECT_NE(Run(2, tiny_).model, whole.model);
}

// GT-2
TEST_F(GptTrainingTest, TwoRanksEqualOneWithTheSameGlobalBatch) {
  tiny_.steps = 25;  // Within an epoch, whose end is padded.
  tiny_.batch = 16;
  COHORT_ASSERT_OK(Run(1, tiny_).first());
  const std::vector<double> one = Losses();
  tiny_.batch = 8;
  COHORT_ASSERT_OK(Run(2, tiny_).first());
  const std::vector<double> two = Losses();
  ASSERT_THAT(one, SizeIs(25));
  ASSERT_THAT(two, SizeIs(25));
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(two[i] / one[i], 1, 1e-3) << "step " << i + 1;
  }
}

TEST_F(GptTrainingTest, CountsTheBytesOfItsStepsAndTheTimeUntilThem) {
  tiny_.epochs = 1;
  const auto text = Text::Open(tiny_.data, tiny_.shape.context);
  COHORT_ASSERT_OK(text);
  const int64_t windows = (*text)->windows(Part::kTrain);
  ASSERT_NE(windows % tiny_.batch, 0) << "its last step is a short one";
  const int64_t steps = windows / tiny_.batch + 1;
  const Outcome outcome = Run(1, tiny_);
  COHORT_ASSERT_OK(outcome.first());
  // One a step, and one with the validation's loss.
  ASSERT_THAT(outcome.reports, SizeIs(steps + 1));
  const std::string speed = absl::StrFormat(
      "\"bytes_per_s\": %.0f",
      static_cast<double>(windows * tiny_.shape.context) /
          static_cast<double>(steps - 1));  // seconds, before the last report
  EXPECT_THAT(outcome.reports[steps - 1], HasSubstr(speed));
  EXPECT_THAT(outcome.reports[steps],
              AllOf(HasSubstr(speed), HasSubstr("validation_loss")));
}

TEST_F(GptTrainingTest, ReportsTheEpochOfItsLastStep) {
  const Outcome whole = Run(1, tiny_);
  ASSERT_THAT(whole.committed, SizeIs(2));
  const auto epoch_from = [this](const CheckpointRecord& checkpoint) {
    const Outcome resumed = Run(1, tiny_, checkpoint);
    COHORT_EXPECT_OK(resumed.first());
    return resumed.reports.empty() ? "none" : resumed.reports[0];
  };
  EXPECT_THAT(epoch_from(whole.committed[1]), HasSubstr("\"epoch\": 2,"));
  EXPECT_THAT(epoch_from(whole.committed[0]), HasSubstr("\"epoch\": 2,"));
  tiny_.steps = whole.committed[0].step;
  EXPECT_THAT(epoch_from(whole.committed[0]), HasSubstr("\"epoch\": 1,"));
}

TEST_F(GptTrainingTest, RefusesACheckpointOfAnotherRun) {
  tiny_.steps = 2;
  const Outcome outcome = Run(1, tiny_);
  ASSERT_THAT(outcome.committed, SizeIs(1));
  const auto refused = [&](const std::function<void(TrainOptions&)>& change,
                           const char* what) {
    TrainOptions other = tiny_;
    change(other);
    EXPECT_THAT(Run(1, other, outcome.committed.back()).first(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refused([](TrainOptions& other) { other.seed = 9; }, "--seed 1, not 9");
  refused([](TrainOptions& other) { other.shape.width = 32; },
          "width 16, not 32");
  refused([](TrainOptions& other) { other.precision = Precision::kBF16; },
          "dtype f32, not bf16");
  refused(
      [this](TrainOptions& other) {
        other.data = directory_.File("other");
        std::ofstream(other.data) << std::string(1000, 'x');
      },
      "text_bytes");
}

TEST_F(GptTrainingTest, SaysWhatIsWrongWithItsFiles) {
  TrainOptions other = tiny_;
  other.data = directory_.File("short");
  std::ofstream(other.data) << "short";
  EXPECT_THAT(Run(2, other).ranks,
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("short: a text of 5 bytes is too"))));
  other = tiny_;
  other.loss_log = directory_.File("absent/log");
  EXPECT_THAT(Run(1, other).first(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("absent/log: No such file")));
}

}  // namespace
}  // namespace cohort::gpt
