#include "trainer/reducer.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::trainer {
namespace {

// A cache line: ranks that reduce neighbouring ranges never share one.
constexpr size_t kAlignment = 64;

BucketBytes LimitsOf(const Comm& comm, const ReducerOptions& options) {
  BucketBytes limits = comm.bucket_bytes();
  if (options.first_bucket_bytes > 0) limits.first = options.first_bucket_bytes;
  if (options.bucket_bytes_max > 0) limits.next = options.bucket_bytes_max;
  return limits;
}

absl::Status CheckShapes(std::span<const GradientShape> shapes) {
  for (const GradientShape& shape : shapes) {
    if (shape.elements == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient ", shape.name, " is empty"));
    }
    if (shape.dtype == DType::kI32 || shape.dtype == DType::kI64) {
      return absl::InvalidArgumentError(absl::StrCat(
          "gradient ", shape.name, " is of type ", ToString(shape.dtype),
          "; averaged are floating-point types"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Bucket> PlanBuckets(std::span<const GradientShape> shapes,
                                const BucketBytes& limits) {
  std::vector<Bucket> buckets;
  size_t offset = 0;
  bool open = false;
  for (size_t i = shapes.size(); i-- > 0;) {
    const GradientShape& shape = shapes[i];
    if (!open || buckets.back().dtype != shape.dtype) {
      buckets.push_back({.dtype = shape.dtype, .offset = offset});
      open = true;
    }
    Bucket& bucket = buckets.back();
    const size_t bytes = shape.elements * SizeOf(shape.dtype);
    bucket.slices.push_back({i, offset, bytes});
    offset += RoundUp(bytes, kAlignment);
    bucket.bytes = offset - bucket.offset;
    const size_t limit = buckets.size() == 1 ? limits.first : limits.next;
    if (bucket.bytes >= limit) open = false;
  }
  return buckets;
}

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Create(
    Comm& comm, std::vector<GradientShape> shapes, ReducerOptions options) {
  COHORT_RETURN_IF_ERROR(CheckShapes(shapes));
  std::unique_ptr<GradientReducer> reducer(
      new GradientReducer(comm, std::move(shapes), options));
  size_t total = 0;
  for (const Bucket& bucket : reducer->buckets_) total += bucket.bytes;
  auto arena = comm.Allocate(total);
  if (!arena.ok()) {
    return Annotate(arena.status(),
                    absl::StrCat("memory for ", total, " bytes of gradients"));
  }
  reducer->arena_ = *arena;
  reducer->slices_.resize(reducer->shapes_.size());
  for (const Bucket& bucket : reducer->buckets_) {
    for (const BucketSlice& slice : bucket.slices) {
      reducer->slices_[slice.gradient] = slice;
    }
    reducer->buffers_.push_back({reducer->arena_.data() + bucket.offset,
                                 bucket.bytes / SizeOf(bucket.dtype),
                                 bucket.dtype});
  }
  return reducer;
}

GradientReducer::GradientReducer(Comm& comm, std::vector<GradientShape> shapes,
                                 ReducerOptions options)
    : comm_(comm),
      shapes_(std::move(shapes)),
      options_(options),
      buckets_(PlanBuckets(shapes_, LimitsOf(comm, options_))) {}

std::span<std::byte> GradientReducer::gradient(size_t index) const {
  const BucketSlice& slice = slices_[index];
  return arena_.subspan(slice.offset, slice.bytes);
}

void GradientReducer::Clear() { cleared_ = comm_.Zero(arena_); }

absl::Status GradientReducer::Reduce(std::span<float> beside) {
  COHORT_RETURN_IF_ERROR(cleared_);
  if (comm_.world() == 1) return absl::OkStatus();
  std::vector<Buffer> all = buffers_;
  if (!beside.empty()) all.push_back(Buffer::Of(beside));
  return comm_.AllReduce(all, ReduceOp::kAverage, options_.timeout);
}

absl::Status GradientReducer::ReduceAsReady(
    absl::FunctionRef<absl::Status(size_t bucket)> await) {
  if (comm_.world() == 1 || !comm_.allocates_on_device()) {
    for (size_t i = 0; i < buckets_.size(); ++i) {
      COHORT_RETURN_IF_ERROR(await(i));
    }
    return Reduce();
  }
  COHORT_RETURN_IF_ERROR(cleared_);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    COHORT_RETURN_IF_ERROR(await(i));
    COHORT_RETURN_IF_ERROR(
        comm_.AllReduce(buffers_[i], ReduceOp::kAverage, options_.timeout));
  }
  return absl::OkStatus();
}

}  // namespace cohort::trainer
