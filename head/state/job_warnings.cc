#include "head/state/job_warnings.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"

namespace cohort::head {
namespace {

constexpr int kJobWarningsMax = 20;

}  // namespace

bool AddWarning(const std::string& text, JobRecord& job) {
  auto& known = *job.row.mutable_warnings();
  if (known.size() >= kJobWarningsMax ||
      std::find(known.begin(), known.end(), text) != known.end()) {
    return false;
  }
  *known.Add() = text;
  return true;
}

std::string LostResultsText(const JobRecord& job) {
  std::string first;
  int more = 0;
  for (const std::string& warning : job.row.warnings()) {
    if (!absl::StrContains(warning, kLostWithNode)) continue;
    if (first.empty()) {
      first = warning;
    } else {
      ++more;
    }
  }
  if (more > 0) absl::StrAppend(&first, ", and so on ", more, " more");
  return first;
}

void TakeWarnings(const v1::ObservedPlace& observed,
                  const RunController::Limits& limits, JobRecord& job,
                  RunOutcome& outcome) {
  for (const std::string& told : observed.warnings()) {
    const std::string text = Cut(OneLine(told), limits.detail_bytes_max);
    if (!AddWarning(text, job)) continue;
    outcome.job_changed = true;
    outcome.notes.push_back({.kind = "job_warning", .text = text});
  }
}

}  // namespace cohort::head
