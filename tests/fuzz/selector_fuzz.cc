// Label selectors, taints and tolerations: refused, or equal to what their own
// text reads as; and a selector's verdict on a node is the one of its parts.

#include <map>

#include "common/check.h"
#include "common/label_selector.h"
#include "common/taint.h"
#include "tests/fuzz/fuzz.h"

using cohort::LabelSelector;
using cohort::Taint;
using cohort::Toleration;

std::vector<std::string> FuzzSeeds() {
  return {"zone=a",
          "zone != b",
          "gpu in (a100, h100), rack !in (1)",
          "exists disk,host='a b'",
          "\"a=b\" exists",
          "dedicated=ml",
          "maintenance"};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto selector = LabelSelector::Parse(text); selector.ok()) {
    const auto again = LabelSelector::Parse(selector->ToString());
    COHORT_CHECK(again.ok()) << again.status();
    COHORT_CHECK(*again == *selector) << selector->ToString();
    std::map<std::string, std::string> labels = {{"zone", "a"}, {"rack", "1"}};
    bool all = true;
    for (const auto& requirement : selector->requirements()) {
      const auto found = labels.find(requirement.key);
      all = all && requirement.HoldsFor(found == labels.end() ? nullptr
                                                              : &found->second);
    }
    COHORT_CHECK(all == selector->Matches(labels));
  }
  if (const auto taint = Taint::Parse(text); taint.ok()) {
    const auto again = Taint::Parse(taint->ToString());
    COHORT_CHECK(again.ok() && *again == *taint) << taint->ToString();
  }
  if (const auto toleration = Toleration::Parse(text); toleration.ok()) {
    const auto again = Toleration::Parse(toleration->ToString());
    COHORT_CHECK(again.ok() && *again == *toleration) << toleration->ToString();
    // It tolerates what it names.
    const Taint taint{toleration->key, toleration->value.value_or("")};
    COHORT_CHECK(toleration->Tolerates(taint));
  }
  return 0;
}
