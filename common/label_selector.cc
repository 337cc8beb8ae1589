#include "common/label_selector.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/text_scanner.h"

namespace cohort {
namespace {

using Operator = LabelSelector::Operator;
using Requirement = LabelSelector::Requirement;

absl::StatusOr<std::string> TakeValue(TextScanner& scanner) {
  scanner.SkipSpaces();
  return scanner.TakeWord("a value", LabelSelector::kValueBytesMax);
}

// "(A,B)".
absl::StatusOr<std::vector<std::string>> TakeList(TextScanner& scanner) {
  scanner.SkipSpaces();
  if (!scanner.Take("(")) return scanner.Expected("( and values");
  std::vector<std::string> values;
  do {
    if (values.size() == LabelSelector::kValuesMax) {
      return scanner.Expected(absl::StrCat(") after ",
                                           LabelSelector::kValuesMax,
                                           " values, the most there may "
                                           "be"));
    }
    COHORT_ASSIGN_OR_RETURN(std::string value, TakeValue(scanner));
    values.push_back(std::move(value));
    scanner.SkipSpaces();
  } while (scanner.Take(","));
  if (!scanner.Take(")")) return scanner.Expected(", or )");
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// A requirement ends at a comma or with the text.
bool AtItsEnd(TextScanner& scanner) {
  scanner.SkipSpaces();
  return scanner.AtEnd() || scanner.Peek() == ',';
}

// "exists K", after the first word, which may also be a label of that name.
absl::StatusOr<std::optional<Requirement>> TakeLeadingExists(
    TextScanner& scanner) {
  const size_t after_word = scanner.position();
  scanner.SkipSpaces();
  if (scanner.AtWord()) {
    COHORT_ASSIGN_OR_RETURN(
        std::string key,
        scanner.TakeWord("a label", LabelSelector::kKeyBytesMax));
    if (AtItsEnd(scanner)) {
      return Requirement{std::move(key), Operator::kExists, {}};
    }
  }
  scanner.Rewind(after_word);
  return std::optional<Requirement>();
}

absl::StatusOr<Requirement> TakeRequirement(TextScanner& scanner) {
  constexpr char kOperators[] = "=, !=, in, !in or exists";
  scanner.SkipSpaces();
  Requirement requirement;
  COHORT_ASSIGN_OR_RETURN(
      requirement.key,
      scanner.TakeWord("a label", LabelSelector::kKeyBytesMax));
  if (requirement.key == "exists") {
    COHORT_ASSIGN_OR_RETURN(std::optional<Requirement> exists,
                            TakeLeadingExists(scanner));
    if (exists.has_value()) return *std::move(exists);
  }
  scanner.SkipSpaces();
  const size_t start = scanner.position();
  const bool differs = scanner.Take("!");
  if (scanner.Take("=")) {
    requirement.op = differs ? Operator::kNotIn : Operator::kIn;
    COHORT_ASSIGN_OR_RETURN(std::string value, TakeValue(scanner));
    requirement.values.push_back(std::move(value));
    return requirement;
  }
  const absl::StatusOr<std::string> word =
      scanner.TakeWord(kOperators, LabelSelector::kKeyBytesMax);
  if (word.ok() && *word == "in") {
    requirement.op = differs ? Operator::kNotIn : Operator::kIn;
    COHORT_ASSIGN_OR_RETURN(requirement.values, TakeList(scanner));
    return requirement;
  }
  if (word.ok() && *word == "exists" && !differs) {
    requirement.op = Operator::kExists;
    return requirement;
  }
  scanner.Rewind(start);
  return scanner.Expected(kOperators);
}

}  // namespace

bool LabelSelector::Requirement::HoldsFor(const std::string* value) const {
  const bool listed = value != nullptr &&
                      std::binary_search(values.begin(), values.end(), *value);
  switch (op) {
    case Operator::kIn:
      return listed;
    case Operator::kNotIn:
      return !listed;
    case Operator::kExists:
      return value != nullptr;
  }
  return false;
}

std::string LabelSelector::Requirement::ToString() const {
  if (op == Operator::kExists) return absl::StrCat(WordText(key), " exists");
  const bool in = op == Operator::kIn;
  if (values.size() == 1) {
    return absl::StrCat(WordText(key),
                        in ? "=" : "!=", WordText(values.front()));
  }
  const auto as_word = [](std::string* out, const std::string& value) {
    absl::StrAppend(out, WordText(value));
  };
  return absl::StrCat(WordText(key), in ? " in (" : " !in (",
                      absl::StrJoin(values, ",", as_word), ")");
}

absl::StatusOr<LabelSelector> LabelSelector::Parse(absl::string_view text) {
  LabelSelector selector;
  TextScanner scanner(text);
  scanner.SkipSpaces();
  if (scanner.AtEnd()) return selector;
  do {
    if (selector.requirements_.size() == kRequirementsMax) {
      return scanner.Expected(
          absl::StrCat("at most ", kRequirementsMax, " requirements"));
    }
    COHORT_ASSIGN_OR_RETURN(Requirement requirement, TakeRequirement(scanner));
    selector.Add(std::move(requirement));
    scanner.SkipSpaces();
  } while (scanner.Take(","));
  if (!scanner.AtEnd()) return scanner.Expected(", or the end");
  return selector;
}

absl::StatusOr<LabelSelector> LabelSelector::ParseAll(
    const std::vector<std::string>& texts) {
  LabelSelector all;
  for (const std::string& text : texts) {
    absl::StatusOr<LabelSelector> one = Parse(text);
    if (!one.ok()) {
      return Annotate(one.status(), absl::StrCat("selector ", Quoted(text)));
    }
    for (Requirement& requirement : one->requirements_) {
      all.Add(std::move(requirement));
    }
  }
  if (all.requirements_.size() > kRequirementsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("selectors name ", all.requirements_.size(),
                     " requirements, at most ", kRequirementsMax, " may be"));
  }
  return all;
}

void LabelSelector::Add(Requirement requirement) {
  const auto place =
      std::lower_bound(requirements_.begin(), requirements_.end(), requirement);
  if (place != requirements_.end() && *place == requirement) return;
  requirements_.insert(place, std::move(requirement));
}

const Requirement* LabelSelector::FirstFailing(Lookup label) const {
  for (const Requirement& requirement : requirements_) {
    if (!requirement.HoldsFor(label(requirement.key))) return &requirement;
  }
  return nullptr;
}

bool LabelSelector::Matches(
    const std::map<std::string, std::string>& labels) const {
  return Matches([&labels](const std::string& key) {
    const auto found = labels.find(key);
    return found == labels.end() ? nullptr : &found->second;
  });
}

std::string LabelSelector::ToString() const {
  return absl::StrJoin(requirements_, ",",
                       [](std::string* out, const Requirement& requirement) {
                         absl::StrAppend(out, requirement.ToString());
                       });
}

}  // namespace cohort
