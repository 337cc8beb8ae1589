#include "client/cli/errors.h"

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "client/json.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_util.h"

namespace cohort::cli {

absl::Status UsageError(absl::string_view message) {
  return SetReason(absl::InvalidArgumentError(message), "usage");
}

absl::Status FlagError(absl::string_view flag, const absl::Status& why) {
  return UsageError(absl::StrCat(flag, ": ", why.message()));
}

int ExitCodeFor(const absl::Status& error) {
  if (absl::IsInvalidArgument(error)) return kExitUsage;
  if (absl::IsDeadlineExceeded(error)) return kExitDeadline;
  return kExitFailure;
}

std::string ErrorText(const absl::Status& error, bool json) {
  if (!json)
    return absl::StrCat("cohort: ", MessageLine(error.message()), "\n");
  const std::string code = absl::StatusCodeToString(error.code());
  std::string reason = GetReason(error);
  if (reason.empty()) reason = absl::AsciiStrToLower(code);
  return ErrorJson(code, reason, MessageLine(error.message())) + "\n";
}

int Fail(const absl::Status& error, bool json) {
  std::fputs(ErrorText(error, json).c_str(), stderr);
  return ExitCodeFor(error);
}

}  // namespace cohort::cli
