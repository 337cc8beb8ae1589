#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// Reads a small language (selectors, taints) from one line, and says where it
// went wrong: errors name the column, counted in characters from 1, what was
// expected there and what stands there.
//
// Thread-compatible; refers to the text it was given.
class TextScanner {
 public:
  explicit TextScanner(absl::string_view text) : text_(text) {}

  size_t position() const { return position_; }
  // Goes back to an earlier position().
  void Rewind(size_t position) { position_ = position; }

  void SkipSpaces();
  bool AtEnd() const { return position_ == text_.size(); }
  // The next byte; NUL at the end.
  char Peek() const { return AtEnd() ? '\0' : text_[position_]; }
  // Goes past `token` when it stands here.
  bool Take(absl::string_view token);

  // Whether a word begins here.
  bool AtWord() const;
  // A word: characters other than space , ( ) = ! and ", or any in quotes (no
  // quote within).  InvalidArgument, asking for `what`, when none stands here,
  // or it is longer than `bytes_max` or not printable UTF-8.
  absl::StatusOr<std::string> TakeWord(absl::string_view what,
                                       size_t bytes_max);

  // InvalidArgument: "column 7: expected a value, not \")\"".
  absl::Status Expected(absl::string_view what) const;
  // InvalidArgument: "column 7: MESSAGE", for what began at `position`.
  absl::Status ErrorAt(size_t position, absl::string_view message) const;

 private:
  const absl::string_view text_;
  size_t position_ = 0;
};

// As TextScanner's words are written: in quotes when it must be.
std::string WordText(absl::string_view word);

}  // namespace cohort
