#include "common/printable_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

constexpr size_t kShownBytesMax = 128;
constexpr size_t kMessageBytesMax = 4'096;

// How many bytes the character takes that `text` begins with, by RFC 3629; 0
// for what is not UTF-8.  REQUIRES: !text.empty().
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

bool IsNameText(absl::string_view text) {
  return !text.empty() && text.front() != ' ' && text.back() != ' ' &&
         IsPrintableUtf8(text);
}

std::string Cut(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end));
}

std::string Shown(absl::string_view text) {
  std::string shown = Cut(text, kShownBytesMax);
  const char* const rest = shown.size() < text.size() ? "..." : "";
  if (!IsPrintableUtf8(shown)) shown = absl::CHexEscape(shown);
  return absl::StrCat(shown, rest);
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", Shown(text), "\"");
}

std::string OneLine(absl::string_view text) {
  std::string line(absl::StripAsciiWhitespace(text));
  for (char& c : line) {
    if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
      c = ' ';
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      c = '?';
    }
  }
  return line;
}

std::string MessageLine(absl::string_view message) {
  const std::string line = Cut(message, kMessageBytesMax);
  return absl::StrCat(OneLine(line), line.size() < message.size() ? "..." : "");
}

}  // namespace cohort
