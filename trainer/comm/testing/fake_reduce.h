#pragma once

#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::trainer {

// Gives `driver` the kernels of reduce.cu, by the reductions of CPUs.
void AddReduceKernels(cuda::FakeDriver& driver);

}  // namespace cohort::trainer
