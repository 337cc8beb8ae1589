#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "trainer/comm/comm_work.h"

namespace cohort::trainer {

// In shared memory and on the wire: add, never renumber.
enum class DType : uint32_t {
  kF32 = 1,
  kF64 = 2,
  kI32 = 3,
  kI64 = 4,
  kF16 = 5,   // IEEE binary16
  kBF16 = 6,  // bfloat16
};
// kAverage is the sum divided by the world; floating point only.
enum class ReduceOp : uint32_t { kSum = 1, kMax = 2, kMin = 3, kAverage = 4 };

absl::string_view ToString(DType dtype);
absl::string_view ToString(ReduceOp op);
size_t SizeOf(DType dtype);

// Borrowed memory of one element type.
struct Buffer {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kF32;

  size_t bytes() const { return count * SizeOf(dtype); }

  static Buffer Of(std::span<float> values) {
    return {values.data(), values.size(), DType::kF32};
  }
  static Buffer Of(std::span<double> values) {
    return {values.data(), values.size(), DType::kF64};
  }
  static Buffer Of(std::span<int32_t> values) {
    return {values.data(), values.size(), DType::kI32};
  }
  static Buffer Of(std::span<int64_t> values) {
    return {values.data(), values.size(), DType::kI64};
  }
};

// How much of what is there bit by bit is best combined at once: a bucket
// closes when it has reached this many bytes.
struct BucketBytes {
  size_t first = 0;  // of the first bucket
  size_t next = 0;   // of those behind it

  bool operator==(const BucketBytes&) const = default;
};

// How ranks find each other when a communicator is built: every rank passes one
// blob under a tag and gets the blobs of all ranks, by rank.  The session does
// it through the worker daemon; tests do it in memory.
using Exchange = absl::AnyInvocable<absl::StatusOr<std::vector<std::string>>(
    absl::string_view tag, std::string mine, absl::Duration deadline)>;

// A group of ranks that work on buffers together.
//
// Every rank calls the same operations in the same order, each with the same
// number of buffers, sizes and types.  A call returns when this rank's part is
// over and its buffers may be used.  One communicator serves one epoch of a run
// and never outlives it: a change of membership means a new one.  Results are
// bit-identical on all ranks.  On CPUs they are so for any timing: elements are
// combined in rank order, of several nodes with several ranks first in each
// node (HC-1); NaN and infinity propagate.  On GPUs NCCL chooses the order
// (CM-2).
//
// Thread-compatible: one thread calls and starts operations; Revoke() may come
// from any thread at any time during the communicator's life.
//
// Errors of every operation:
//   INVALID_ARGUMENT   the arguments cannot work (unknown type, integer
//                      average, null data, root outside the world) or differ
//                      between ranks; all ranks learn the latter.  Buffers
//                      untouched, the communicator still works (but see below).
//   DEADLINE_EXCEEDED  names the operation, its sequence number and the ranks
//                      that had not arrived.
//   ABORTED            revoked, a peer's process is gone, or the communicator
//                      is over since an earlier error.
//   RESOURCE_EXHAUSTED a rank, named on the others, has no memory to stage a
//                      buffer that is not from Allocate.  Buffers untouched,
//                      the communicator still works (but see below).
// After DEADLINE_EXCEEDED and ABORTED the buffers are undefined and the
// communicator is over: every later call is ABORTED.  Over NCCL the same holds
// after the other two when some rank called what all had agreed on before, in
// the same sizes and types: it is launched by then, and cannot be taken back.
//
// CM-1: a call ends by its deadline, and within 100 ms of Revoke().
// CM-2: on CPUs, and among ranks of one GPU, results do not depend on timing,
//       and on the backend only where HierarchicalComm adds by nodes (HC-1);
//       but a NaN is just that: which of its bits are set is up to the
//       processor. Over NCCL all ranks hold identical copies, as nccl.h says,
//       and no more is promised: the order of additions follows the algorithm
//       that NCCL chooses by size, version and machine, so low bits differ from
//       other backends and may from one placement to another; 16-bit floats may
//       be rounded at each addition; max and min may drop one rank's NaN.
class Comm {
 public:
  struct Identity {
    int rank = 0;
    int world = 1;
    uint64_t epoch = 0;
  };

  // In shared memory and on the wire: add, never renumber.
  enum class Kind : uint32_t {
    kAllReduce = 1,
    kBroadcast = 2,
    kBarrier = 3,
    kLeave = 4,  // not a call: a rank says that it is done with its peers
    kReduceScatter = 5,
    kAllGather = 6,
  };

  // One call, as backends see it.
  struct Call {
    Kind kind = Kind::kBarrier;
    uint64_t sequence = 0;
    std::span<const Buffer> buffers = {};
    ReduceOp op = ReduceOp::kSum;  // kAllReduce, kReduceScatter
    int root = 0;                  // kBroadcast
    absl::Duration deadline = {};
    // For a communicator that is made of others.  kReduceScatter, kAllGather:
    // the buffers are cut into so many parts of whole cache lines, one for each
    // of the first ranks; 0: into blocks of equal size.
    int parts = 0;
    // kAverage divides by so many ranks; 0: by the world.
    int mean_of = 0;

    // "AllReduce #12 (sum)"
    std::string ToString() const;
  };

  virtual ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return identity_.rank; }
  int world() const { return identity_.world; }
  uint64_t epoch() const { return identity_.epoch; }
  // Of the last operation started; 0 before the first.
  uint64_t sequence() const { return sequence_; }
  // How long the calling thread was in operations, all in all: for the share of
  // a run that goes into them, waiting for slower ranks included.
  absl::Duration time_in_calls() const { return time_in_calls_; }

  // Combines the buffers element by element over all ranks, in place.
  absl::Status AllReduce(std::span<const Buffer> buffers, ReduceOp op,
                         absl::Duration deadline);
  absl::Status AllReduce(const Buffer& buffer, ReduceOp op,
                         absl::Duration deadline) {
    return AllReduce(std::span(&buffer, 1), op, deadline);
  }

  // Copies the buffers of `root` to all ranks.
  absl::Status Broadcast(std::span<const Buffer> buffers, int root,
                         absl::Duration deadline);
  absl::Status Broadcast(const Buffer& buffer, int root,
                         absl::Duration deadline) {
    return Broadcast(std::span(&buffer, 1), root, deadline);
  }

  // Combines as AllReduce, but gives each rank its block alone, in its place:
  // of each buffer the world's blocks are of equal size, and rank r's is the
  // r-th.  The others are undefined after it.  INVALID_ARGUMENT also for a
  // buffer whose elements the world does not divide.
  absl::Status ReduceScatter(std::span<const Buffer> buffers, ReduceOp op,
                             absl::Duration deadline);
  absl::Status ReduceScatter(const Buffer& buffer, ReduceOp op,
                             absl::Duration deadline) {
    return ReduceScatter(std::span(&buffer, 1), op, deadline);
  }

  // The other way: each rank brings its block, in its place, and gets all of
  // them.
  absl::Status AllGather(std::span<const Buffer> buffers,
                         absl::Duration deadline);
  absl::Status AllGather(const Buffer& buffer, absl::Duration deadline) {
    return AllGather(std::span(&buffer, 1), deadline);
  }

  // Returns when all ranks have called it.
  absl::Status Barrier(absl::Duration deadline);

  // ---- works that were started
  //
  // The same on a thread of the communicator, so that the calling thread can
  // compute meanwhile where there is a core for it.  They run one after another
  // in the order in which they were started; an operation that is called
  // waits for those before it.  Until a work's Wait has returned its buffers
  // are the communicator's, and the deadline counts from the start.  All works
  // are waited for before the communicator goes, which is checked; a CommWork
  // that goes waits, too.
  CommWork StartAllReduce(std::vector<Buffer> buffers, ReduceOp op,
                          absl::Duration deadline);
  CommWork StartReduceScatter(std::vector<Buffer> buffers, ReduceOp op,
                              absl::Duration deadline);
  CommWork StartAllGather(std::vector<Buffer> buffers, absl::Duration deadline);
  CommWork StartBroadcast(std::vector<Buffer> buffers, int root,
                          absl::Duration deadline);
  CommWork StartBarrier(absl::Duration deadline);

  // Memory that operations use without a copy, 64-byte aligned and zeroed;
  // valid as long as the communicator at least.  RESOURCE_EXHAUSTED when there
  // is not that much.
  virtual absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) = 0;

  // Whether Allocate gives memory of this rank's GPU, which its CPU cannot
  // reach.
  virtual bool allocates_on_device() const { return false; }

  // What suits gradients here; the same on all ranks.  In memory of the host
  // one bucket: all is there when it is combined, in one call, and over Gloo
  // each further buffer of a call waits for messages of its own: two instead of
  // one cost 13 to 24 % of 4 MiB, nothing that shows of 25 and 100 MiB, nor in
  // shared memory (bench_allreduce, "parts"; two ranks on two cores).
  virtual BucketBytes bucket_bytes() const;

  // Zeroes `memory`, a part of what Allocate gave.
  virtual absl::Status Zero(std::span<std::byte> memory);

  // No operation from now on waits for longer than `most`, whatever deadline it
  // is given.
  void LimitDeadlines(absl::Duration most) { deadline_max_ = most; }

  // ABORTED when it is known already that the next operation must fail: the
  // epoch is revoked, or a peer's process is gone.  Never blocks; for who waits
  // for something else than an operation.  On the thread that calls operations.
  virtual absl::Status CheckPeers() const { return absl::OkStatus(); }

  // Makes pending and later work fail with ABORTED, here and, as far as the
  // backend reaches them, on the peers.  Thread-safe.
  virtual void Revoke() = 0;

 protected:
  explicit Comm(const Identity& identity);

  // Whether an earlier error ended the communicator.
  bool is_over() const { return !over_.ok(); }

  // Does a call whose arguments are valid by themselves.
  virtual absl::Status Run(const Call& call) = 0;

  // Gets the memory that `call` will need of this backend, which may then not
  // fail for want of it.
  virtual absl::Status Reserve(const Call&) { return absl::OkStatus(); }

  // For a communicator that is made of others: does `call` on `part`; what it
  // will need there.
  static absl::Status RunOn(Comm& part, const Call& call) {
    return part.Do(call);
  }
  static absl::Status ReserveOn(Comm& part, const Call& call) {
    return part.Reserve(call);
  }

  // DEADLINE_EXCEEDED for ranks that have not come to `call`.
  absl::Status NotArrived(const Call& call, std::vector<int> missing);
  // The ranks that the last NotArrived named.
  static const std::vector<int>& MissingOf(const Comm& part) {
    return part.missing_;
  }

 private:
  absl::Status CheckCall(const Call& call) const;
  // Behind what was started.
  absl::Status Do(const Call& call);
  absl::Status DoNow(Call call);
  CommWork Start(Call call, std::vector<Buffer> buffers);

  const Identity identity_;
  absl::Duration deadline_max_ = absl::InfiniteDuration();
  // The works, once one was started.
  std::unique_ptr<CommWorkThread> works_;
  uint64_t sequence_ = 0;
  absl::Duration time_in_calls_;
  std::vector<int> missing_;
  // Why the communicator is over; OK while it is not.
  absl::Status over_;
};

}  // namespace cohort::trainer
