#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "head/head_core.h"
#include "head/services/package_store.h"
#include "head/store/memory_store.h"
#include "rpc/router.h"
#include "tests/sim/sim_process.h"
#include "tests/sim/sim_worker.h"

namespace cohort::sim {

// Packages in memory, for a head whose jobs bring none: every call is answered,
// nothing is there.
class NoPackages final : public head::PackageStore {
 public:
  explicit NoPackages(Executor& process) : process_(process) {}

  void Begin(const std::string&, int64_t,
             Done<absl::StatusOr<int64_t>> done) override {
    Answer(std::move(done), absl::StatusOr<int64_t>(0));
  }
  void Upload(const std::string&, int64_t offset, std::string data,
              Done<absl::StatusOr<int64_t>> done) override {
    Answer(std::move(done),
           absl::StatusOr<int64_t>(offset + static_cast<int64_t>(data.size())));
  }
  void Finish(const std::string&, int64_t, Done<absl::Status> done) override {
    Answer(std::move(done), absl::OkStatus());
  }
  void Look(const std::string&, int64_t, Done<absl::Status> done) override {
    Answer(std::move(done),
           absl::Status(absl::NotFoundError("no packages here")));
  }
  void Fetch(const std::string&, int64_t,
             Done<absl::StatusOr<head::PackageChunk>> done) override {
    Answer(std::move(done), absl::StatusOr<head::PackageChunk>(
                                absl::NotFoundError("no packages here")));
  }
  void Remove(const std::string&) override {}
  void KeepOnly(std::vector<std::string>) override {}

 private:
  template <typename T>
  void Answer(Done<T> done, T value) {
    process_.Post([done = std::move(done), value = std::move(value)]() mutable {
      std::move(done)(std::move(value));
    });
  }

  Executor& process_;
};

// One life of a head: HeadCore, the binary's own, over a memory disk that
// outlives it.  Destroying it is kill -9.
class HeadDaemon {
 public:
  // Loads, takes a term, and serves at "head".
  HeadDaemon(World world, const head::ClusterLimits& limits);
  ~HeadDaemon();

  void Stop() {
    process_.Stop();
    store_.Stop();
  }
  void Continue() {
    store_.Continue();
    process_.Continue();
  }
  bool stopped() const { return process_.stopped(); }
  // It ended by itself: a higher term, a store that another head took.
  bool ended() const { return ended_; }
  bool serving() const { return serving_; }
  // Null while it loads.
  const head::ClusterState* state() const { return core_->state(); }
  bool read_only() const { return core_->read_only(); }
  // All that it has decided is durable.
  bool settled() const { return core_->pending_count() == 0; }
  // Changes whenever its state may have changed.
  uint64_t runs() const { return process_.runs(); }

 private:
  World world_;
  ProcessExecutor process_;
  ProcessExecutor store_;
  NoPackages packages_;
  rpc::Router router_;
  std::unique_ptr<head::HeadCore> core_;
  bool serving_ = false;
  bool ended_ = false;
};

}  // namespace cohort::sim
