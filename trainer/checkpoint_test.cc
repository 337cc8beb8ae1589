#include "trainer/checkpoint.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "trainer/testing/checkpoint_directory.h"

namespace cohort::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Write(int64_t step) {
    CheckpointManifest manifest = manifest_;
    manifest.step = step;
    const TensorView weights{
        "w", TensorType::kF32, {1024}, std::as_bytes(std::span(weights_))};
    const TensorView steps{
        "step", TensorType::kI64, {1}, std::as_bytes(std::span(steps_))};
    return WriteCheckpoint(
        root_, manifest,
        {{"model", {weights}, {{"format", "pt"}}}, {"optimizer", {steps}, {}}});
  }

  TempDir directory_;
  const std::string root_ = directory_.File("results/job/attempt-1.4");
  const std::vector<float> weights_ = std::vector<float>(1024, 0.25f);
  const std::vector<int64_t> steps_{12};
  const CheckpointManifest manifest_{.job_id = "ab12",
                                     .attempt = 1,
                                     .epoch = 4,
                                     .world = 2,
                                     .data_epoch = 1,
                                     .cursor = 768,
                                     .seed = 0xffffffffffffffffULL,
                                     .program = {{"lr", "0.001"}}};
};

TEST_F(CheckpointTest, ReadsBackWhatItWrote) {
  const auto path = Write(12);
  COHORT_ASSERT_OK(path);
  EXPECT_EQ(*path, root_ + "/step-12");
  EXPECT_THAT(List(root_), ElementsAre("step-12"));
  EXPECT_THAT(List(*path), ElementsAre("manifest.json", "model.safetensors",
                                       "optimizer.safetensors"));
  const auto read = ReadCheckpoint(*path);
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->manifest.job_id, "ab12");
  EXPECT_EQ(read->manifest.attempt, 1);
  EXPECT_EQ(read->manifest.epoch, 4);
  EXPECT_EQ(read->manifest.world, 2);
  EXPECT_EQ(read->manifest.layout, "replicated");
  EXPECT_EQ(read->manifest.step, 12);
  EXPECT_EQ(read->manifest.data_epoch, 1);
  EXPECT_EQ(read->manifest.cursor, 768);
  EXPECT_EQ(read->manifest.seed, 0xffffffffffffffffULL);
  EXPECT_EQ(read->manifest.program.at("lr"), "0.001");
  const auto weights = read->files.at("model").Find("w");
  COHORT_ASSERT_OK(weights);
  EXPECT_EQ(0, std::memcmp(weights->bytes.data(), weights_.data(), 4096));
}

// On disk: fields are added, never renamed.
constexpr char kGoldenManifest[] = R"({
  "attempt": 1,
  "cursor": 768,
  "data_epoch": 1,
  "epoch": 4,
  "files": {},
  "format": 1,
  "job": "ab12",
  "layout": "replicated",
  "program": {
    "lr": "0.001"
  },
  "scaler": {
    "good_steps": 12,
    "scale": 32768.0
  },
  "seed": 18446744073709551615,
  "step": 3,
  "world": 2
}
)";

TEST_F(CheckpointTest, WritesTheSameManifestForEver) {
  CheckpointManifest manifest = manifest_;
  manifest.step = 3;
  manifest.scaler = LossScalerState{.scale = 32768, .good_steps = 12};
  const auto scaled = WriteCheckpoint(root_, manifest, {});
  COHORT_ASSERT_OK(scaled);
  EXPECT_EQ(Slurp(*scaled + "/manifest.json"), kGoldenManifest);
  EXPECT_EQ(ReadCheckpoint(*scaled)->manifest.scaler, manifest.scaler);
  // Of a run without a scaler, and as older versions wrote it.
  EXPECT_EQ(ReadCheckpoint(*Write(4))->manifest.scaler, std::nullopt);
}

TEST_F(CheckpointTest, NamesADamagedScaler) {
  CheckpointManifest manifest = manifest_;
  manifest.scaler = LossScalerState{};
  const std::string path = *WriteCheckpoint(root_, manifest, {});
  const std::string good = Slurp(path + "/manifest.json");
  for (const std::string& bad :
       {std::string("1e300"), std::string("\"65536\""), std::string("null")}) {
    std::string text = good;
    text.replace(text.find("65536.0"), 7, bad);
    Overwrite(path + "/manifest.json", text);
    EXPECT_THAT(ReadCheckpoint(path),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("\"scaler\"")));
  }
}

TEST_F(CheckpointTest, KeepsWhatMadeIt) {
  CheckpointManifest manifest = manifest_;
  manifest.package = "ab";
  manifest.spec = "cd";
  manifest.optimizers = {{"optimizer", "Adam"}};
  manifest.metrics = {{"loss", 0.25}};
  const auto read = ReadCheckpoint(*WriteCheckpoint(root_, manifest, {}));
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->manifest.package, "ab");
  EXPECT_EQ(read->manifest.spec, "cd");
  EXPECT_EQ(read->manifest.optimizers, manifest.optimizers);
  EXPECT_EQ(read->manifest.metrics, manifest.metrics);
}

// CP-3
TEST_F(CheckpointTest, NamesTheDamagedFile) {
  const std::string path = *Write(3);
  const std::string model = path + "/model.safetensors";
  const std::string good = Slurp(model);
  const auto damaged = StatusIs(absl::StatusCode::kDataLoss, HasSubstr(model));

  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  Overwrite(model, bad);
  EXPECT_THAT(ReadCheckpoint(path), damaged);
  Overwrite(model, good.substr(0, good.size() - 1));
  EXPECT_THAT(ReadCheckpoint(path), damaged);
  fs::remove(model);
  EXPECT_THAT(ReadCheckpoint(path), damaged);
  Overwrite(model, good);
  COHORT_EXPECT_OK(ReadCheckpoint(path));
}

TEST_F(CheckpointTest, NamesADamagedManifest) {
  const std::string path = *Write(3);
  const std::string manifest = path + "/manifest.json";
  const std::string good = Slurp(manifest);
  const auto damaged =
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr(manifest));
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& text :
       {std::string(), std::string("[]"), good.substr(0, good.size() / 2),
        with("\"step\": 3", "\"step\": -3"), with("\"cursor\"", "\"curse\""),
        with("\"world\": 2", "\"world\": \"2\""),
        with("model.safetensors", "../del.safetensors"),
        with("\"bytes\"", "\"bites\"")}) {
    Overwrite(manifest, text);
    EXPECT_THAT(ReadCheckpoint(path), damaged) << text;
  }
  Overwrite(manifest, with("\"format\": 1", "\"format\": 3"));
  EXPECT_THAT(
      ReadCheckpoint(path),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format 3")));
  fs::remove(manifest);
  EXPECT_THAT(ReadCheckpoint(path), damaged);
  EXPECT_THAT(ReadCheckpoint(root_ + "/step-99"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step-99")));
}

TEST(CheckSameRunTest, NamesWhatDiffers) {
  CheckpointManifest manifest;
  manifest.seed = 7;
  manifest.program = {{"batch", "64"}, {"lr", "0.1"}};
  COHORT_EXPECT_OK(CheckSameRun(manifest, 7, {{"batch", "64"}}));
  const auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(CheckSameRun(manifest, 8, {}),
              StatusIs(kBad, "was trained with --seed 7, not 8"));
  EXPECT_THAT(CheckSameRun(manifest, 7, {{"batch", "64"}, {"lr", "0.2"}}),
              StatusIs(kBad, "was trained with lr 0.1, not 0.2"));
  EXPECT_THAT(CheckSameRun(manifest, 7, {{"hidden", "32"}}),
              StatusIs(kBad, "was trained with hidden unknown, not 32"));
}

TEST_F(CheckpointTest, FindsItsFilesByName) {
  const auto checkpoint = ReadCheckpoint(*Write(3));
  COHORT_ASSERT_OK(checkpoint);
  const auto found = checkpoint->Find("model");
  COHORT_ASSERT_OK(found);
  EXPECT_EQ(*found, &checkpoint->files.at("model"));
  EXPECT_THAT(checkpoint->Find("other"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the checkpoint holds no other (it holds model, "
                       "optimizer)"));
}

}  // namespace
}  // namespace cohort::trainer
