#pragma once

#include <bit>
#include <cstdint>

namespace cohort::trainer {

// IEEE binary16 and bfloat16 as they lie in memory; arithmetic is done in f32.
struct Float16 {
  uint16_t bits = 0;
};
struct BFloat16 {
  uint16_t bits = 0;
};

// Exact.  Written without branches, so that loops over them vectorise.
inline __attribute__((always_inline)) float ToFloat(Float16 value) {
  const uint32_t word = uint32_t{value.bits} << 16;
  const uint32_t sign = word & 0x80000000u;
  const uint32_t twice = word + word;
  // Exponent and mantissa moved to f32's place, the exponent shifted by a
  // multiplication that leaves infinity and NaN what they are.
  const float normal =
      std::bit_cast<float>((twice >> 4) + (uint32_t{0xE0} << 23)) * 0x1.0p-112f;
  const float subnormal =
      std::bit_cast<float>((twice >> 17) | (uint32_t{126} << 23)) - 0.5f;
  const uint32_t magnitude = twice < (uint32_t{1} << 27)
                                 ? std::bit_cast<uint32_t>(subnormal)
                                 : std::bit_cast<uint32_t>(normal);
  return std::bit_cast<float>(sign | magnitude);
}

inline __attribute__((always_inline)) float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

// Rounds to nearest, ties to even; beyond the largest becomes infinity, and NaN
// stays NaN.
inline __attribute__((always_inline)) Float16 ToFloat16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t twice = word + word;
  const uint32_t sign = word & 0x80000000u;
  const float magnitude = std::bit_cast<float>(word & 0x7FFFFFFFu);
  // Overflows to infinity what binary16 cannot hold, and then adds a power of
  // two that leaves just its mantissa bits: the addition rounds.
  const float scaled = (magnitude * 0x1.0p+112f) * 0x1.0p-110f;
  const uint32_t exponent = twice & 0xFF000000u;
  const uint32_t bias = exponent < 0x71000000u ? 0x71000000u : exponent;
  const float rounded =
      std::bit_cast<float>((bias >> 1) + 0x07800000u) + scaled;
  const uint32_t bits = std::bit_cast<uint32_t>(rounded);
  const uint32_t half = ((bits >> 13) & 0x7C00u) + (bits & 0x0FFFu);
  const uint32_t kept = twice > 0xFF000000u ? 0x7E00u : half;
  return {static_cast<uint16_t>((sign >> 16) | kept)};
}

inline __attribute__((always_inline)) BFloat16 ToBFloat16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
  const uint32_t quiet = (word >> 16) | 0x40u;
  const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
  return {static_cast<uint16_t>(is_nan ? quiet : rounded)};
}

}  // namespace cohort::trainer
