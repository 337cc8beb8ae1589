#pragma once

#include <string>

namespace cohort::torch_adapter {

// What a process computes with.
struct ComputeFacts {
  // The BLAS that LibTorch multiplies with: "OpenBLAS 0.3.21 ...", or
  // "reference BLAS", which is 27 times slower.
  std::string blas;
  bool fast_blas = false;
  int threads = 1;
};

// Readies this process for training; call it first in main.
//
// malloc keeps big blocks instead of giving them back to the kernel, which
// page-faulted a third of a CNN step away; one thread a rank unless
// OMP_NUM_THREADS says otherwise, because the ranks of a node share its cores;
// deterministic algorithms, on GPUs too (CUBLAS_WORKSPACE_CONFIG).  Warns on
// stderr, with the package to install, when reference BLAS is loaded.
ComputeFacts PrepareProcess();

}  // namespace cohort::torch_adapter
