#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "client/process_environment.h"
#include "cohort/v1/run.pb.h"
#include "common/backoff.h"
#include "common/executor.h"
#include "common/random.h"
#include "rpc/channel.h"

namespace cohort::actor {

// An actor's process and the worker daemon of its node: who the process is, and
// where it serves.  A daemon that is restarted is waited for and told again.
//
// On its executor only, which outlives it and runs one task at a time.
class WorkerLink {
 public:
  struct Events {
    // The daemon's first word: once.
    std::function<void(const v1::WatchResponse&)> on_joined;
    // What is announced to it, or not any more; with each change.
    std::function<void(v1::NoticeKind)> on_notice;
    // OK: the daemon says that this process is over; else what it refuses.  The
    // last one.
    std::function<void(const absl::Status&)> on_over;
  };

  // `channel` leads to the daemon's socket, and outlives it.
  WorkerLink(ProcessId process, rpc::Channel& channel, Executor& where,
             Events events);

  // Where this process serves calls, from now on.
  void Announce(std::vector<std::string> addresses);

 private:
  void Open();
  void Tell();
  void OnTold(const v1::WatchResponse& told);
  void OnClosed(const absl::Status& status);
  v1::WatchRequest RequestOfThis() const;

  const ProcessId process_;
  rpc::Channel& channel_;
  Executor& where_;
  const Events events_;
  SystemRandom random_;
  Backoff reopen_;
  std::unique_ptr<rpc::TypedStream<v1::WatchRequest>> watch_;
  std::vector<std::string> addresses_;
  bool joined_ = false;
  v1::NoticeKind notice_ = v1::NOTICE_KIND_UNSPECIFIED;
};

}  // namespace cohort::actor
