#include "client/cli/log_printer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "client/cli/table.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

constexpr size_t kLineBytesMax = 64 << 10;
// A line without an end is shown after kPartialDelay, and what goes on with it
// as often as kRedrawPeriod.
constexpr absl::Duration kPartialDelay = absl::Milliseconds(500);
constexpr absl::Duration kRedrawPeriod = absl::Milliseconds(100);
// Where a bar cannot be redrawn, each state that is shown is a line for good.
constexpr absl::Duration kRepeatPeriod = absl::Seconds(5);

constexpr absl::string_view kErase = "\r\033[K";

std::string GapMark(int64_t bytes) {
  return absl::StrCat("[cohort: ", bytes,
                      " bytes of output lost here: a log keeps its newest "
                      "part only]\n");
}

// So much of `line` that it takes less than `columns`: a line that wraps could
// not be redrawn.  One with escape sequences is left as it is.
absl::string_view Clip(absl::string_view line, size_t columns) {
  if (columns == 0 || line.find('\033') != absl::string_view::npos) return line;
  size_t end = 0;
  for (size_t used = 0; end < line.size(); ++end) {
    const bool begins_character = ColumnsOf(line.substr(end, 1)) == 1;
    if (begins_character && ++used >= columns) break;
  }
  return line.substr(0, end);
}

}  // namespace

absl::Status LogPrinter::Add(const LogChunk& chunk, absl::Duration now) {
  const Source source = {chunk.rank, chunk.stream};
  Line& line = lines_[source];
  // What an attempt left has no end; nor has what was cut from what is lost.
  if (line.attempt != chunk.attempt || chunk.skipped > 0) {
    if (!line.text.empty() || IsOpen(source)) {
      COHORT_RETURN_IF_ERROR(EndLine(source, line));
    }
    line.attempt = chunk.attempt;
  }
  const auto add = [&](absl::string_view data) {
    return is_raw() ? AddRaw(source, line, data)
                    : AddLines(source, line, data, chunk.at);
  };
  if (chunk.skipped > 0) COHORT_RETURN_IF_ERROR(add(GapMark(chunk.skipped)));
  COHORT_RETURN_IF_ERROR(add(chunk.data));
  SetDue(source, line, now);
  return ShowDue(now);
}

absl::Status LogPrinter::AddRaw(const Source& source, Line& line,
                                absl::string_view data) {
  if (layout_.one_source) return Put(source, data);
  absl::StrAppend(&line.text, data);
  size_t size = line.text.rfind('\n') + 1;  // 0 without one
  if (size == 0 && (IsOpen(source) || line.text.size() >= kLineBytesMax)) {
    size = line.text.size();
  }
  const std::string text = line.text.substr(0, size);
  line.text.erase(0, size);
  return Put(source, text);
}

absl::Status LogPrinter::AddLines(const Source& source, Line& line,
                                  absl::string_view data, absl::Time at) {
  while (!data.empty()) {
    const size_t end =
        layout_.json ? data.find('\n') : data.find_first_of("\r\n");
    const absl::string_view part = data.substr(0, end);
    if (!part.empty() && line.returned) {
      line.text.clear();
      line.returned = false;
      line.overwritten = line.is_stale = true;
    }
    if (line.text.empty()) line.at = at;
    absl::StrAppend(&line.text, part);
    data.remove_prefix(part.size());
    const bool at_return = !data.empty() && data.front() == '\r';
    line.returned = line.returned || at_return;
    if ((!data.empty() && !at_return) || line.text.size() >= kLineBytesMax) {
      COHORT_RETURN_IF_ERROR(EndLine(source, line));
    }
    data.remove_prefix(data.empty() ? 0 : 1);
  }
  return absl::OkStatus();
}

void LogPrinter::SetDue(const Source& source, Line& line, absl::Duration now) {
  if (line.text.empty()) line.due = absl::InfiniteDuration();
  if (!layout_.follows || layout_.json || line.text.empty() ||
      line.due < absl::InfiniteDuration()) {
    return;
  }
  absl::Duration delay = kPartialDelay;
  if (layout_.columns == 0 && line.was_shown &&
      (line.is_stale || !IsOpen(source))) {
    delay = kRepeatPeriod;
  } else if (layout_.one_source || IsOpen(source)) {
    delay = kRedrawPeriod;
  }
  line.due = now + delay;
  next_due_ = std::min(next_due_, line.due);
}

absl::Status LogPrinter::ShowDue(absl::Duration now) {
  if (now < next_due_) return absl::OkStatus();
  next_due_ = absl::InfiniteDuration();
  for (auto& [source, line] : lines_) {
    if (line.due <= now) COHORT_RETURN_IF_ERROR(Show(source, line, now));
    next_due_ = std::min(next_due_, line.due);
  }
  return absl::OkStatus();
}

absl::Status LogPrinter::Show(const Source& source, Line& line,
                              absl::Duration now) {
  const bool is_open = IsOpen(source);
  // Bars of several sources take turns on a terminal's last line.
  if (!is_open && open_.has_value() && now < opened_at_ + kPartialDelay) {
    line.due = opened_at_ + kPartialDelay;
    return absl::OkStatus();
  }
  line.due = absl::InfiniteDuration();
  if (!is_open) opened_at_ = now;
  if (is_raw()) return Put(source, std::exchange(line.text, {}));
  line.was_shown = true;
  if (is_open && !line.is_stale) {
    return Put(source,
               line.text.substr(std::exchange(line.shown, line.text.size())));
  }
  if (!is_open && Printed(line) == line.text.size()) return absl::OkStatus();
  const std::string whole = Prefixed(source, line);
  const absl::string_view text =
      line.overwritten ? Clip(whole, layout_.columns) : whole;
  line.shown = line.text.size();
  line.is_stale = text.size() < whole.size();
  return Put(source, absl::StrCat(is_open ? Break() : "", text));
}

absl::Status LogPrinter::EndLine(const Source& source, Line& line) {
  std::string text;
  if (is_raw() || (IsOpen(source) && !line.is_stale)) {
    text = absl::StrCat(line.text.substr(is_raw() ? 0 : line.shown), "\n");
  } else if (Printed(line) == 0 || Printed(line) < line.text.size()) {
    text = absl::StrCat(IsOpen(source) ? Break() : "", Prefixed(source, line),
                        "\n");
  }  // else what broke it has ended it too
  line = {.attempt = line.attempt, .at = line.at, .text = ""};
  return Put(source, text);
}

absl::Status LogPrinter::Finish() {
  for (auto& [source, line] : lines_) {
    if (line.text.empty()) continue;
    COHORT_RETURN_IF_ERROR(is_raw() ? Put(source, std::exchange(line.text, {}))
                                    : EndLine(source, line));
  }
  return absl::OkStatus();
}

absl::Status LogPrinter::BreakLine() {
  if (!open_.has_value()) return absl::OkStatus();
  const LogStream stream = open_->second;
  const absl::string_view text = Break();
  open_.reset();
  return write_(stream, text);
}

absl::Status LogPrinter::Put(const Source& source, absl::string_view text) {
  if (text.empty()) return absl::OkStatus();
  std::string out;
  if (open_.has_value() && !IsOpen(source)) out = std::string(Break());
  absl::StrAppend(&out, text);
  open_ = text.back() == '\n' ? std::nullopt : std::optional(source);
  return write_(source.second, out);
}

absl::string_view LogPrinter::Break() const {
  const bool is_bar = layout_.columns > 0 && lines_.at(*open_).overwritten;
  return is_bar ? kErase : "\n";
}

size_t LogPrinter::Printed(const Line& line) const {
  return layout_.columns == 0 && !line.is_stale ? line.shown : 0;
}

std::string LogPrinter::Prefixed(const Source& source, const Line& line) const {
  const bool is_timed = line.at != absl::InfinitePast();
  const std::string time = is_timed ? TimeText(line.at) : "-";
  if (layout_.json) {
    const bool is_stdout = source.second == v1::LOG_STREAM_STDOUT;
    return LogLineJson(line.attempt, source.first,
                       is_stdout ? "stdout" : "stderr", line.text,
                       is_timed ? time : "");
  }
  return absl::StrCat(
      layout_.ranks ? absl::StrCat("[", source.first, "] ") : "",
      layout_.times ? absl::StrCat(time, " ") : "",
      absl::string_view(line.text).substr(Printed(line)));
}

}  // namespace cohort::cli
