#include "worker/last_words.h"

#include <algorithm>
#include <csignal>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

#include "common/exception_text.h"
#include "common/printable_text.h"

namespace cohort::worker {
namespace {

constexpr size_t kSummaryBytesMax = 512;
// Of each failed rank, in each word of its place to the head.
constexpr size_t kTracebackBytesMax = 1 << 10;
constexpr absl::string_view kHeading = "Traceback (most recent call last):";
// As a shell's of a command that is not there.
constexpr int kNotFound = 127;
// Python's of an exception that nobody caught.
constexpr int kRaised = 1;
// Threads of PyTorch's Gloo outlive its groups.  One that lets go of a tensor
// while Python ends, ends the process so.
constexpr absl::string_view kTerminated =
    "terminate called without an active exception";

// The last lines that fit.
std::string EndOf(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  if (text.size() > kTracebackBytesMax) {
    text.remove_prefix(text.size() - kTracebackBytesMax);
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return std::string(text);
}

absl::string_view LastLine(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  const size_t end = text.rfind('\n');
  return end == absl::string_view::npos ? text : text.substr(end + 1);
}

const google::protobuf::Value* Find(const google::protobuf::Struct& object,
                                    const std::string& key) {
  const auto found = object.fields().find(key);
  return found == object.fields().end() ? nullptr : &found->second;
}

std::string TextOf(const google::protobuf::Struct& object,
                   const std::string& key) {
  const google::protobuf::Value* const value = Find(object, key);
  return value == nullptr ? "" : value->string_value();
}

std::optional<absl::Time> TimeOf(const google::protobuf::Struct& info,
                                 absl::Time modified) {
  int64_t seconds = 0;
  if (!absl::SimpleAtoi(TextOf(info, "timestamp"), &seconds)) {
    return std::nullopt;
  }
  const absl::Time at = absl::FromUnixSeconds(seconds);
  return std::clamp(modified, at, at + absl::Microseconds(999'999));
}

RaisedException Raised(absl::string_view message, absl::string_view traceback) {
  return {.summary = Cut(OneLine(FirstLine(message)), kSummaryBytesMax),
          .traceback = EndOf(traceback.empty() ? message : traceback),
          .at = std::nullopt};
}

// `python3 -m torch` raises nothing when there is no torch.
bool LacksModule(absl::string_view line) {
  return absl::StrContains(line, "No module named ");
}

// What Python says of a script that it cannot read: no traceback, since nothing
// ran.
std::optional<RaisedException> UnreadableScript(absl::string_view text) {
  const absl::string_view last = LastLine(text);
  const size_t begin = text.rfind("  File \"");
  const bool is_one = absl::StartsWith(last, "SyntaxError: ") ||
                      absl::StartsWith(last, "IndentationError: ") ||
                      absl::StartsWith(last, "TabError: ");
  if (!is_one || begin == absl::string_view::npos) return std::nullopt;
  return Raised(last, text.substr(begin));
}

std::optional<RaisedException> ExceptionOf(const ExitReport& exit,
                                           const LastWords& words) {
  if (!words.error_file.empty()) {
    auto raised = ParseErrorFile(words.error_file, words.error_file_modified);
    if (raised.has_value()) return raised;
  }
  // One that was caught is not a reason.
  const bool by_itself =
      exit.cause == ExitCause::kItself && exit.exit_code == kRaised;
  if (!by_itself) return std::nullopt;
  if (auto raised = LastTraceback(words.stderr_tail)) return raised;
  if (auto raised = UnreadableScript(words.stderr_tail)) return raised;
  const absl::string_view last = LastLine(words.stderr_tail);
  if (!LacksModule(last)) return std::nullopt;
  return Raised(last, last);
}

}  // namespace

std::optional<RaisedException> ParseErrorFile(const std::string& json,
                                              absl::Time modified) {
  google::protobuf::Struct file;
  if (!google::protobuf::util::JsonStringToMessage(json, &file).ok()) {
    return std::nullopt;
  }
  const google::protobuf::Value* const message = Find(file, "message");
  if (message == nullptr) return std::nullopt;
  if (!message->has_struct_value()) {
    return Raised(message->string_value(), message->string_value());
  }
  const google::protobuf::Struct& told = message->struct_value();
  const google::protobuf::Value* const info = Find(told, "extraInfo");
  const google::protobuf::Struct extra =
      info == nullptr ? google::protobuf::Struct() : info->struct_value();
  RaisedException raised =
      Raised(TextOf(told, "message"), TextOf(extra, "py_callstack"));
  raised.at = TimeOf(extra, modified);
  return raised;
}

std::optional<RaisedException> LastTraceback(absl::string_view text) {
  const size_t heading = text.rfind(kHeading);
  if (heading == absl::string_view::npos) return std::nullopt;
  const size_t before = text.substr(0, heading).rfind('\n');
  const size_t begin = before == absl::string_view::npos ? 0 : before + 1;
  std::string prefix(text.substr(begin, heading - begin));
  // "  + Exception Group Traceback ...", above lines that begin with "  | ".
  if (const size_t group = prefix.find("+ Exception Group ");
      group != std::string::npos) {
    prefix = prefix.substr(0, group) + "| ";
  }
  std::string traceback;
  for (absl::string_view line : absl::StrSplit(text.substr(begin), '\n')) {
    absl::ConsumePrefix(&line, prefix);
    absl::StrAppend(&traceback, line, "\n");
    // Frames are indented; the exception is not.
    if (!line.empty() && line != kHeading && !absl::ascii_isspace(line[0])) {
      return Raised(line, traceback);
    }
  }
  return std::nullopt;  // it was cut off
}

std::string ExitDetail(const ExitReport& exit, const LastWords& words) {
  const std::optional<RaisedException> raised = ExceptionOf(exit, words);
  std::string detail = exit.message;
  if (detail.empty() && raised.has_value()) detail = raised->summary;
  const bool not_found = exit.signal == 0 && exit.exit_code == kNotFound;
  if (not_found && detail.empty()) detail = "a program was not found";
  if (exit.cause == ExitCause::kItself && exit.signal == SIGABRT &&
      detail.empty() && LastLine(words.stderr_tail) == kTerminated) {
    return "a thread was still at work when the program ended (PyTorch does so "
           "at times as Python ends; os._exit(0) after the last output avoids "
           "it)";
  }
  // "sh: 1: python3: not found", and not one that a script called.
  const bool lacks_python =
      not_found &&
      absl::StrContains(exit.message + std::string(LastLine(words.stderr_tail)),
                        "python");
  const bool lacks_module = raised.has_value() && LacksModule(raised->summary);
  if ((lacks_python || lacks_module) && !words.python.empty()) {
    absl::StrAppend(&detail, " (", words.python, ")");
  }
  if (!raised.has_value()) return detail;
  absl::StrAppend(&detail, RaisedText(raised->at));
  if (raised->traceback != raised->summary) {
    absl::StrAppend(&detail, "\n", raised->traceback);
  }
  return detail;
}

}  // namespace cohort::worker
