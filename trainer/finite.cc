#include "trainer/finite.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cohort::trainer {
namespace {

// Looked at without a branch, so that the loop vectorises.
constexpr size_t kBlock = 4096;

// What has all bits of the exponent set is infinite or NaN.
template <typename Word>
bool AllFiniteIn(const Buffer& buffer, Word exponent) {
  const auto* const bytes = static_cast<const std::byte*>(buffer.data);
  for (size_t begin = 0; begin < buffer.count; begin += kBlock) {
    const size_t end = std::min(buffer.count, begin + kBlock);
    Word found = 0;
    for (size_t i = begin; i < end; ++i) {
      Word word;
      std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
      found |= static_cast<Word>((word & exponent) == exponent);
    }
    if (found != 0) return false;
  }
  return true;
}

bool AllFiniteIn(const Buffer& buffer) {
  switch (buffer.dtype) {
    case DType::kF32:
      return AllFiniteIn<uint32_t>(buffer, 0x7F800000u);
    case DType::kF64:
      return AllFiniteIn<uint64_t>(buffer, 0x7FF0000000000000u);
    case DType::kF16:
      return AllFiniteIn<uint16_t>(buffer, 0x7C00u);
    case DType::kBF16:
      return AllFiniteIn<uint16_t>(buffer, 0x7F80u);
    case DType::kI32:
    case DType::kI64:
      return true;
  }
  return true;
}

}  // namespace

bool AllFinite(std::span<const Buffer> buffers) {
  return std::all_of(buffers.begin(), buffers.end(),
                     [](const Buffer& buffer) { return AllFiniteIn(buffer); });
}

}  // namespace cohort::trainer
