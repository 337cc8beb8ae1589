#include "worker/preflight_words.h"

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

bool HasFailed(const v1::ObservedAttempt& attempt) {
  return attempt.preflight().verdict() == v1::PREFLIGHT_VERDICT_FAILED;
}

}  // namespace

void TakePreflight(const v1::PreflightReport& report, v1::ObservedRank& rank,
                   v1::ObservedAttempt& attempt) {
  const bool failed = report.verdict() == v1::PREFLIGHT_VERDICT_FAILED;
  rank.set_through_preflight(!failed);
  if (HasFailed(attempt)) {
    if (attempt.preflight().json().empty()) {
      attempt.mutable_preflight()->set_json(report.json());
    }
  } else if (failed || !report.json().empty()) {
    *attempt.mutable_preflight() = report;
  }
}

void NoteEndInPreflight(const v1::ObservedRank& rank,
                        v1::ObservedAttempt& attempt) {
  if (rank.through_preflight() || HasFailed(attempt)) return;
  const v1::ExitStatus& exit = rank.exit();
  v1::PreflightReport& report = *attempt.mutable_preflight();
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  report.set_summary(absl::StrCat(
      "rank ", rank.rank(),
      exit.signal() != 0 ? absl::StrCat(" was killed by signal ", exit.signal())
                         : absl::StrCat(" exited with code ", exit.code()),
      " in it", exit.detail().empty() ? "" : ": ", exit.detail()));
}

}  // namespace cohort::worker
