#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// A gradient to reduce, in the order in which the model registers it.
struct GradientShape {
  std::string name;
  size_t elements = 0;
  DType dtype = DType::kF32;
};

// Alike on all ranks.
struct ReducerOptions {
  // At which a bucket closes; 0: what suits the communicator (bucket_bytes).
  size_t first_bucket_bytes = 0;
  size_t bucket_bytes_max = 0;
  // Covers a peer that still loads, evaluates or writes a checkpoint.  A rank
  // that died is told by Revoke long before.
  absl::Duration timeout = absl::Minutes(10);
};

// Where a gradient lies in its bucket.
struct BucketSlice {
  size_t gradient = 0;  // index into the shapes
  size_t offset = 0;    // bytes from the arena's start
  size_t bytes = 0;
};

// Gradients of one type that are reduced together.
struct Bucket {
  DType dtype = DType::kF32;
  size_t offset = 0;  // bytes from the arena's start
  size_t bytes = 0;   // a multiple of 64, padding included
  std::vector<BucketSlice> slices{};
};

// Buckets in reverse registration order, which is about the order in which
// backward makes gradients; a bucket closes when it has reached its limit or
// the type changes.  Contiguous from offset 0, slices 64-byte aligned; where a
// gradient lies does not depend on the limits.  Pure: every rank computes the
// same.
std::vector<Bucket> PlanBuckets(std::span<const GradientShape> shapes,
                                const BucketBytes& limits);

// The gradients of a model in the communicator's memory, averaged over the
// gang.
//
//   RD-1: after Reduce, every rank holds the same bits: the mean over ranks,
//         in rank order where the communicator keeps it (CM-2).
//   RD-2: no copy: gradient(i) is memory from Comm::Allocate, one contiguous
//         area for all.
//
//   RD-3: what is reduced in which order follows from the shapes, the options
//         and the kind of communicator alone, never from timing.
//   RD-4: where the communicator keeps rank order, the bits do not depend on
//         the buckets.
//
// On CPUs the reduction runs in the training thread behind backward: a second
// thread would take the core that backward needs (measured: 3.7 times slower on
// a small model with two ranks on two cores).  Thread-compatible; `comm` must
// outlive it.
class GradientReducer {
 public:
  // Every rank of the gang calls it alike.  InvalidArgument for integer or
  // empty gradients; RESOURCE_EXHAUSTED when the arena has no room.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(
      Comm& comm, std::vector<GradientShape> shapes, ReducerOptions options);

  // 64-byte aligned, valid as long as the communicator's memory; of the GPU
  // where that allocates there.
  std::span<std::byte> gradient(size_t index) const;
  size_t size() const { return shapes_.size(); }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Every gradient and the zeroed padding between them, one buffer a bucket.
  std::span<const Buffer> buffers() const { return buffers_; }

  // Zeroes all gradients.  Reduce tells an error.
  void Clear();

  // Replaces each gradient, and each element of `beside`, floats that the
  // caller has from Comm::Allocate, by its mean over the gang, in one call.
  // Errors are the communicator's; gradients are undefined after one.
  absl::Status Reduce(std::span<float> beside = {});

  // The same for a backward pass that the caller has begun on a GPU and that
  // still runs: bucket by bucket, each as soon as `await(i)` says that bucket i
  // is written, while the pass goes on to the next ones.  One call a bucket, on
  // the caller's thread, which has nothing else to do then; the side stream is
  // the communicator's.  Where memory is the host's all are awaited first.
  // Returns at the first error, also `await`'s.
  absl::Status ReduceAsReady(
      absl::FunctionRef<absl::Status(size_t bucket)> await);

 private:
  GradientReducer(Comm& comm, std::vector<GradientShape> shapes,
                  ReducerOptions options);

  Comm& comm_;
  const std::vector<GradientShape> shapes_;
  const ReducerOptions options_;
  const std::vector<Bucket> buckets_;
  std::vector<BucketSlice> slices_;  // by gradient
  std::span<std::byte> arena_;
  std::vector<Buffer> buffers_;  // one a bucket
  absl::Status cleared_;
};

}  // namespace cohort::trainer
