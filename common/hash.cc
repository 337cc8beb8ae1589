#include "common/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/hex_text.h"

namespace cohort {
namespace {

constexpr uint32_t kCastagnoliReversed = 0x82f63b78;

using CrcTable = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: what byte b does to the sum k bytes before the end of a word.
constexpr CrcTable MakeCrcTable() {
  CrcTable tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoliReversed : 0);
    }
    tables[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (size_t k = 1; k < 8; ++k) {
      const uint32_t before = tables[k - 1][i];
      tables[k][i] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr CrcTable kCrcTable = MakeCrcTable();

constexpr uint32_t CrcByTable(const char* data, size_t size, uint32_t crc) {
  for (; size >= 8; data += 8, size -= 8) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t before = i < 4 ? (crc >> (8 * i)) & 0xff : 0;
      next ^= kCrcTable[7 - i][static_cast<uint8_t>(data[i]) ^ before];
    }
    crc = next;
  }
  for (; size > 0; ++data, --size) {
    crc = (crc >> 8) ^ kCrcTable[0][(crc ^ static_cast<uint8_t>(*data)) & 0xff];
  }
  return crc;
}

// No test reaches the table on a machine that has the instruction.
static_assert(~CrcByTable("123456789", 9, ~0u) == 0xe3069283);

#if defined(__x86_64__)
// The processor's own instruction: 10 GB/s where the table makes about one.
__attribute__((target("sse4.2"))) uint32_t CrcByInstruction(const char* data,
                                                            size_t size,
                                                            uint32_t crc) {
  uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
  }
  uint32_t narrow = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) {
    narrow = __builtin_ia32_crc32qi(narrow, static_cast<uint8_t>(*data));
  }
  return narrow;
}
#endif

}  // namespace

absl::StatusOr<Digest> Digest::FromBytes(absl::string_view bytes) {
  if (bytes.size() != kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a SHA-256 has 32 bytes, this one has ", bytes.size()));
  }
  Digest digest;
  std::copy(bytes.begin(), bytes.end(), digest.bytes_.begin());
  return digest;
}

absl::StatusOr<Digest> Digest::FromHex(absl::string_view hex) {
  if (hex.size() != 2 * kBytes ||
      !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a SHA-256 is 64 hex digits, not \"",
                     absl::CHexEscape(hex.substr(0, 80)), "\""));
  }
  return FromBytes(HexToBytes(hex));
}

std::string Digest::ToHex() const { return absl::BytesToHexString(bytes()); }

struct Sha256::Context {
  Context() : evp(EVP_MD_CTX_new()) {
    COHORT_CHECK(evp != nullptr);
    COHORT_CHECK(EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) == 1);
  }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // With the algorithm that it has: to look for one costs more than to hash a
  // short text.
  void StartAgain() {
    COHORT_CHECK(EVP_DigestInit_ex(evp, nullptr, nullptr) == 1);
  }

  EVP_MD_CTX* const evp;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(absl::string_view bytes) {
  COHORT_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) ==
               1);
}

Digest Sha256::Finish() {
  Digest digest;
  unsigned int size = 0;
  COHORT_CHECK(EVP_DigestFinal_ex(context_->evp, digest.bytes_.data(), &size) ==
               1);
  COHORT_CHECK(size == Digest::kBytes);
  context_->StartAgain();
  return digest;
}

Digest Sha256::Of(absl::string_view bytes) {
  thread_local Sha256 sha;
  sha.Update(bytes);
  return sha.Finish();
}

Digest HmacSha256(absl::string_view key, absl::string_view bytes) {
  Digest digest;
  unsigned int size = 0;
  COHORT_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                    reinterpret_cast<const unsigned char*>(bytes.data()),
                    bytes.size(), digest.bytes_.data(), &size) != nullptr);
  COHORT_CHECK(size == Digest::kBytes);
  return digest;
}

bool ConstantTimeEquals(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

uint32_t Crc32c(absl::string_view bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) {
    return ~CrcByInstruction(bytes.data(), bytes.size(), ~crc);
  }
#endif
  return ~CrcByTable(bytes.data(), bytes.size(), ~crc);
}

}  // namespace cohort
