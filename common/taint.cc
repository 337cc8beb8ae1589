#include "common/taint.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/text_scanner.h"

namespace cohort {
namespace {

// Both have this form.
absl::StatusOr<Toleration> ParseKeyAndValue(absl::string_view text) {
  TextScanner scanner(text);
  Toleration read;
  scanner.SkipSpaces();
  COHORT_ASSIGN_OR_RETURN(read.key,
                          scanner.TakeWord("a key", Taint::kKeyBytesMax));
  scanner.SkipSpaces();
  if (scanner.Take("=")) {
    scanner.SkipSpaces();
    COHORT_ASSIGN_OR_RETURN(read.value,
                            scanner.TakeWord("a value", Taint::kValueBytesMax));
    scanner.SkipSpaces();
    if (!scanner.AtEnd()) return scanner.Expected("the end");
  } else if (!scanner.AtEnd()) {
    return scanner.Expected("= or the end");
  }
  return read;
}

}  // namespace

absl::StatusOr<Taint> Taint::Parse(absl::string_view text) {
  COHORT_ASSIGN_OR_RETURN(Toleration read, ParseKeyAndValue(text));
  return Taint{.key = std::move(read.key),
               .value = std::move(read.value).value_or("")};
}

std::string Taint::ToString() const {
  if (value.empty()) return WordText(key);
  return absl::StrCat(WordText(key), "=", WordText(value));
}

absl::StatusOr<Toleration> Toleration::Parse(absl::string_view text) {
  return ParseKeyAndValue(text);
}

bool Toleration::Tolerates(const Taint& taint) const {
  return taint.key == key && (!value.has_value() || *value == taint.value);
}

std::string Toleration::ToString() const {
  if (!value.has_value()) return WordText(key);
  return absl::StrCat(WordText(key), "=", WordText(*value));
}

absl::StatusOr<std::vector<Taint>> ParseTaints(
    const std::vector<std::string>& texts) {
  if (texts.size() > kTaintsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        texts.size(), " taints are given, at most ", kTaintsMax, " may be"));
  }
  std::vector<Taint> all;
  for (const std::string& text : texts) {
    absl::StatusOr<Taint> one = Taint::Parse(text);
    if (!one.ok()) {
      return Annotate(one.status(), absl::StrCat("taint ", Quoted(text)));
    }
    all.push_back(*std::move(one));
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

const Taint* FirstUntolerated(const std::vector<Taint>& taints,
                              const std::vector<Toleration>& tolerations) {
  for (const Taint& taint : taints) {
    const bool tolerated = std::any_of(tolerations.begin(), tolerations.end(),
                                       [&taint](const Toleration& toleration) {
                                         return toleration.Tolerates(taint);
                                       });
    if (!tolerated) return &taint;
  }
  return nullptr;
}

}  // namespace cohort
