#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/cluster.h"
#include "common/mutex.h"

namespace cohort::bench {

// A job as people submit them; it waits where no node has GPUs.
JobSpec FullSpec(int number);

// Something that makes a change durable and says so: the head, what a machine
// can do at best, or a peer.  Thread-safe.
class Target {
 public:
  virtual ~Target() = default;
  using Done = std::function<void(absl::Status)>;
  // `done` runs once, on another thread.
  virtual void Call(int number, Done done) = 0;
  // As Call, blocking.
  absl::Status CallAndWait(int number);
};

// FullSpec through the public client; remembers the jobs.
class HeadTarget final : public Target {
 public:
  // `cluster` outlives it.
  explicit HeadTarget(Cluster& cluster) : cluster_(cluster) {}
  void Call(int number, Done done) override;
  int64_t acknowledged() const;

 private:
  absl::Status Note(absl::StatusOr<JobId> job);

  Cluster& cluster_;
  mutable Mutex mutex_;
  std::set<JobId> jobs_ ABSL_GUARDED_BY(mutex_);
};

// One method of a bare gRPC server, with bytes as they are.
class StubTarget final : public Target {
 public:
  // The request of call `number`.
  using Request = std::function<std::string(int number)>;
  StubTarget(const std::string& address, std::string path, Request request);
  ~StubTarget() override;
  void Call(int number, Done done) override;

 private:
  struct Stub;

  const std::unique_ptr<Stub> stub_;
  const std::string path_;
  const Request request_;
};

// etcd's Put of a new key with a value of `bytes`.
std::unique_ptr<Target> EtcdTarget(const std::string& address, int64_t bytes);

// FullSpec, to bench/floor_server.cc.
std::unique_ptr<Target> FloorTarget(const std::string& address);

}  // namespace cohort::bench
