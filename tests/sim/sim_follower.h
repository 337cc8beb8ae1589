#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cohort/v1/cluster.pb.h"
#include "rpc/channel.h"
#include "tests/sim/sim_worker.h"

namespace cohort::sim {

// What every follower was shown: one event a number, for good.
using ShownEvents = std::map<uint64_t, std::string>;

// A program that follows the cluster's events, over restarts of the head.
// Checks that it sees each once, in order and without holes but for what
// history has trimmed, and that nobody was ever shown another under its number
// (EV-1, ES-1).
class Follower {
 public:
  // Whether history has trimmed the event of that number.
  using IsTrimmed = std::function<bool(uint64_t number)>;

  // `shown` outlives it, and is shared by all followers.
  Follower(World world, const std::string& name, ShownEvents& shown,
           IsTrimmed is_trimmed);

  // Unless it has started.
  void Start();
  // From the first event on: the program was started again, or the store is
  // another one now.
  void StartAnew();

  // The last event that it saw.
  uint64_t last() const { return last_; }
  const std::string& violation() const { return violation_; }

 private:
  void Ask();
  void AskAgain();
  void OnPage(const v1::ListEventsResponse& page);
  void Violate(std::string what);

  World world_;
  const std::unique_ptr<rpc::Channel> channel_;
  ShownEvents& shown_;
  const IsTrimmed is_trimmed_;
  uint64_t last_ = 0;
  bool started_ = false;
  // Answers to an earlier life are not heard.
  int life_ = 0;
  std::string violation_;
};

}  // namespace cohort::sim
