#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "examples/mlp/cpu_kernels.h"
#include "examples/mlp/kernel_args.h"
#include "trainer/batch_memory.h"
#include "trainer/comm/comm.h"

namespace cohort::mlp {

// Where the network's numbers lie and its kernels run, in the order in which
// they are begun.  What is begun may be over later: Await and Download wait.
//
// Thread-compatible, and more: every call, the destructor too, comes from the
// thread that made it.  Errors name the device and the call; after one nothing
// that was computed is worth anything.
class Device {
 public:
  virtual ~Device() = default;

  // "CPU", or "GPU-01234567-... (NVIDIA H200)".
  virtual const std::string& name() const = 0;
  // Whether its memory is what a communicator that allocates_on_device() gives.
  virtual bool is_gpu() const = 0;

  // Memory that is zeroed before what is begun later, uploads too; the device's
  // as long as it lives.
  virtual absl::StatusOr<std::byte*> Allocate(size_t bytes) = 0;

  // Returns when `from` may be changed; what is begun later sees the bytes.
  virtual absl::Status Upload(std::byte* to,
                              std::span<const std::byte> from) = 0;
  // Returns when all that was begun is over and `to` is filled.
  virtual absl::Status Download(std::span<std::byte> to,
                                const std::byte* from) = 0;

  // Remembers under a small number how much was begun until now, and waits
  // until that is over.  `look` is asked every few milliseconds meanwhile and
  // its error ends the wait: who waits for a GPU does not hear otherwise that
  // its gang is at an end (Comm::CheckPeers).
  using Look = std::function<absl::Status()>;
  virtual absl::Status Mark(size_t mark) = 0;
  virtual absl::Status Await(size_t mark, const Look& look) = 0;

  // Uploads that run beside what is begun by other calls.
  struct Copy {
    std::byte* to = nullptr;
    std::span<const std::byte> from = {};
  };
  // Begins copies behind what Mark(behind) remembers, if it was ever called.
  // `from` is read until AwaitUploads has returned; fastest is batch_memory().
  virtual absl::Status BeginUploads(std::span<const Copy> copies,
                                    size_t behind) = 0;
  // What is begun from now on is begun behind the uploads until now.
  virtual absl::Status JoinUploads() = 0;
  // Returns when these are over.  From any thread.
  virtual absl::Status AwaitUploads() = 0;
  // Memory for what goes up often.  Valid as long as the device, which a block
  // must not outlive; a block is given back when no upload reads it any more.
  virtual trainer::BatchMemory& batch_memory() = 0;

  // Begin a kernel over elements of `dtype`.
  absl::Status Launch(trainer::DType dtype, const ProductArgs& args);
  absl::Status Launch(trainer::DType dtype, const ColumnSumArgs& args);
  absl::Status Launch(trainer::DType dtype, const SoftmaxArgs& args);
  absl::Status Launch(trainer::DType dtype, const AdamArgs& args);
  absl::Status Launch(trainer::DType dtype, const NonFiniteArgs& args);
  absl::Status Launch(trainer::DType dtype, const RoundArgs& args);

 protected:
  // Blocks of kThreads threads.
  struct Grid {
    uint32_t x = 1;
    uint32_t y = 1;
  };

  // `args` is copied.
  virtual absl::Status LaunchKernel(Kernel kernel, trainer::DType dtype,
                                    Grid grid, const void* args) = 0;
};

// The process's own memory; what is begun is over at once.
class CpuDevice final : public Device {
 public:
  CpuDevice() = default;

  const std::string& name() const override { return name_; }
  bool is_gpu() const override { return false; }
  // RESOURCE_EXHAUSTED when there is not that much.
  absl::StatusOr<std::byte*> Allocate(size_t bytes) override;
  absl::Status Upload(std::byte* to, std::span<const std::byte> from) override;
  absl::Status Download(std::span<std::byte> to,
                        const std::byte* from) override;
  absl::Status Mark(size_t) override { return absl::OkStatus(); }
  absl::Status Await(size_t, const Look&) override { return absl::OkStatus(); }
  absl::Status BeginUploads(std::span<const Copy> copies,
                            size_t behind) override;
  absl::Status JoinUploads() override { return absl::OkStatus(); }
  absl::Status AwaitUploads() override { return absl::OkStatus(); }
  trainer::BatchMemory& batch_memory() override {
    return trainer::PlainMemory::OfProcess();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  absl::Status LaunchKernel(Kernel kernel, trainer::DType dtype, Grid grid,
                            const void* args) override;

  const std::string name_ = "CPU";
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
};

}  // namespace cohort::mlp
