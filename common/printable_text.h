#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

// Text that goes into messages, tables and JSON, and what of other people's
// text may go there.

namespace cohort {

// No control characters of ASCII: one line that shows as what it is.
bool IsPrintable(absl::string_view text);

// As RFC 3629 has it, which protobuf's strings must be.
bool IsUtf8(absl::string_view text);

// Both, and none of the control characters beyond ASCII.
bool IsPrintableUtf8(absl::string_view text);

// Printable UTF-8 that begins and ends with something one sees: nobody means
// " H100", and nothing is called that.  False for an empty text.
bool IsNameText(absl::string_view text);

// At most `bytes_max` of `text`, not ending within a UTF-8 character: rows and
// messages refuse half ones.
std::string Cut(absl::string_view text, size_t bytes_max);

// What somebody gave, as an error shows it: the first 128 bytes, with "..." for
// the rest, and escaped where it is not printable UTF-8.
std::string Shown(absl::string_view text);
// The same in quotes.
std::string Quoted(absl::string_view text);

// `text` without what would break a line or drive a terminal: line breaks
// become spaces, other control characters "?".
std::string OneLine(absl::string_view text);

// A whole message as a program writes it to stderr: one line, and no more of it
// than anybody reads.
std::string MessageLine(absl::string_view message);

}  // namespace cohort
