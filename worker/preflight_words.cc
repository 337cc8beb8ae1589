#include "worker/preflight_words.h"

#include "absl/strings/str_cat.h"

#include "common/exception_text.h"

namespace cohort::worker {
namespace {

bool HasFailed(const v1::ObservedPlace& place) {
  return place.preflight().verdict() == v1::PREFLIGHT_VERDICT_FAILED;
}

}  // namespace

void TakePreflight(const v1::PreflightReport& report,
                   v1::ObservedProcess& process, v1::ObservedPlace& place) {
  const bool failed = report.verdict() == v1::PREFLIGHT_VERDICT_FAILED;
  process.set_through_preflight(!failed);
  if (HasFailed(place)) {
    if (place.preflight().json().empty()) {
      place.mutable_preflight()->set_json(report.json());
    }
  } else if (failed || !report.json().empty()) {
    *place.mutable_preflight() = report;
  }
}

void NoteEndInPreflight(const v1::ObservedProcess& process,
                        v1::ObservedPlace& place) {
  if (process.through_preflight() || HasFailed(place)) return;
  const v1::ExitStatus& exit = process.exit();
  v1::PreflightReport& report = *place.mutable_preflight();
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  report.set_summary(absl::StrCat(
      "rank ", process.slot(),
      exit.signal() != 0 ? absl::StrCat(" was killed by signal ", exit.signal())
                         : absl::StrCat(" exited with code ", exit.code()),
      " in it", exit.detail().empty() ? "" : ": ", FirstLine(exit.detail())));
}

}  // namespace cohort::worker
