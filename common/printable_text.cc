#include "common/printable_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"

namespace cohort {
namespace {

// How many bytes the character takes that `text` begins with, by RFC 3629; 0
// for what is no UTF-8.  REQUIRES: !text.empty().
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [text](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const int first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // No second spelling of a character, no surrogates, nothing past U+10FFFF.
  const int low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const int high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return bytes;
}

}  // namespace

bool IsPrintable(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

bool IsPrintableUtf8(absl::string_view text) {
  if (!IsPrintable(text) || !IsUtf8(text)) return false;
  for (size_t i = 1; i < text.size(); ++i) {
    // C1: U+0080 to U+009F.
    if (text[i - 1] == '\xC2' && static_cast<unsigned char>(text[i]) < 0xA0) {
      return false;
    }
  }
  return true;
}

}  // namespace cohort
