#include "common/random.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/check.h"

namespace cohort {

void Random::Fill(std::span<uint8_t> out) {
  while (!out.empty()) {
    const uint64_t word = Uint64();
    const size_t n = std::min(out.size(), sizeof(word));
    // Byte by byte, so that the sequence does not depend on the machine.
    for (size_t i = 0; i < n; ++i) {
      out[i] = static_cast<uint8_t>(word >> (8 * i));
    }
    out = out.subspan(n);
  }
}

std::string Random::Bytes(size_t n) {
  std::string bytes(n, '\0');
  Fill(std::span<uint8_t>(reinterpret_cast<uint8_t*>(bytes.data()), n));
  return bytes;
}

uint64_t Random::Below(uint64_t n) {
  COHORT_CHECK(n > 0);
  // Values under 2^64 mod n are drawn again: they would favour small results.
  const uint64_t unfair = (0 - n) % n;
  uint64_t word = Uint64();
  while (word < unfair) word = Uint64();
  return word % n;
}

double Random::Double() {
  // A double has 53 bits of mantissa.
  return static_cast<double>(Uint64() >> 11) * 0x1.0p-53;
}

uint64_t SeededRandom::Uint64() {
  // splitmix64 (Steele, Lea, Flood 2014): passes BigCrush, eight bytes of
  // state.
  state_ += 0x9e3779b97f4a7c15ULL;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

uint64_t SystemRandom::Uint64() {
  uint64_t word = 0;
  Fill(std::span<uint8_t>(reinterpret_cast<uint8_t*>(&word), sizeof(word)));
  return word;
}

void SystemRandom::Fill(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    COHORT_CHECK(n > 0) << "getrandom: " << std::strerror(errno);
    out = out.subspan(static_cast<size_t>(n));
  }
}

}  // namespace cohort
