#pragma once

#include <initializer_list>
#include <sstream>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// One event, one line on stderr, one write(2):
//
//   COHORT_LOG(kWarning, "node_dead", {"node", id}, {"silent_for", silence});
//   2026-11-21T10:00:00.123Z W node_dead node=9f.. silent_for=10s program=head
//
// Level by consequence.  kDebug: normal detail; kInfo: rare and useful;
// kWarning: may heal; kError: something was lost.  Lines below the level in the
// environment variable COHORT_LOG (debug, info, warning, error; info when
// unset) are not written and their fields not formatted.
#define COHORT_LOG(level, event, ...)                                      \
  do {                                                                     \
    if (::cohort::LogEnabled(::cohort::LogLevel::level)) {                 \
      ::cohort::WriteLog(::cohort::LogLevel::level, event, {__VA_ARGS__}); \
    }                                                                      \
  } while (false)

namespace cohort {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// A named value of a line.  Takes text, numbers, bool, durations, times,
// statuses, whatever has ToHex() or ToString(), and whatever prints with <<.
class LogField {
 public:
  template <typename T>
  LogField(absl::string_view name, const T& value)
      : name_(name), value_(Text(value)) {}

  absl::string_view name() const { return name_; }
  const std::string& value() const { return value_; }

 private:
  template <typename T>
  static std::string Text(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      return absl::FormatDuration(value);
    } else if constexpr (std::is_same_v<T, absl::Time>) {
      return absl::FormatTime(absl::RFC3339_full, value, absl::UTCTimeZone());
    } else if constexpr (std::is_convertible_v<const T&, absl::AlphaNum> &&
                         !std::is_enum_v<T>) {
      return absl::StrCat(value);
    } else if constexpr (requires { value.ToHex(); }) {
      return value.ToHex();
    } else if constexpr (requires { value.ToString(); }) {
      return value.ToString();
    } else {
      std::ostringstream out;
      out << value;
      return out.str();
    }
  }

  absl::string_view name_;
  std::string value_;
};

// Thread-safe, all of them.

// Names this process on every line after this: {"program", name}.
void SetLogProgram(absl::string_view name);

// Whether lines of `level` are written.
bool LogEnabled(LogLevel level);

// Overrides the environment variable COHORT_LOG, as a flag does.
void SetLogLevel(LogLevel level);

// Writes a line whatever its level; use COHORT_LOG.
void WriteLog(LogLevel level, absl::string_view event,
              std::initializer_list<LogField> fields);

// The line that WriteLog writes, with its newline.  Values longer than 2 KiB
// are cut and end in "...".
std::string FormatLogLine(absl::Time time, LogLevel level,
                          absl::string_view event,
                          std::initializer_list<LogField> fields,
                          absl::string_view program);

}  // namespace cohort
