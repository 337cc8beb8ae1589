// A program that trains by Fit, as test_fit.py tells it:
//
//   fit-program MODE RANKS EPOCHS GATE STORAGE
//
// MODE is "ok", or what rank 1 does at step 3: "error", "throw", "nan", "exit",
// and, in the first attempt only, "die".  With a GATE
// the third step waits until nobody has locked that file.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status_macros.h"
#include "common/unique_fd.h"
#include "trainer/train/trainer.h"

namespace fit_program {

struct Config {
  std::string mode;
  int64_t epochs = 1;
  std::string gate;
  COHORT_FIELDS(mode, epochs, gate)
};

class Numbers final : public cohort::trainer::Dataset {
 public:
  int64_t size() const override { return 40; }
  int64_t input_size() const override { return 1; }
  absl::Status Read(std::span<const int64_t> ids, std::span<float> inputs,
                    std::span<int64_t> labels) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      inputs[i] = static_cast<float>(ids[i]);
      labels[i] = 0;
    }
    return absl::OkStatus();
  }
};

// Who keeps it closed has a lock on it.
void PassThrough(const std::string& gate) {
  const cohort::UniqueFd file(open(gate.c_str(), O_RDONLY | O_CLOEXEC));
  flock(file.get(), LOCK_SH);
}

absl::Status Misbehave(cohort::train::Run& run, const std::string& mode) {
  if (mode == "error") return absl::InternalError("the sensor is broken");
  if (mode == "throw") static_cast<void>(std::stoi("no number"));
  if (mode == "nan") run.Report({{"sum", std::nan("")}});
  if (mode == "exit") _exit(3);
  if (mode == "die" && run.session().place().attempt == 1) raise(SIGKILL);
  return absl::OkStatus();
}

absl::Status Train(cohort::train::Run& run, const Config& config) {
  std::vector<double> sum(1);
  COHORT_RETURN_IF_ERROR(run.Prepare("sum", std::span(sum)));
  run.CheckpointEvery({.steps = 2});
  auto* const loader =
      run.Loader(std::make_shared<Numbers>(), {.batch_size = 5});
  for (auto epoch : run.Epochs(config.epochs)) {
    for (const auto& batch : epoch.Batches(loader)) {
      for (const float value : batch.inputs) sum[0] += value;
      COHORT_RETURN_IF_ERROR(run.Average(std::span(sum)));
      run.Report({{"sum", sum[0]}});
      // So that it is known what the death leaves.
      if (config.mode == "die" && run.step() == 2) {
        COHORT_RETURN_IF_ERROR(run.FinishCheckpoint());
      }
      if (run.rank() == 1 && run.step() == 2) {
        COHORT_RETURN_IF_ERROR(Misbehave(run, config.mode));
      }
      if (run.step() == 2 && !config.gate.empty()) PassThrough(config.gate);
    }
  }
  run.Log("the loop is over");
  return run.status();
}

}  // namespace fit_program

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  cohort::RunConfig run{.name = "fit", .storage_path = argv[5]};
  run.failure_config.max_failures = 1;
  run.failure_config.retry_delay = absl::Milliseconds(10);
  cohort::train::Trainer<&fit_program::Train> trainer(
      {.mode = argv[1], .epochs = std::atoi(argv[3]), .gate = argv[4]},
      {.num_workers = std::atoi(argv[2])}, run);
  const auto result = trainer.Fit();
  if (!result.ok()) {
    std::cerr << "fit: " << result.status().message() << "\n";
    return 2;
  }
  std::cout << "sum " << result->metrics.at("sum") << " rows "
            << result->metrics_history.size() << " step "
            << (result->checkpoint ? result->checkpoint->step : -1) << "\n"
            << "error " << result->error.message() << "\n"
            << "path " << result->path << "\n";
  return result->error.ok() ? 0 : 1;
}
