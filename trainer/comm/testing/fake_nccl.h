#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "common/mutex.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/cuda/testing/call_faults.h"
#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::trainer::nccl {

// One operation as one rank brought it.
struct FakeOperation {
  bool is_broadcast = false;
  std::byte* data = nullptr;
  size_t count = 0;
  DataType type = 0;
  RedOp op = 0;
  int root = 0;
  cuda::Stream stream = nullptr;

  bool IsLike(const FakeOperation& other) const {
    return is_broadcast == other.is_broadcast && count == other.count &&
           type == other.type && op == other.op && root == other.root;
  }
};

// What the fake NCCLs of all ranks share: who has come to which communicator,
// and the operations that ranks meet in.  Thread-safe; outlives them.
class FakeFabric {
 public:
  struct Group;
  // One rank's end of a communicator.
  struct End {
    std::shared_ptr<Group> group;
    int rank = 0;
    uint64_t operations = 0;  // launched
    int running = 0;          // of these, on the stream
    bool is_revoked = false;
    bool is_gone = false;  // aborted or destroyed
  };

  UniqueId NewId();
  std::shared_ptr<End> Join(const UniqueId& id, int world, int rank);
  // Whether NCCL still works in the background for this end.
  bool IsBusy(const End& end) const;
  void Launch(const std::shared_ptr<End>& end, const FakeOperation& operation);
  void Revoke(End& end);
  void Leave(End& end);

  // From now on no operation is over, as if each GPU were busy, until Resume.
  void Hold();
  void Resume();

 private:
  void Execute(const std::shared_ptr<End>& end, uint64_t index,
               const FakeOperation& operation);

  mutable Mutex mutex_;
  CondVar changed_;
  int ids_ ABSL_GUARDED_BY(mutex_) = 0;
  bool holds_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Group>> groups_ ABSL_GUARDED_BY(mutex_);
};

// NCCL as one rank's process sees it: every operation and type is really
// computed, on the fake driver's streams; communicators are non-blocking.  What
// real NCCL hangs in (ranks that bring different sizes, or do not come) hangs
// here, until the communicator is revoked or aborted.
//
// Thread-safe, as far as NCCL is; must outlive the tables it gives out.
class FakeNccl {
 public:
  explicit FakeNccl(FakeFabric& fabric, int version = 22809);

  // With the functions that the version has.
  NcclTable table();
  cuda::CallFaults& faults() { return faults_; }

  // What ncclCommGetAsyncError says from now on.  An error is kept, as NCCL
  // does: a communicator takes nothing more (ncclCommEnsureReady).
  void FailInBackground(Result result);
  // The same, but only of the communicator that next makes `call`, one that
  // answers kInProgress: what it began goes wrong, and others may wait in it.
  void FailInBackground(const std::string& call, Result result);

  // Communicators that were neither aborted nor destroyed.
  size_t communicators() const;
  // Calls that NCCL forbids, as on a communicator that is gone.
  int misuses() const;

 private:
  using End = FakeFabric::End;
  struct Held {
    std::shared_ptr<End> end;
    Result background = kSuccess;
  };

  std::shared_ptr<End> Find(Communicator comm);
  // What keeps a communicator from taking more; kSuccess: nothing.
  Result Kept(Communicator comm) const;
  // True when `call`, which begins something, is to go wrong.
  bool GoesWrong(Communicator comm, const std::string& call);
  Result Misuse(Result result);
  Result Init(Communicator* comm, int world, const UniqueId& id, int rank,
              const Config* config);
  Result AsyncError(Communicator comm, Result* result);
  Result Take(Communicator comm, const FakeOperation& operation);
  Result EndGroup();
  Result Forget(Communicator comm);
  void FillCommunicatorCalls(NcclTable& table);
  void FillOperationCalls(NcclTable& table);
  void FillOptionalCalls(NcclTable& table);

  FakeFabric& fabric_;
  const int version_;
  cuda::CallFaults faults_;
  mutable Mutex mutex_;
  std::map<Communicator, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<Communicator, FakeOperation>> grouped_
      ABSL_GUARDED_BY(mutex_);
  bool in_group_ ABSL_GUARDED_BY(mutex_) = false;
  Result background_ ABSL_GUARDED_BY(mutex_) = kSuccess;
  // What is to go wrong, by call.
  std::map<std::string, Result> wrong_ ABSL_GUARDED_BY(mutex_);
  int misuses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::trainer::nccl
