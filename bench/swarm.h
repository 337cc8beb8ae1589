#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cohort::bench {

// What a swarm's streams say.
struct SwarmOptions {
  std::string address;
  std::string path;           // of the streaming method
  std::string authorization;  // header; may be empty
  std::string authority;      // as rpc::Credential's; empty: plaintext
  int streams = 1;
  int streams_per_connection = 100;
  absl::Duration period = absl::Seconds(1);
  // The first message of stream `number`.
  std::function<std::string(int number)> first;
  // What it says each period, given the first message that came down.
  std::function<std::string(int number, const std::string& answer)> beat;
};

// Many gRPC streams from one process, each of which says something each
// period: the nodes of a cluster without their processes.  Spread evenly over
// the period.  Thread-compatible; ends its streams when it is destroyed.
class Swarm {
 public:
  explicit Swarm(SwarmOptions options);
  ~Swarm();

  Swarm(const Swarm&) = delete;
  Swarm& operator=(const Swarm&) = delete;

  // Blocks until every stream was answered.  DeadlineExceeded after
  // `timeout`; the first error that ended a stream.
  absl::Status AwaitAnswers(absl::Duration timeout);
  // Says nothing until it is resumed.
  void Pause() { paused_ = true; }
  void Resume() { paused_ = false; }
  // Streams that ended although nobody ended them.
  int lost() const { return lost_; }
  // Beats sent so far.
  int64_t beats() const { return beats_; }

 private:
  class Stream;

  void Beat();

  const SwarmOptions options_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::atomic<int> answered_ = 0;
  std::atomic<int> lost_ = 0;
  std::atomic<int64_t> beats_ = 0;
  std::atomic<bool> ending_ = false;
  std::atomic<bool> paused_ = false;
  std::thread beater_;
};

}  // namespace cohort::bench
