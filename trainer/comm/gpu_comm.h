#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_context.h"

namespace cohort::trainer {

// A communicator for ranks with GPUs: the GPUs move the data, `control` (any
// communicator of the same ranks and epoch, in shared memory or over a network)
// says who came, what they bring and who is gone.  See
// docs/design/0005-gpu-collectives.md, whose NC-n are kept here.
//
// Memory from Allocate is the GPU's.  Buffers may be such memory, other memory
// of the GPU, or the host's, which is staged.  Work that fills a buffer must be
// on the legacy default stream or over.  After ABORTED and DEADLINE_EXCEEDED
// the GPU may write to a buffer that is not the host's until the destructor
// returns, which takes at most about six seconds then.
class GpuComm : public Comm {
 public:
  // "NCCL 2.28.9 on GPU-... (NVIDIA H200)"
  const std::string& description() const { return description_; }

  bool allocates_on_device() const override { return true; }
  // PyTorch's (DistributedDataParallel's bucket_cap_mb and its first bucket):
  // over NCCL a small one starts the reduction while backward has just begun,
  // and large ones reach full bandwidth.  Taken over, not measured.
  BucketBytes bucket_bytes() const override {
    return {.first = size_t{1} << 20, .next = size_t{25} << 20};
  }
  absl::Status Zero(std::span<std::byte> memory) override;
  absl::Status CheckPeers() const override;
  // All ranks, as far as `control` reaches them.
  void Revoke() override;

 protected:
  GpuComm(std::unique_ptr<GpuContext> context, std::string description);

  GpuContext& context() { return *context_; }

  // A call, by `until`.
  virtual absl::Status RunUntil(const Call& call, absl::Duration until) = 0;

  // What every rank brings to `call`, by rank.  Errors are in the words of the
  // call.  `Row` is of whole words of 64 bits, between processes of one build.
  template <typename Row>
  absl::StatusOr<std::vector<Row>> Gather(const Call& call, const Row& mine,
                                          absl::Duration until);

 private:
  absl::Status Run(const Call& call) final;
  absl::Status GatherWords(const Call& call, std::span<int64_t> words,
                           absl::Duration until);

  const std::unique_ptr<GpuContext> context_;
  const std::string description_;
};

template <typename Row>
absl::StatusOr<std::vector<Row>> GpuComm::Gather(const Call& call,
                                                 const Row& mine,
                                                 absl::Duration until) {
  static_assert(std::is_trivially_copyable_v<Row> &&
                sizeof(Row) % sizeof(int64_t) == 0);
  constexpr size_t kWords = sizeof(Row) / sizeof(int64_t);
  // A sum in which each rank has a row of its own: all rows, on all ranks.
  std::vector<int64_t> words(kWords * world());
  std::memcpy(&words[kWords * rank()], &mine, sizeof(mine));
  const absl::Status met = GatherWords(call, std::span(words), until);
  if (!met.ok()) return met;
  std::vector<Row> rows(world());
  std::memcpy(static_cast<void*>(rows.data()), words.data(),
              rows.size() * sizeof(Row));
  return rows;
}

}  // namespace cohort::trainer
