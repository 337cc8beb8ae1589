#include "client/cli/log_printer.h"

#include "absl/strings/str_cat.h"

#include "client/json.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

constexpr size_t kLineBytesMax = 64 << 10;

std::string GapMark(int64_t bytes) {
  return absl::StrCat("[cohort: ", bytes,
                      " bytes of output lost here: a log keeps its newest "
                      "part only]\n");
}

}  // namespace

absl::Status LogPrinter::Add(LogChunk chunk) {
  std::string marked;
  if (chunk.skipped > 0) {
    const bool within_line =
        form_ == Form::kRaw ? chunk.offset > chunk.skipped
                            : !begun_[{chunk.rank, chunk.stream}].text.empty();
    marked = absl::StrCat(within_line ? "\n" : "", GapMark(chunk.skipped),
                          chunk.data);
    chunk.data = marked;
  }
  if (form_ == Form::kRaw) return Put(chunk.stream, chunk.data);
  const auto format = [&chunk, this](const Line& line) {
    return Formatted(chunk.rank, chunk.stream, line.attempt, line.text);
  };
  std::string out;
  Line& line = begun_[{chunk.rank, chunk.stream}];
  // A new attempt begins a new line; what the old one left has no end.
  if (line.attempt != chunk.attempt && !line.text.empty()) {
    absl::StrAppend(&out, format(line));
    line.text.clear();
  }
  line.attempt = chunk.attempt;
  absl::string_view left = chunk.data;
  while (!left.empty()) {
    const size_t end = left.find('\n');
    const bool is_whole = end != absl::string_view::npos;
    absl::StrAppend(&line.text, left.substr(0, end));
    left.remove_prefix(is_whole ? end + 1 : left.size());
    if (!is_whole && line.text.size() < kLineBytesMax) break;
    absl::StrAppend(&out, format(line));
    line.text.clear();
  }
  return out.empty() ? absl::OkStatus() : Put(chunk.stream, out);
}

absl::Status LogPrinter::Finish() {
  for (auto& [source, line] : begun_) {
    if (line.text.empty()) continue;
    COHORT_RETURN_IF_ERROR(
        Put(source.second,
            Formatted(source.first, source.second, line.attempt, line.text)));
    line.text.clear();
  }
  return absl::OkStatus();
}

absl::Status LogPrinter::Put(LogStream stream, absl::string_view text) {
  if (text.empty()) return absl::OkStatus();
  last_ = stream;
  if (text.back() == '\n') {
    mid_line_.erase(stream);
  } else {
    mid_line_.insert(stream);
  }
  return write_(stream, text);
}

std::string LogPrinter::Formatted(int rank, LogStream stream, int attempt,
                                  absl::string_view line) const {
  if (form_ == Form::kPrefixed)
    return absl::StrCat("[", rank, "] ", line, "\n");
  const char* name = stream == v1::LOG_STREAM_STDOUT ? "stdout" : "stderr";
  return LogLineJson(attempt, rank, name, line) + "\n";
}

}  // namespace cohort::cli
