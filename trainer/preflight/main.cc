// cohort-preflight -- COMMAND...: a rank that tries its gang, then becomes the
// command.  The worker puts it before the command of a job with a preflight.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "trainer/daemon_link.h"
#include "trainer/preflight/handover.h"
#include "trainer/preflight/preflight.h"
#include "trainer/preflight/preflight_report.h"

namespace cohort::trainer {
namespace {

// As a shell's, and the keeper's.
constexpr int kNotRunnable = 126;
constexpr int kNotFound = 127;
constexpr int kNotThrough = 1;

int Fail(int code, const absl::Status& why) {
  const std::string line =
      absl::StrCat("cohort-preflight: ", OneLine(why.message()), "\n");
  std::fputs(line.c_str(), stderr);
  return code;
}

v1::PreflightReport Failed(const absl::Status& why) {
  v1::PreflightReport told;
  told.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  told.set_summary(Cut(OneLine(why.message()), kSummaryBytesMax));
  return told;
}

// For a call that does not come back to the thread that else gives this rank's
// word: it would hold the end of the process, too.
[[noreturn]] void EndNow(DaemonLink& link, const absl::Status& why) {
  link.ReportPreflight(Failed(why)).IgnoreError();
  _exit(Fail(kNotThrough, why));
}

PreflightOptions OptionsOf(DaemonLink& link) {
  PreflightOptions options;
  options.place = link.place();
  options.host = link.host();
  options.directory = absl::StrCat(link.runtime_directory(), "/preflight");
  options.gpus = GpuGrantOfThisRank();
  if (options.gpus.has_value()) {
    options.hung = [&link](absl::string_view why) {
      EndNow(link, absl::DeadlineExceededError(why));
    };
  }
  return options;
}

v1::PreflightVerdict ToWire(Judgement::Verdict verdict) {
  switch (verdict) {
    case Judgement::Verdict::kPassed:
      return v1::PREFLIGHT_VERDICT_PASSED;
    case Judgement::Verdict::kSlow:
      return v1::PREFLIGHT_VERDICT_SLOW;
    case Judgement::Verdict::kFailed:
      return v1::PREFLIGHT_VERDICT_FAILED;
  }
  return v1::PREFLIGHT_VERDICT_FAILED;
}

v1::PreflightReport Told(const absl::StatusOr<PreflightReport>& report,
                         bool in_full) {
  if (!report.ok()) return Failed(report.status());
  v1::PreflightReport told;
  const Judgement judgement = Judge(*report);
  told.set_verdict(ToWire(judgement.verdict));
  told.set_summary(judgement.summary);
  if (in_full) told.set_json(ToJson(*report, judgement));
  return told;
}

// OK when the command may begin.
absl::Status Try() {
  COHORT_ASSIGN_OR_RETURN(DaemonLinkOptions identity,
                          DaemonLinkFromEnvironment());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonLink> link,
                          DaemonLink::Join(std::move(identity)));
  Exchange exchange = link->ExchangeUnder("preflight/");
  Preflight preflight(OptionsOf(*link), exchange);
  const absl::StatusOr<PreflightReport> report = preflight.Run();
  const v1::PreflightReport told = Told(report, link->place().rank == 0);
  // First: who is revoked knows less of why.
  const absl::Status reported = link->ReportPreflight(told);
  if (!report.ok()) preflight.RevokeFor(report.status());
  COHORT_RETURN_IF_ERROR(reported);
  if (told.verdict() != v1::PREFLIGHT_VERDICT_FAILED) return absl::OkStatus();
  return absl::FailedPreconditionError(told.summary());
}

int Main(int argc, char** argv) {
  if (argc < 3 || absl::string_view(argv[1]) != "--") {
    return Fail(kNotRunnable,
                absl::InvalidArgumentError(
                    "usage: cohort-preflight -- COMMAND...: tries the gang of "
                    "this rank, then runs COMMAND in its place; cohort-worker "
                    "starts it for jobs that were submitted with --preflight"));
  }
  Handover handover(std::vector<std::string>(argv + 2, argv + argc));
  SetLogProgram("preflight");
  if (const absl::Status tried = Try(); !tried.ok()) {
    return Fail(kNotThrough, tried);
  }
  const absl::Status why = handover.Exec();
  return Fail(absl::IsNotFound(why) ? kNotFound : kNotRunnable, why);
}

}  // namespace
}  // namespace cohort::trainer

int main(int argc, char** argv) { return cohort::trainer::Main(argc, argv); }
