#include "common/secret_box.h"

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/check.h"
#include "common/hash.h"
#include "common/hex_text.h"

namespace cohort {
namespace {

// A sealed text is the key's id, a nonce, what is hidden, and a tag.
constexpr size_t kIdBytes = 8;
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* In(absl::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* Out(std::string& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

}  // namespace

absl::StatusOr<SecretBox> SecretBox::FromText(absl::string_view text) {
  std::vector<Key> keys;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    const absl::StatusOr<Digest> key = Digest::FromHex(line);
    if (!key.ok()) {
      return absl::InvalidArgumentError("a key is a line of 64 hex digits");
    }
    keys.push_back({.id = std::string(
                        Sha256::Of(key->bytes()).bytes().substr(0, kIdBytes)),
                    .bytes = std::string(key->bytes())});
  }
  if (keys.empty()) return absl::InvalidArgumentError("there is no key");
  return SecretBox(std::move(keys));
}

SecretBox::SecretBox(std::vector<Key> keys) : keys_(std::move(keys)) {}

std::string SecretBox::Seal(absl::string_view bytes, Random& random) const {
  const Key& key = keys_.front();
  const std::string nonce = random.Bytes(kNonceBytes);
  const Cipher cipher(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  std::string hidden(bytes.size(), '\0');
  std::string tag(kTagBytes, '\0');
  int n = 0;
  const bool sealed =
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr,
                         In(key.bytes), In(nonce)) == 1 &&
      EVP_EncryptUpdate(cipher.get(), Out(hidden), &n, In(bytes),
                        static_cast<int>(bytes.size())) == 1 &&
      EVP_EncryptFinal_ex(cipher.get(), Out(tag), &n) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                          Out(tag)) == 1;
  COHORT_CHECK(sealed) << "AES-256-GCM does not work";
  return absl::StrCat(key.id, nonce, hidden, tag);
}

std::optional<std::string> SecretBox::Open(absl::string_view sealed) const {
  const Key* const key = KeyOf(sealed);
  if (key == nullptr) return std::nullopt;
  const absl::string_view nonce = sealed.substr(kIdBytes, kNonceBytes);
  const absl::string_view hidden =
      sealed.substr(kIdBytes + kNonceBytes,
                    sealed.size() - kIdBytes - kNonceBytes - kTagBytes);
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  const Cipher cipher(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  std::string bytes(hidden.size(), '\0');
  std::string rest(kTagBytes, '\0');
  int n = 0;
  const bool opened =
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr,
                         In(key->bytes), In(nonce)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), Out(bytes), &n, In(hidden),
                        static_cast<int>(hidden.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes,
                          Out(tag)) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), Out(rest), &n) == 1;
  if (!opened) return std::nullopt;
  return bytes;
}

bool SecretBox::Knows(absl::string_view sealed) const {
  return KeyOf(sealed) != nullptr;
}

const SecretBox::Key* SecretBox::KeyOf(absl::string_view sealed) const {
  if (sealed.size() < kIdBytes + kNonceBytes + kTagBytes) return nullptr;
  for (const Key& key : keys_) {
    if (sealed.substr(0, kIdBytes) == key.id) return &key;
  }
  return nullptr;
}

}  // namespace cohort
