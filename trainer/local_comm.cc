#include "trainer/local_comm.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"

namespace cohort::trainer {

absl::StatusOr<std::span<std::byte>> LocalComm::Allocate(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t size = std::max(kAlignment, RoundUp(bytes, kAlignment));
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", bytes, " bytes of memory"));
  }
  std::memset(memory, 0, size);
  memory_.emplace_back(memory);
  return std::span(memory, bytes);
}

void LocalComm::Free::operator()(std::byte* memory) const { std::free(memory); }

absl::Status LocalComm::Run(const Call&) { return absl::OkStatus(); }

}  // namespace cohort::trainer
