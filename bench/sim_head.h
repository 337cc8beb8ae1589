#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

#include "common/latch.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/strand.h"
#include "common/thread_pool.h"
#include "head/state/cluster_state.h"
#include "head/store/commit.h"
#include "head/store/rocksdb_store.h"
#include "head/testing/no_links.h"

namespace cohort::bench {

// A Store that notes how long each batch was.  As the store beneath.
class NotingStore final : public head::Store {
 public:
  explicit NotingStore(std::unique_ptr<head::Store> store)
      : store_(std::move(store)) {}

  absl::Status Append(uint64_t term, const head::Batch& batch) override {
    sizes_.push_back(head::BytesOf(batch));
    return store_->Append(term, batch);
  }
  absl::Status Scan(head::Table table, const std::string& first, size_t limit,
                    head::RowVisitor each) override {
    return store_->Scan(table, first, limit, each);
  }
  absl::Status Checkpoint(const std::string& directory) override {
    return store_->Checkpoint(directory);
  }
  std::vector<size_t> TakeSizes() { return std::exchange(sizes_, {}); }

 private:
  const std::unique_ptr<head::Store> store_;
  std::vector<size_t> sizes_;
};

// All of a head that decides and all that makes it durable (ClusterState,
// Commit, RocksDB with its fsyncs), without transport: nodes are spoken for by
// its user.
//
// Methods are for the strand, but for the constructor, the destructor and
// OnStrand.
class SimHead final : private head::NoLinks {
 public:
  // What the nodes hear, after the commit.
  using OnDesired =
      std::function<void(const NodeId& node, const v1::DesiredPlace&)>;

  // `directory` must not exist.
  SimHead(const std::string& directory, OnDesired on_desired);
  ~SimHead() override;

  // Blocks until `task` has run on the strand.
  void OnStrand(const std::function<void()>& task);
  // Blocks until everything submitted is durable and its effects have run.
  void Flush();

  NodeId Join(const head::NodeRecord& record);
  // `durable` runs once that is acknowledged.
  void Submit(int num_workers, const std::string& per_worker,
              std::function<void()> durable);
  void Observe(const NodeId& node, const v1::ObservedPlace& place);

  const head::ClusterState& state() const { return *state_; }
  Strand& strand() { return strand_; }
  // Of the batches since the last call.  After Flush.
  std::vector<size_t> TakeBatchSizes() { return store_->TakeSizes(); }

 private:
  void SendDesired(const NodeId& node, uint64_t incarnation,
                   const std::vector<v1::DesiredPlace>& places) override;

  const OnDesired on_desired_;
  MachineClock clock_;
  SeededRandom random_{1};
  ThreadPool strand_pool_{1};
  ThreadPool store_pool_{1};
  Strand strand_{strand_pool_};
  Strand store_strand_{store_pool_};
  std::unique_ptr<NotingStore> store_;
  std::unique_ptr<head::ClusterState> state_;
  std::unique_ptr<head::Commit> commit_;
  std::map<NodeId, uint64_t> incarnations_;
  int64_t requests_ = 0;
};

}  // namespace cohort::bench
