#include "common/since_text.h"

#include <cstddef>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/duration_text.h"
#include "common/printable_text.h"

namespace cohort {
namespace {

// What is later is a mistake, and not another machine's clock.
constexpr absl::Duration kClocksDiffer = absl::Hours(24);

// The parts of a time, each with all before it.
struct Part {
  const char* format;
  size_t first;  // columns, from 1
  size_t last;
};
constexpr Part kParts[] = {{"%Y", 1, 4},
                           {"%Y-%m", 6, 7},
                           {"%Y-%m-%d", 9, 10},
                           {"%Y-%m-%dT%H", 12, 13},
                           {"%Y-%m-%dT%H:%M", 15, 16},
                           {"%Y-%m-%dT%H:%M:%S", 18, 19}};

// Where a text that begins as a time ceases to be one.
size_t ColumnOfTime(absl::string_view text) {
  for (const Part& part : kParts) {
    absl::Time time;
    if (text.size() < part.last) return text.size() + 1;
    const std::string so_far(text.substr(0, part.last));
    if (!absl::ParseTime(part.format, so_far, &time, nullptr)) {
      return part.first;
    }
  }
  return kParts[std::size(kParts) - 1].last + 1;  // a fraction or its zone
}

// Where one ceases to be a duration.
size_t ColumnOfDuration(absl::string_view text) {
  for (size_t size = text.size(); size > 0; --size) {
    if (ParseDuration(text.substr(0, size)).ok()) return size + 1;
  }
  return 1;
}

size_t ColumnOf(absl::string_view text) {
  const bool is_time =
      text.size() > 4 && text[4] == '-' && absl::ascii_isdigit(text.front());
  return is_time ? ColumnOfTime(text) : ColumnOfDuration(text);
}

bool ReadTime(absl::string_view text, absl::Time& time) {
  std::string error;
  // ParseTime takes "infinite-past" and surrounding spaces too.
  return !text.empty() && absl::ascii_isdigit(text.front()) &&
         !absl::ascii_isspace(text.back()) &&
         absl::ParseTime(absl::RFC3339_full, std::string(text), &time, &error);
}

}  // namespace

absl::StatusOr<absl::Time> ParseMoment(absl::string_view text) {
  absl::Time time;
  if (ReadTime(text, time)) return time;
  return absl::InvalidArgumentError(absl::StrCat(
      Quoted(text), ", column ", ColumnOfTime(text.substr(0, 64)),
      ": this is not a time with its zone, as 2026-11-21T10:00:00Z"));
}

absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now) {
  if (const absl::StatusOr<absl::Duration> ago = ParseDuration(text);
      ago.ok() && *ago >= absl::ZeroDuration()) {
    return now - *ago;
  }
  absl::Time time;
  if (ReadTime(text, time)) {
    if (time <= now + kClocksDiffer) return time;
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text),
                     " is still to come: give a time that was, as 10m or "
                     "2026-11-21T10:00:00Z"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), ", column ", ColumnOf(text.substr(0, 64)),
                   ": this is neither a duration, as 10m or 2h30m, nor a "
                   "time with its zone, as 2026-11-21T10:00:00Z"));
}

}  // namespace cohort
