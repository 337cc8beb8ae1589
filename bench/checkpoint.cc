// What saving costs a training: the moment in which it waits, beside a memcpy
// of the same state, and how long it is until the checkpoint is there, beside a
// plain write of as many bytes.  Ranks are threads.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "bench/timing.h"
#include "common/check.h"
#include "common/file.h"
#include "common/testing/temp_dir.h"
#include "common/unique_fd.h"
#include "trainer/checkpoint_writer.h"
#include "trainer/testing/thread_gang.h"

namespace cohort::bench {
namespace {

using trainer::CheckpointFile;
using trainer::CheckpointWriter;
using trainer::Comm;

constexpr size_t kTensors = 64;
constexpr absl::Duration kTimeout = absl::Minutes(10);

// A model's: all ranks have it.
struct State {
  explicit State(size_t bytes)
      : values(bytes / sizeof(float), 0.5f), copy(values.size(), 1.0f) {}

  std::vector<CheckpointFile> files() const {
    CheckpointFile model{.name = "model"};
    const size_t each = values.size() / kTensors;
    for (size_t i = 0; i < kTensors; ++i) {
      model.tensors.push_back(
          {absl::StrCat("w", i),
           trainer::TensorType::kF32,
           {static_cast<int64_t>(each)},
           std::as_bytes(std::span(values).subspan(i * each, each))});
    }
    return {model};
  }
  double NewCopyMilliseconds() const {
    return 1e3 * SecondsFor([this] {
             const std::unique_ptr<float[]> made(new float[values.size()]);
             std::memcpy(made.get(), values.data(),
                         values.size() * sizeof(float));
             COHORT_CHECK(made[values.size() / 2] == 0.5f);
           });
  }
  double CopyMilliseconds() {
    return 1e3 * SecondsFor([this] {
             std::memcpy(copy.data(), values.data(),
                         values.size() * sizeof(float));
           });
  }

  std::vector<float> values;
  std::vector<float> copy;
};

struct Times {
  Samples first;     // ms, of a rank's first checkpoint: its memory is new
  Samples stall;     // ms, of later ones
  Samples copy;      // ms, a memcpy of the whole state at the same moment
  Samples written;   // ms, until it is there
  Samples new_copy;  // ms, a memcpy into new memory
};

// Of the slower rank.
Samples Slower(const std::vector<Samples>& ranks) {
  Samples slower = ranks[0];
  for (const Samples& rank : ranks) {
    for (size_t i = 0; i < rank.values.size(); ++i) {
      slower.values[i] = std::max(slower.values[i], rank.values[i]);
    }
  }
  return slower;
}

Times Measure(int world, size_t bytes, int runs, const std::string& root) {
  std::vector<Times> of(world);
  trainer::RunThreadGang(world, [&](Comm& comm) {
    Times& times = of[comm.rank()];
    State state(bytes);
    CheckpointWriter writer(comm, root);
    for (int i = 0; i < 3; ++i) {
      COHORT_CHECK(comm.Barrier(kTimeout).ok());
      times.new_copy.values.push_back(state.NewCopyMilliseconds());
    }
    for (int i = 0; i <= runs; ++i) {
      COHORT_CHECK(comm.Barrier(kTimeout).ok());
      times.copy.values.push_back(state.CopyMilliseconds());
      COHORT_CHECK(comm.Barrier(kTimeout).ok());
      const absl::Time begin = absl::Now();
      COHORT_CHECK(
          writer.Begin({.world = world, .step = i}, state.files(), nullptr)
              .ok());
      const double stall = absl::ToDoubleMilliseconds(absl::Now() - begin);
      const std::string path = Ok(writer.Finish(kTimeout));
      (i == 0 ? times.first : times.stall).values.push_back(stall);
      times.written.values.push_back(
          absl::ToDoubleMilliseconds(absl::Now() - begin));
      if (comm.rank() == 0) std::filesystem::remove_all(path);
    }
  });
  const auto slower = [&of](Samples Times::*of_rank) {
    std::vector<Samples> ranks;
    for (const Times& times : of) ranks.push_back(times.*of_rank);
    return Slower(ranks);
  };
  return {slower(&Times::first), slower(&Times::stall), slower(&Times::copy),
          slower(&Times::written), slower(&Times::new_copy)};
}

// As many bytes by write and fsync.
double PlainWriteMilliseconds(size_t bytes, const std::string& path) {
  const std::string data(bytes, 'x');
  const double seconds = SecondsFor([&] {
    const UniqueFd out(
        open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    COHORT_CHECK(WriteAll(out.get(), path, data).ok());
    COHORT_CHECK(fsync(out.get()) == 0);
  });
  unlink(path.c_str());
  return 1e3 * seconds;
}

int Main(const Flags& flags) {
  Report report("checkpoint", flags);
  const size_t mib = flags.quick ? 64 : 256;
  const int runs = flags.quick ? 3 : 9;
  const TempDir directory;
  for (const int world : {1, 2}) {
    const Times times =
        Measure(world, mib << 20, runs, directory.File(absl::StrCat(world)));
    const double copy = times.copy.median();
    const std::string name = absl::StrCat(mib, "MiB/", world, "-ranks/");
    report.Add({.name = name + "stall",
                .samples = times.stall,
                .unit = "ms",
                .floor = copy});
    report.Add({.name = name + "first_stall",
                .samples = times.first,
                .unit = "ms",
                .floor = times.new_copy.median()});
    report.Add(
        {.name = name + "written",
         .samples = times.written,
         .unit = "ms",
         .floor = PlainWriteMilliseconds(mib << 20, directory.File("plain"))});
  }
  return 0;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  return cohort::bench::Main(cohort::bench::ParseFlags(argc, argv));
}
