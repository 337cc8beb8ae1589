#pragma once

// CUDA C++ on a CPU, as far as mlp.cu uses it: a test includes this and then
// the .cu file itself.  A block's threads are fibers that take turns at
// __syncthreads(); blocks run one after another.  Not thread-safe.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

// One for all threads of a block, as blocks do not run at once.
#undef __shared__
#define __shared__ static
#undef __global__
#define __global__
#undef __launch_bounds__
#define __launch_bounds__(threads)
#undef __grid_constant__
#define __grid_constant__

namespace cohort::mlp {

struct CudaIndex {
  uint32_t x = 0;
  uint32_t y = 0;
};

// The block that runs.
class CudaBlock {
 public:
  static CudaBlock& Running() {
    static auto& block = *new CudaBlock;
    return block;
  }

  // Runs `kernel` once for each thread of a grid of blocks of `threads`.
  void RunGrid(CudaIndex grid, uint32_t threads,
               const std::function<void()>& kernel) {
    dimension = {threads, 1};
    kernel_ = &kernel;
    fibers_.resize(threads);
    for (index.y = 0; index.y < grid.y; ++index.y) {
      for (index.x = 0; index.x < grid.x; ++index.x) RunBlock();
    }
  }

  // Of the thread that runs: returns when all others have come here, or ended.
  void Synchronize() { swapcontext(&fibers_[thread.x].context, &scheduler_); }

  CudaIndex index;
  CudaIndex thread;
  CudaIndex dimension;

 private:
  struct Fiber {
    ucontext_t context;
    std::vector<std::byte> stack = std::vector<std::byte>(size_t{64} << 10);
    bool is_over = false;
  };

  static void RunThread() {
    CudaBlock& block = Running();
    (*block.kernel_)();
    block.fibers_[block.thread.x].is_over = true;
  }

  void RunBlock() {
    for (Fiber& fiber : fibers_) {
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = &scheduler_;
      fiber.is_over = false;
      makecontext(&fiber.context, RunThread, 0);
    }
    for (size_t running = fibers_.size(); running > 0;) {
      for (uint32_t i = 0; i < fibers_.size(); ++i) {
        if (fibers_[i].is_over) continue;
        thread = {i, 0};
        swapcontext(&scheduler_, &fibers_[i].context);
        if (fibers_[i].is_over) --running;
      }
    }
  }

  ucontext_t scheduler_;
  std::vector<Fiber> fibers_;
  const std::function<void()>* kernel_ = nullptr;
};

}  // namespace cohort::mlp

#define blockIdx (cohort::mlp::CudaBlock::Running().index)
#define threadIdx (cohort::mlp::CudaBlock::Running().thread)
#define blockDim (cohort::mlp::CudaBlock::Running().dimension)
#define __syncthreads() cohort::mlp::CudaBlock::Running().Synchronize()
