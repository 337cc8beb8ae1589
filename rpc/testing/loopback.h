#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/executor.h"
#include "common/random.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/router.h"

namespace cohort::rpc {

struct LoopbackOptions {
  // Each message takes a time drawn from this range; streams stay in order.
  absl::Duration delay_min = absl::Microseconds(50);
  absl::Duration delay_max = absl::Milliseconds(2);
  // That the connection breaks instead of delivering a message.
  double break_probability = 0;
  // Bytes that a stream takes before its peer reads them, as a socket does.
  size_t window_bytes = 64 << 10;
  // A connection breaks when a partition lasts longer: gRPC's keepalive here.
  absl::Duration partition_timeout = absl::Seconds(30);
};

// How often each fault happened.  A simulation that never saw one of them
// tested less than it says.
struct LoopbackFaults {
  int64_t refused = 0;        // Calls to an endpoint that does not listen.
  int64_t broken = 0;         // Connections.
  int64_t requests_lost = 0;  // Unary calls broken before the server had them.
  int64_t replies_lost = 0;   // Unary calls broken after it.
  int64_t streams_broken = 0;
  int64_t held = 0;  // Messages that a partition held back.
  int64_t partition_timeouts = 0;
  int64_t silenced = 0;  // Frames of a server after SilenceAfter.
};

class LoopbackWires;

// Named endpoints in one process and the connections between them: the
// simulation's network, with the delays and faults of a real one.
//
// Authentication, encoding and limits are the Router's and the Channel's, as
// over gRPC.  With a ManualExecutor and a seeded Random one seed gives one
// schedule.  Thread-safe, so that it also runs over threads.  Outlives its
// channels.
class LoopbackNetwork {
 public:
  // All outlive the network and what it posted.  `executor` runs one task at a
  // time: a ManualExecutor or a strand.
  LoopbackNetwork(LoopbackOptions options, Executor& executor,
                  const Clock& clock, Random& random);
  ~LoopbackNetwork();

  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  // `router` answers at `name` from now on.  REQUIRES: nobody listens there.
  void Listen(const std::string& name, Router* router);
  // The server shuts down: its calls end as UNAVAILABLE on both ends.  When
  // this returns the network does not touch the router or its strands again.
  void Unlisten(const std::string& name);
  // The process dies as by SIGKILL: as Unlisten, but its handlers are told
  // nothing, queued ones do not run and its stream readers are destroyed within
  // this call.  The calls that it made itself end without a word too: their
  // callbacks are destroyed.
  void Kill(const std::string& name);

  // The way from `from` to `to`, which need not listen yet; both are names for
  // Partition.
  std::unique_ptr<Channel> Connect(const std::string& from,
                                   const std::string& to,
                                   const Credential& credential,
                                   ChannelOptions options = {});

  // Messages between the two wait until Heal; beyond partition_timeout their
  // connections break.
  void Partition(const std::string& a, const std::string& b);
  void Heal(const std::string& a, const std::string& b);
  void HealAll();
  // Every connection of `name`, either way, breaks now.
  void BreakAll(const std::string& name);
  // What the server `name` sends goes nowhere after `frames` more, until it
  // dies or stops to listen: so that a crash can fall between two sends.
  void SilenceAfter(const std::string& name, int frames);
  // Changes LoopbackOptions::break_probability.
  void SetBreakProbability(double probability);

  LoopbackFaults faults() const;

 private:
  // Shared: this, its channels and what is posted.
  const std::shared_ptr<LoopbackWires> wires_;
};

}  // namespace cohort::rpc
