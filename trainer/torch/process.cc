#include "trainer/torch/process.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torch/version.h"

#include "common/log.h"

namespace cohort::torch_adapter {
namespace {

constexpr int kKeepBytes = 2'000'000'000;

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kKeepBytes);
  mallopt(M_TRIM_THRESHOLD, kKeepBytes);
  mallopt(M_TOP_PAD, 64 << 20);
}

// Whether a loaded library's path contains `part`.
bool IsMapped(absl::string_view part) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (absl::StrContains(line, part)) return true;
  }
  return false;
}

// OpenBLAS keeps threads of its own, which LibTorch's setting does not reach;
// they spin on the cores of the other ranks.
void SetBlasThreads(int threads) {
  using Setter = void (*)(int);
  if (auto* set = reinterpret_cast<Setter>(
          dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) {
    set(threads);
  }
}

ComputeFacts FindBlas() {
  ComputeFacts facts;
  if (at::hasMKL()) {  // Inside of LibTorch, as in PyPI's wheels.
    facts.blas = "MKL";
    facts.fast_blas = true;
    return facts;
  }
  using Config = char* (*)();
  if (auto* config = reinterpret_cast<Config>(
          dlsym(RTLD_DEFAULT, "openblas_get_config"))) {
    facts.blas = config();
    facts.fast_blas = true;
    return facts;
  }
  for (const absl::string_view name : {"mkl", "blis", "openblas", "atlas"}) {
    if (IsMapped(name)) {
      facts.blas = std::string(name);
      facts.fast_blas = true;
      return facts;
    }
  }
  facts.blas = "reference BLAS";
  return facts;
}

}  // namespace

ComputeFacts PrepareProcess() {
  KeepFreedMemory();
  ComputeFacts facts = FindBlas();
  if (!facts.fast_blas) {
    COHORT_LOG(kWarning, "slow_blas", {"blas", facts.blas},
               {"cost", "matrix products are about 27 times slower"},
               {"fix", "apt install libopenblas0-pthread"});
  }
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(1);
    SetBlasThreads(1);
  }
  facts.threads = at::get_num_threads();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
#if TORCH_VERSION_MAJOR > 2 || \
    (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
  // It would write every new tensor twice; ours are not read before.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
#endif
  return facts;
}

void PrepareForGpu() {
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

}  // namespace cohort::torch_adapter
