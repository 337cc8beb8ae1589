#include "trainer/preflight/nccl_log.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace cohort::trainer {
namespace {

constexpr absl::string_view kMark = "NCCL INFO ";
constexpr absl::string_view kNetwork = "Using network ";
constexpr absl::string_view kVia = " via ";
constexpr size_t kTransportsMax = 8;
constexpr size_t kWordBytesMax = 64;

// The first word of `text`, as far as it may go into a report.
std::string Word(absl::string_view text) {
  const absl::string_view word = text.substr(0, text.find_first_of(" \t\r,(["));
  std::string printable;
  for (const char c : word.substr(0, kWordBytesMax)) {
    if (absl::ascii_isgraph(static_cast<unsigned char>(c))) printable += c;
  }
  return printable;
}

}  // namespace

NcclWays ParseNcclLog(absl::string_view text) {
  NcclWays ways;
  std::set<std::string> transports;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t mark = line.find(kMark);
    if (mark == absl::string_view::npos) continue;
    const absl::string_view said = line.substr(mark + kMark.size());
    if (absl::StartsWith(said, kNetwork)) {
      ways.network = Word(said.substr(kNetwork.size()));
    } else if (absl::StartsWith(said, "Channel ")) {
      const size_t via = said.find(kVia);
      if (via == absl::string_view::npos) continue;
      transports.insert(Word(said.substr(via + kVia.size())));
    }
  }
  for (const std::string& transport : transports) {
    if (ways.transports.size() == kTransportsMax) break;
    if (!transport.empty()) ways.transports.push_back(transport);
  }
  return ways;
}

}  // namespace cohort::trainer
