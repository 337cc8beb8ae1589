#include "trainer/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/latch.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "trainer/shared_storage.h"
#include "trainer/testing/checkpoint_directory.h"
#include "trainer/testing/thread_gang.h"

namespace cohort::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using By = CheckpointFile::By;

constexpr absl::Duration kTimeout = absl::Minutes(1);

// No file of this process may grow beyond `bytes`: a disk that is full there.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

// The state of a rank: tensors that all have, and some of its own.
class State {
 public:
  // `wide`: how many numbers the larger tensors have.
  State(int rank, float value, size_t wide) {
    for (size_t i = 0; i < 5; ++i) {
      numbers_.emplace_back(i == 4 ? 3 : wide, value + static_cast<float>(i));
    }
    small_ = {static_cast<int64_t>(value)};
    own_.assign(8, static_cast<float>(rank));
    name_ = absl::StrCat("random.", rank);
  }

  std::vector<CheckpointFile> files() const {
    CheckpointFile model{.name = "model", .metadata = {{"format", "pt"}}};
    for (size_t i = 0; i < numbers_.size(); ++i) {
      model.tensors.push_back(View(absl::StrCat("w", i), numbers_[i]));
    }
    return {
        model,
        {.name = "history",
         .tensors = {{"step",
                      TensorType::kI64,
                      {1},
                      std::as_bytes(std::span(small_))}}},
        {.name = "state", .tensors = {View("x", own_)}, .by = By::kLead},
        {.name = "random", .tensors = {View(name_, own_)}, .by = By::kEach}};
  }
  std::vector<std::vector<float>>& numbers() { return numbers_; }

 private:
  static TensorView View(const std::string& name,
                         const std::vector<float>& values) {
    return {name,
            TensorType::kF32,
            {static_cast<int64_t>(values.size())},
            std::as_bytes(std::span(values))};
  }

  std::vector<std::vector<float>> numbers_;
  std::vector<int64_t> small_;
  std::vector<float> own_;
  std::string name_;
};

constexpr size_t kSplit = size_t{1} << 20;
constexpr size_t kWide = size_t{1} << 18;  // a MiB: parts are split

float First(const Checkpoint& read, const std::string& part,
            const std::string& tensor) {
  const auto file = read.Find(part);
  COHORT_EXPECT_OK(file);
  const auto view = (*file)->Find(tensor);
  COHORT_EXPECT_OK(view);
  return *reinterpret_cast<const float*>(view->bytes.data());
}

class CheckpointWriterTest : public ::testing::Test {
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

  // Of a gang of threads; gives what each rank got.
  std::vector<absl::StatusOr<std::string>> WriteOf(int world, int64_t step,
                                                   float value,
                                                   size_t wide = kWide) {
    std::vector<absl::StatusOr<std::string>> answers(
        world, absl::UnknownError("not run"));
    RunThreadGang(world, [&](Comm& comm) {
      CheckpointWriter writer(comm, root_, kSplit);
      State state(comm.rank(), value, wide);
      const absl::Status begun =
          writer.Begin({.world = world, .step = step}, state.files(), nullptr);
      answers[comm.rank()] = begun.ok() ? writer.Finish(kTimeout)
                                        : absl::StatusOr<std::string>(begun);
    });
    return answers;
  }

  TempDir directory_;
  const std::string root_ = directory_.File("results/job/attempt-1.4");
  const std::vector<float> weights_ = std::vector<float>(1024, 0.25f);
  const std::vector<int64_t> steps_{12};
  const CheckpointManifest manifest_{};
};

TEST_F(CheckpointWriterTest, SameContentsGiveTheSameBytes) {
  const auto first = Write(1);
  COHORT_ASSERT_OK(first);
  const std::string model = Slurp(*first + "/model.safetensors");
  const auto second = Write(2);
  COHORT_ASSERT_OK(second);
  EXPECT_EQ(model, Slurp(*second + "/model.safetensors"));
}

// CP-1
TEST_F(CheckpointWriterTest, LeavesNothingWhenTheDiskIsFull) {
  COHORT_ASSERT_OK(Write(1));
  {
    // Room for no file, for the model's start, for the model but no manifest.
    for (const rlim_t bytes : {0, 2000, 200}) {
      FullDisk full(bytes);
      EXPECT_THAT(Write(2), StatusIs(absl::StatusCode::kResourceExhausted,
                                     AllOf(HasSubstr(root_),
                                           HasSubstr("--storage-path"))));
    }
  }
  EXPECT_THAT(List(root_), ElementsAre("step-1"));
  COHORT_EXPECT_OK(Write(2));  // room again
}

TEST_F(CheckpointWriterTest, NeverReplacesAStep) {
  COHORT_ASSERT_OK(Write(1));
  EXPECT_THAT(Write(1),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("step-1")));
}

TEST_F(CheckpointWriterTest, ClearsTheDraftOfAWriterThatDied) {
  fs::create_directories(root_ + "/.step-7.tmp");
  Overwrite(root_ + "/.step-7.tmp/model.safetensors", "half");
  COHORT_ASSERT_OK(Write(7));
  EXPECT_THAT(List(root_), ElementsAre("step-7"));
}

TEST_F(CheckpointWriterTest, NamesAnUnusableRoot) {
  Overwrite(directory_.File("results"), "a file");
  EXPECT_THAT(Write(1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr(directory_.File("results"))));
}

TEST_F(CheckpointWriterTest, RefusesNamesThatLeaveTheDirectory) {
  for (const std::string name : {"", "../model", "a/b", "Model", ".hidden"}) {
    EXPECT_THAT(WriteCheckpoint(root_, manifest_, {{name, {}, {}}}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// CP-4
TEST_F(CheckpointWriterTest, AllRanksWriteAndAnyNumberOfThemReads) {
  for (const int world : {1, 2, 3, 7}) {
    const auto answers = WriteOf(world, world, 0.5f * world);
    for (const auto& answer : answers) COHORT_ASSERT_OK(answer);
    const auto read = ReadCheckpoint(*answers[0]);
    COHORT_ASSERT_OK(read);
    EXPECT_EQ(read->manifest.world, world);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(First(*read, "model", absl::StrCat("w", i)), 0.5f * world + i);
    }
    EXPECT_THAT(read->files.at("model").tensors(), SizeIs(5));
    EXPECT_EQ(read->files.at("model").metadata().at("format"), "pt");
    EXPECT_THAT(read->files.at("random").tensors(), SizeIs(world));
    EXPECT_EQ(First(*read, "random", absl::StrCat("random.", world - 1)),
              world - 1);
    EXPECT_EQ(First(*read, "state", "x"), 0);  // rank 0's
  }
  // 4 MiB in four tensors, over three ranks.
  EXPECT_THAT(
      List(root_ + "/step-3"),
      ElementsAre("history.safetensors", "manifest.json",
                  "model-00001-of-00003.safetensors",
                  "model-00002-of-00003.safetensors",
                  "model-00003-of-00003.safetensors",
                  "random-00001-of-00003.safetensors",
                  "random-00002-of-00003.safetensors",
                  "random-00003-of-00003.safetensors", "state.safetensors"));
  EXPECT_THAT(
      List(root_ + "/step-1"),
      ElementsAre("history.safetensors", "manifest.json", "model.safetensors",
                  "random.safetensors", "state.safetensors"));
}

TEST_F(CheckpointWriterTest, SavesTheStateOfTheMomentItWasToldTo) {
  RunThreadGang(2, [&](Comm& comm) {
    CheckpointWriter writer(comm, root_, kSplit);
    State state(comm.rank(), 1, kWide);
    std::vector<std::string> committed;
    const auto commit = [&](const std::string& path) {
      committed.push_back(path);
      return absl::OkStatus();
    };
    COHORT_ASSERT_OK(
        writer.Begin({.world = 2, .step = 5}, state.files(), commit));
    for (auto& numbers : state.numbers()) {
      std::fill(numbers.begin(), numbers.end(), 99.0f);
    }
    EXPECT_TRUE(writer.is_writing());
    COHORT_EXPECT_OK(writer.Finish(kTimeout));
    EXPECT_FALSE(writer.is_writing());
    EXPECT_THAT(committed, SizeIs(comm.rank() == 0 ? 1 : 0));
  });
  EXPECT_EQ(First(*ReadCheckpoint(root_ + "/step-5"), "model", "w3"), 4);
}

TEST_F(CheckpointWriterTest, EveryRankLearnsWhatARankCouldNotDo) {
  COHORT_ASSERT_OK(WriteOf(2, 1, 0)[0]);
  // Where rank 1 is to write there is a directory.
  const std::string taken = root_ + "/.step-2.tmp/random-00002-of-00002";
  fs::create_directories(taken + ".safetensors/full");
  for (const auto& answer : WriteOf(2, 2, 0)) {
    EXPECT_THAT(answer, StatusIs(::testing::_, AllOf(StartsWith("rank 1: "),
                                                     HasSubstr(taken))));
  }
  EXPECT_THAT(List(root_), ElementsAre("step-1"));
  // A commit that fails, too.
  std::vector<absl::Status> ends(2);
  RunThreadGang(2, [&](Comm& comm) {
    CheckpointWriter writer(comm, root_, kSplit);
    State state(comm.rank(), 1, 8);
    COHORT_ASSERT_OK(writer.Begin({.step = 3}, state.files(), [](const auto&) {
      return absl::FailedPreconditionError("this attempt is over");
    }));
    ends[comm.rank()] = writer.Finish(kTimeout).status();
  });
  for (const absl::Status& end : ends) {
    EXPECT_THAT(end, StatusIs(absl::StatusCode::kFailedPrecondition,
                              "rank 0: this attempt is over"));
  }
}

TEST_F(CheckpointWriterTest, NoticesRanksThatHaveOtherTensors) {
  RunThreadGang(2, [&](Comm& comm) {
    CheckpointWriter writer(comm, root_, kSplit);
    State state(comm.rank(), 1, comm.rank() == 0 ? 8 : 9);
    COHORT_ASSERT_OK(writer.Begin({.step = 3}, state.files(), nullptr));
    EXPECT_THAT(writer.Finish(kTimeout),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("rank 1 has other tensors than rank 0")));
  });
  EXPECT_THAT(List(root_), IsEmpty());
}

TEST_F(CheckpointWriterTest, NamesTheDamagedAndTheMissingShard) {
  COHORT_ASSERT_OK(WriteOf(3, 1, 0)[0]);
  const std::string shard = root_ + "/step-1/model-00002-of-00003.safetensors";
  const std::string good = Slurp(shard);
  const auto damaged = StatusIs(absl::StatusCode::kDataLoss, HasSubstr(shard));
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  Overwrite(shard, bad);
  EXPECT_THAT(ReadCheckpoint(root_ + "/step-1"), damaged);
  fs::remove(shard);
  EXPECT_THAT(ReadCheckpoint(root_ + "/step-1"), damaged);
}

// ---- kill -9

// Writes checkpoints for ever, of two ranks, and a line for each that is
// committed.  In a child, which leaves what it has made.
void WriteForEver(const std::string& directory, const std::string& root,
                  int out) {
  RunThreadGangIn(directory, 2, [&](Comm& comm) {
    CheckpointWriter writer(comm, root, kSplit);
    for (int64_t step = 1;; ++step) {
      State state(comm.rank(), static_cast<float>(step), kWide / 4);
      const absl::Status begun = writer.Begin(
          {.world = 2, .step = step}, state.files(),
          [&](const std::string& path) {
            const std::string line = path + "\n";
            const auto wrote = write(out, line.data(), line.size());
            return wrote < 0 ? absl::UnknownError("no reader")
                             : absl::OkStatus();
          });
      if (!begun.ok() || !writer.Finish(kTimeout).ok()) _exit(1);
    }
  });
}

// The paths that it has committed before `kill_it` made an end of it.
std::vector<std::string> RunUntilItDies(
    const std::string& root, rlim_t file_bytes_max,
    std::optional<absl::Duration> killed_after) {
  const TempDir directory;
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const rlimit limit{file_bytes_max, file_bytes_max};
    // At that byte of a file SIGXFSZ ends it, as kill -9 would.
    if (file_bytes_max > 0) setrlimit(RLIMIT_FSIZE, &limit);
    WriteForEver(directory.path(), root, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  if (killed_after.has_value()) {
    Latch().WaitFor(*killed_after);
    kill(child, SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  std::vector<std::string> paths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) paths.push_back(line);
  return paths;
}

// CP-1: whatever is called step-<k> is whole, and what was committed is there.
void ExpectAllWhole(const std::string& root,
                    const std::vector<std::string>& committed) {
  for (const std::string& name : List(root)) {
    if (name.starts_with(".")) continue;
    COHORT_EXPECT_OK(ReadCheckpoint(absl::StrCat(root, "/", name)));
  }
  for (const std::string& path : committed) EXPECT_TRUE(fs::exists(path));
}

TEST_F(CheckpointWriterTest, AProcessThatIsKilledLeavesTheLastGoodOne) {
  SystemRandom random;
  size_t committed_in_all = 0;
  for (int round = 0; round < 12; ++round) {
    const std::string root = absl::StrCat(root_, ".", round);
    const absl::Duration moment =
        absl::Microseconds(static_cast<int64_t>(random.Below(150'000)));
    SCOPED_TRACE(absl::FormatDuration(moment));
    const auto committed = RunUntilItDies(root, 0, moment);
    committed_in_all += committed.size();
    ExpectAllWhole(root, committed);
    fs::remove_all(root);
  }
  EXPECT_GT(committed_in_all, 0u);
}

// At a byte of the header, of the data, of the manifest.
TEST_F(CheckpointWriterTest, ADeathAtAnyByteLeavesNothingThatIsNotWhole) {
  for (const rlim_t bytes : {1, 7, 100, 600, 1000, 1500, 60'000, 131'000}) {
    const std::string root = absl::StrCat(root_, ".", bytes);
    SCOPED_TRACE(bytes);
    const auto committed = RunUntilItDies(root, bytes, std::nullopt);
    EXPECT_THAT(committed, IsEmpty());
    ExpectAllWhole(root, committed);
  }
}

// ---- where checkpoints go

TEST_F(CheckpointWriterTest, FindsOutWhichRanksDoNotSeeTheStorage) {
  for (const bool is_shared : {true, false}) {
    std::vector<absl::Status> answers(3);
    RunThreadGang(3, [&](Comm& comm) {
      const bool is_apart = !is_shared && comm.rank() == 2;
      answers[comm.rank()] = CheckSharedStorage(
          comm, is_apart ? root_ + "-of-another-node" : root_, kTimeout);
    });
    for (const absl::Status& answer : answers) {
      if (is_shared) {
        COHORT_EXPECT_OK(answer);
        continue;
      }
      EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("rank 2 does not see"),
                                         HasSubstr("--storage-path"))));
    }
  }
  EXPECT_THAT(List(root_), IsEmpty());
}

}  // namespace
}  // namespace cohort::trainer
