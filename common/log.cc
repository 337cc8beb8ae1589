#include "common/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"

#include "common/mutex.h"

namespace cohort {
namespace {

// A page holds a line with a long value; a pipe takes up to 4 KiB in one piece.
constexpr size_t kValueBytesMax = 2048;

LogLevel LevelFromEnvironment() {
  const char* text = std::getenv("COHORT_LOG");
  const absl::string_view level = text == nullptr ? "" : text;
  if (level == "debug") return LogLevel::kDebug;
  if (level == "warning") return LogLevel::kWarning;
  if (level == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

std::atomic<LogLevel>& Level() {
  static std::atomic<LogLevel> level{LevelFromEnvironment()};
  return level;
}

struct Program {
  Mutex mutex;
  std::string name ABSL_GUARDED_BY(mutex);
};

// Never destroyed: threads may log while the process exits.
Program& TheProgram() {
  static Program& program = *new Program;
  return program;
}

bool NeedsQuotes(absl::string_view value) {
  if (value.empty()) return true;
  return std::any_of(value.begin(), value.end(), [](char c) {
    return c == ' ' || c == '"' || c == '=' || c == '\\' || c == 127 ||
           (static_cast<unsigned char>(c) < 32);
  });
}

void AppendField(std::string& line, absl::string_view name,
                 absl::string_view value) {
  const bool cut = value.size() > kValueBytesMax;
  const absl::string_view kept = value.substr(0, kValueBytesMax);
  absl::StrAppend(&line, " ", name, "=");
  if (NeedsQuotes(kept)) {
    absl::StrAppend(&line, "\"", absl::Utf8SafeCEscape(kept),
                    cut ? "...\"" : "\"");
  } else {
    absl::StrAppend(&line, kept, cut ? "..." : "");
  }
}

void WriteWhole(absl::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // There is nowhere left to complain.
    line.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void SetLogProgram(absl::string_view name) {
  Program& program = TheProgram();
  MutexLock lock(program.mutex);
  program.name = std::string(name);
}

bool LogEnabled(LogLevel level) {
  return level >= Level().load(std::memory_order_relaxed);
}

void SetLogLevel(LogLevel level) {
  Level().store(level, std::memory_order_relaxed);
}

void WriteLog(LogLevel level, absl::string_view event,
              std::initializer_list<LogField> fields) {
  std::string name;
  {
    Program& program = TheProgram();
    MutexLock lock(program.mutex);
    name = program.name;
  }
  WriteWhole(FormatLogLine(absl::Now(), level, event, fields, name));
}

std::string FormatLogLine(absl::Time time, LogLevel level,
                          absl::string_view event,
                          std::initializer_list<LogField> fields,
                          absl::string_view program) {
  constexpr absl::string_view kLetters = "DIWE";
  std::string line = absl::StrCat(
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()), " ",
      kLetters.substr(static_cast<size_t>(level), 1), " ", event);
  for (const LogField& field : fields) {
    AppendField(line, field.name(), field.value());
  }
  if (!program.empty()) AppendField(line, "program", program);
  line.push_back('\n');
  return line;
}

}  // namespace cohort
