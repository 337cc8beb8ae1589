#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/random.h"

namespace cohort {

// Seals bytes, which are then of use only to who has the key (AES-256-GCM, a
// random nonce for each).  Immutable.
class SecretBox {
 public:
  static constexpr size_t kKeyBytes = 32;

  // Of a text with a key of 64 hex digits in each line: the first seals, all
  // open.  InvalidArgument.
  static absl::StatusOr<SecretBox> FromText(absl::string_view text);

  std::string Seal(absl::string_view bytes, Random& random) const;
  // Nothing: it was not sealed by one of the keys, or changed since.
  std::optional<std::string> Open(absl::string_view sealed) const;
  // As Open, by the name of its key alone.
  bool Knows(absl::string_view sealed) const;

 private:
  struct Key {
    std::string id;  // the beginning of its hash
    std::string bytes;
  };

  explicit SecretBox(std::vector<Key> keys);
  const Key* KeyOf(absl::string_view sealed) const;

  std::vector<Key> keys_;
};

}  // namespace cohort
