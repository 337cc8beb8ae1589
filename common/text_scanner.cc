#include "common/text_scanner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/printable_text.h"

namespace cohort {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t'; }

bool InWord(char c) {
  return !IsSpace(c) &&
         absl::string_view(",()=!\"").find(c) == absl::string_view::npos;
}

// Bytes that go on a character of UTF-8 do not begin a column.
bool BeginsCharacter(char c) {
  return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
}

}  // namespace

void TextScanner::SkipSpaces() {
  while (!AtEnd() && IsSpace(Peek())) ++position_;
}

bool TextScanner::Take(absl::string_view token) {
  if (text_.substr(position_, token.size()) != token) return false;
  position_ += token.size();
  return true;
}

bool TextScanner::AtWord() const {
  return !AtEnd() && (InWord(Peek()) || Peek() == '"');
}

absl::StatusOr<std::string> TextScanner::TakeWord(absl::string_view what,
                                                  size_t bytes_max) {
  if (!AtWord()) return Expected(what);
  const size_t start = position_;
  absl::string_view word;
  if (Take("\"")) {
    const size_t end = text_.find('"', position_);
    if (end == absl::string_view::npos) {
      return ErrorAt(start, "the quotes that open here are not closed");
    }
    word = text_.substr(position_, end - position_);
    position_ = end + 1;
  } else {
    while (!AtEnd() && InWord(Peek())) ++position_;
    word = text_.substr(start, position_ - start);
  }
  if (word.size() > bytes_max) {
    return ErrorAt(start,
                   absl::StrCat("expected ", what, " of at most ", bytes_max,
                                " bytes, this has ", word.size()));
  }
  if (!IsPrintableUtf8(word)) {
    return ErrorAt(start, absl::StrCat("expected ", what, ", ", Quoted(word),
                                       " is not printable UTF-8"));
  }
  return std::string(word);
}

absl::Status TextScanner::Expected(absl::string_view what) const {
  if (AtEnd()) {
    return ErrorAt(position_,
                   absl::StrCat("expected ", what, ", but the text ends"));
  }
  size_t end = position_ + 1;
  while (end < text_.size() && !BeginsCharacter(text_[end])) ++end;
  while (InWord(Peek()) && end < text_.size() && end - position_ < 32 &&
         InWord(text_[end])) {
    ++end;
  }
  const absl::string_view there = text_.substr(position_, end - position_);
  return ErrorAt(position_,
                 absl::StrCat("expected ", what, ", not ", Quoted(there)));
}

absl::Status TextScanner::ErrorAt(size_t position,
                                  absl::string_view message) const {
  const absl::string_view before = text_.substr(0, position);
  const auto column =
      1 + std::count_if(before.begin(), before.end(), BeginsCharacter);
  return absl::InvalidArgumentError(
      absl::StrCat("column ", column, ": ", message));
}

std::string WordText(absl::string_view word) {
  const bool plain =
      !word.empty() && std::all_of(word.begin(), word.end(), InWord);
  return plain ? std::string(word) : absl::StrCat("\"", word, "\"");
}

}  // namespace cohort
