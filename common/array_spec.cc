#include "common/array_spec.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/job_id.h"
#include "common/status_macros.h"
#include "common/text_scanner.h"

namespace cohort {
namespace {

absl::StatusOr<uint32_t> TakeNumber(TextScanner& scanner,
                                    absl::string_view what, uint32_t max) {
  const size_t begin = scanner.position();
  uint64_t number = 0;
  bool any = false;
  while (absl::ascii_isdigit(static_cast<unsigned char>(scanner.Peek()))) {
    const char digit[] = {scanner.Peek(), '\0'};
    number = number * 10 + static_cast<uint64_t>(digit[0] - '0');
    any = true;
    if (number > max) {
      return scanner.ErrorAt(begin,
                             absl::StrCat(what, " can be at most ", max));
    }
    scanner.Take(digit);
  }
  if (!any) return scanner.Expected(what);
  return static_cast<uint32_t>(number);
}

// Reads "A", "A-B" or "A-B:STEP" into `indices`.
absl::Status TakeRange(TextScanner& scanner, std::set<uint32_t>& indices) {
  const size_t begin = scanner.position();
  COHORT_ASSIGN_OR_RETURN(const uint32_t first,
                          TakeNumber(scanner, "an index", JobId::kIndexMax));
  uint32_t last = first;
  uint32_t step = 1;
  if (scanner.Take("-")) {
    const size_t end = scanner.position();
    COHORT_ASSIGN_OR_RETURN(
        last, TakeNumber(scanner, "the last index", JobId::kIndexMax));
    if (last < first) {
      return scanner.ErrorAt(
          end, absl::StrCat("the range ends with ", last, " and begins with ",
                            first, ": write the smaller one first"));
    }
    if (scanner.Take(":")) {
      const size_t at = scanner.position();
      COHORT_ASSIGN_OR_RETURN(
          step, TakeNumber(scanner, "the step", JobId::kIndexMax));
      if (step == 0) return scanner.ErrorAt(at, "the step is at least 1");
    }
  }
  if (indices.size() + (last - first) / step + 1 > ArraySpec::kElementsMax) {
    return scanner.ErrorAt(
        begin,
        absl::StrCat("with it there are more than ", ArraySpec::kElementsMax,
                     " elements: submit several arrays"));
  }
  for (uint64_t index = first; index <= last; index += step) {
    if (!indices.insert(static_cast<uint32_t>(index)).second) {
      return scanner.ErrorAt(
          begin, absl::StrCat("the index ", index, " is there already"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ArraySpec> ArraySpec::Parse(absl::string_view text) {
  TextScanner scanner(text);
  std::set<uint32_t> indices;
  do {
    COHORT_RETURN_IF_ERROR(TakeRange(scanner, indices));
  } while (scanner.Take(","));
  ArraySpec spec;
  if (scanner.Take("%")) {
    const size_t at = scanner.position();
    COHORT_ASSIGN_OR_RETURN(
        const uint32_t at_once,
        TakeNumber(scanner, "how many may run at once", kElementsMax));
    if (at_once == 0) {
      return scanner.ErrorAt(at, "at least 1 must be able to run");
    }
    spec.at_once = static_cast<int>(at_once);
  }
  if (!scanner.AtEnd()) {
    return scanner.Expected("\"-\", \":\", \",\", \"%\" or the end");
  }
  spec.indices.assign(indices.begin(), indices.end());
  return spec;
}

}  // namespace cohort
