#include "head/state/cause_chain.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/exception_text.h"
#include "common/printable_text.h"

namespace cohort::head {
namespace {

constexpr size_t kRanksNamedMax = 8;

}  // namespace

std::string DescribeExit(int rank, const std::string& node,
                         const ExitStatus& exit) {
  std::string text = absl::StrCat("rank ", rank);
  if (!node.empty()) absl::StrAppend(&text, " on ", node);
  const bool raised = RaisedAt(exit.detail()).has_value();
  if (raised && exit.signal() != 0) {
    // What it raised is why; it was still busy with that.
    absl::StrAppend(&text, " failed: ", FirstLine(exit.detail()),
                    ", and was killed by signal ", exit.signal(),
                    " afterwards");
    return text;
  }
  if (exit.signal() != 0) {
    absl::StrAppend(&text, " was killed by signal ", exit.signal());
  } else {
    absl::StrAppend(&text, " exited with code ", exit.code());
  }
  if (exit.oom_killed()) absl::StrAppend(&text, " (out of memory)");
  if (!exit.detail().empty()) {
    absl::StrAppend(&text, ": ", FirstLine(exit.detail()));
  }
  return text;
}

std::string DescribeLoss(const std::vector<int>& ranks,
                         const std::string& node) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kRanksNamedMax; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kRanksNamedMax) {
    absl::StrAppend(&text, " and ", ranks.size() - kRanksNamedMax, " more");
  }
  return absl::StrCat(text, " on ", node,
                      ranks.size() == 1 ? " was lost" : " were lost");
}

std::string DescribeEnd(const AttemptRecord& attempt) {
  if (attempt.cause == v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED) {
    return absl::StrCat("attempt ", attempt.number,
                        " ended before its command ran");
  }
  const bool siblings = attempt.cause == v1::ATTEMPT_CAUSE_RANK_FAILED ||
                        attempt.cause == v1::ATTEMPT_CAUSE_KEEPER_LOST ||
                        attempt.cause == v1::ATTEMPT_CAUSE_NODE_FAILED ||
                        attempt.cause == v1::ATTEMPT_CAUSE_DEVICE_FAULT ||
                        attempt.cause == v1::ATTEMPT_CAUSE_NODE_LOST;
  int stopped = 0;
  for (const Process& process : attempt.processes) {
    if (siblings && process.slot == attempt.failed_rank) continue;
    // One that says why it ended was not stopped: its keeper died, or it could
    // not run.
    stopped += process.exit.has_value() && !EndedWell(*process.exit) &&
               process.exit->detail().empty();
  }
  std::string text = absl::StrCat("attempt ", attempt.number, " ended");
  if (stopped > 0) {
    absl::StrAppend(&text, "; ", stopped, siblings ? " sibling" : " rank",
                    stopped == 1 ? " was" : "s were", " stopped");
  }
  return text;
}

void AddCauses(const std::vector<std::string>& facts, bool in_front,
               AttemptRecord& attempt) {
  std::vector<std::string>& causes = attempt.causes;
  auto at = in_front ? causes.begin() : causes.end();
  for (const std::string& fact : facts) {
    at = causes.insert(at, Cut(fact, kCauseBytesMax)) + 1;
  }
  Shorten(causes);
}

void Shorten(std::vector<std::string>& causes) {
  if (causes.size() <= kCausesMax) return;
  size_t left_out = 0;
  for (auto it = causes.begin(); it != causes.end(); ++it) {
    absl::string_view mark = *it;
    if (!absl::ConsumePrefix(&mark, "... ") ||
        !absl::ConsumeSuffix(&mark, " more") ||
        !absl::SimpleAtoi(mark, &left_out)) {
      continue;
    }
    causes.erase(it);
    break;
  }
  const size_t more = causes.size() + 1 - kCausesMax;
  const auto second = causes.begin() + 1;
  causes.erase(second, second + static_cast<int64_t>(more));
  causes.insert(causes.begin() + 1,
                absl::StrCat("... ", left_out + more, " more"));
}

}  // namespace cohort::head
