#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Hashes: SHA-256 names content, HMAC proves who wrote it, CRC-32C finds
// damage.
namespace cohort {

// A SHA-256 or an HMAC of it.  A value.
class Digest {
 public:
  static constexpr size_t kBytes = 32;

  Digest() : bytes_{} {}
  // InvalidArgument unless there are exactly 32 bytes.
  static absl::StatusOr<Digest> FromBytes(absl::string_view bytes);
  // InvalidArgument unless `hex` is 64 hex digits.
  static absl::StatusOr<Digest> FromHex(absl::string_view hex);

  // Lives as long as this digest.
  absl::string_view bytes() const {
    return absl::string_view(reinterpret_cast<const char*>(bytes_.data()),
                             kBytes);
  }
  // 64 lower-case digits.
  std::string ToHex() const;

  friend auto operator<=>(const Digest&, const Digest&) = default;

 private:
  friend class Sha256;
  friend Digest HmacSha256(absl::string_view key, absl::string_view bytes);

  std::array<uint8_t, kBytes> bytes_;
};

// SHA-256 of bytes that come in pieces.  Thread-compatible.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(absl::string_view bytes);
  // Of everything so far; starts again.
  Digest Finish();

  static Digest Of(absl::string_view bytes);

 private:
  struct Context;

  std::unique_ptr<Context> context_;
};

Digest HmacSha256(absl::string_view key, absl::string_view bytes);

// Takes the same time wherever the two differ; for secrets.  Their lengths are
// no secret.
bool ConstantTimeEquals(absl::string_view a, absl::string_view b);

// CRC-32C (Castagnoli) of `bytes`, going on from `crc`, the value of what came
// before them.
uint32_t Crc32c(absl::string_view bytes, uint32_t crc = 0);

}  // namespace cohort
