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
// deterministic algorithms, so that a run on CPUs can be repeated bit by bit: a
// model with an operation that has no such form gets LibTorch's error that
// names it.  Warns on stderr, with the package to install, when reference BLAS
// is loaded.
ComputeFacts PrepareProcess();

// What changes when the process computes on a GPU; OpenGpu calls it, and so
// does who picks a device otherwise.  Algorithms are those that PyTorch takes
// by default: on a GPU many operations have no deterministic form, others a
// slow one, and over NCCL bits are promised by nobody (CM-2).  Who wants them
// asks LibTorch behind OpenGpu: setDeterministicAlgorithms,
// CUBLAS_WORKSPACE_CONFIG.
void PrepareForGpu();

}  // namespace cohort::torch_adapter
