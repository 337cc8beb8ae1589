#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/executor.h"
#include "head/autoscaler/provider.h"

namespace cohort::head {

// Keeps a provider's program running that tells what happens to its machines:
// started again when it ends, later each time; one that knows no such command
// is asked again after kWatchPauseMax.  What it writes otherwise is logged.
//
// Has a thread of its own.  Thread-compatible.
class ProviderWatch {
 public:
  static constexpr absl::Duration kWatchPauseMin = absl::Seconds(1);
  static constexpr absl::Duration kWatchPauseMax = absl::Minutes(5);

  // `on_event` runs on `strand`, which outlives it, also once this is gone.
  ProviderWatch(std::vector<std::string> command,
                std::vector<std::string> environment, Executor& strand,
                std::function<void(const ProviderEvent&)> on_event);
  // Kills the program.
  ~ProviderWatch();

  ProviderWatch(const ProviderWatch&) = delete;
  ProviderWatch& operator=(const ProviderWatch&) = delete;

  const std::vector<std::string>& command() const { return command_; }

 private:
  void Loop();
  void OnLine(const std::string& line, int& garbage);
  void Rest(absl::Duration pause);

  const std::vector<std::string> command_;
  const std::vector<std::string> environment_;
  Executor& strand_;
  const std::function<void(const ProviderEvent&)> on_event_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// One line of `watch`.  InvalidArgument, saying what is wrong.
absl::StatusOr<ProviderEvent> ParseProviderEvent(const std::string& line);

}  // namespace cohort::head
