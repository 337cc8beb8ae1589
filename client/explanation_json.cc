#include "client/explanation_json.h"

#include <optional>

#include "absl/strings/str_cat.h"

#include "client/json.h"
#include "client/json_value.h"

namespace cohort {
namespace {

Json IdOrNull(const std::optional<JobId>& id) {
  return id.has_value() ? Json(id->ToText()) : Json(nullptr);
}

Json AmountOrNull(const std::optional<Amount>& amount) {
  return amount.has_value() ? AmountJson(*amount) : Json(nullptr);
}

Json FailureJson(const NodeFailure& failure) {
  Json json;
  json["by"] = absl::StrCat(failure.by, ":", failure.what);
  json["nodes"] = failure.nodes;
  json["short"] = AmountOrNull(failure.short_least);
  json["short_median"] = AmountOrNull(failure.short_median);
  json["closest"] = OrNull(failure.closest);
  json["kind"] = failure.by;
  json["what"] = failure.what;
  json["nodes_in_all"] = failure.nodes_in_all;
  json["since"] = failure.since.has_value() ? Json(TimeText(*failure.since))
                                            : Json(nullptr);
  return json;
}

Json HolderJson(const Holder& holder) {
  Json json;
  json["resource"] = holder.resource;
  json["job"] = holder.job.ToText();
  json["amount"] = AmountJson(holder.amount);
  json["nodes"] = holder.nodes;
  return json;
}

Json BlockerJson(const Blocker& blocker) {
  Json json;
  json["kind"] = blocker.kind;
  json["text"] = blocker.text;
  json["shape"] = OrNull(blocker.shape);
  const bool counted = !blocker.shape.empty();
  const auto number = [counted](int64_t n) {
    return counted ? Json(n) : Json(nullptr);
  };
  json["workers"] = number(blocker.num_workers);
  json["nodes"] = number(blocker.nodes);
  json["nodes_that_fit"] = number(blocker.nodes_that_fit);
  json["workers_that_fit"] = number(blocker.workers_that_fit);
  json["never_fits"] = blocker.never_fits;
  json["fail"] = Json::array();
  for (const NodeFailure& failure : blocker.failures) {
    json["fail"].push_back(FailureJson(failure));
  }
  json["holders"] = Json::array();
  for (const Holder& holder : blocker.holders) {
    json["holders"].push_back(HolderJson(holder));
  }
  json["holders_complete"] = blocker.holders_complete;
  return json;
}

Json AheadJson(const Ahead& ahead) {
  Json json;
  json["jobs"] = ahead.jobs;
  json["more"] = ahead.more;
  json["first"] = Json::array();
  for (const Ahead::Job& job : ahead.first) {
    Json first;
    first["job"] = job.id.ToText();
    first["name"] = job.name;
    first["priority"] = job.priority;
    json["first"].push_back(std::move(first));
  }
  return json;
}

Json RemedyJson(const Remedy& remedy) {
  Json json;
  json["kind"] = remedy.kind;
  json["of"] = remedy.of_request ? "request" : "cluster";
  json["text"] = remedy.text;
  json["how"] = OrNull(remedy.how);
  return json;
}

Json ElementsJson(const WaitingElements& elements) {
  Json json;
  json["kind"] = elements.kind;
  json["count"] = elements.count;
  json["first"] = IdOrNull(elements.first);
  return json;
}

Json WaitReasonJson(const WaitReason& reason) {
  Json json;
  json["since"] = TimeText(reason.since);
  json["until"] =
      reason.until.has_value() ? Json(TimeText(*reason.until)) : Json(nullptr);
  json["blocker"] = BlockerJson(reason.blocker);
  return json;
}

}  // namespace

std::string ExplanationJson(const Explanation& explanation) {
  Json json;
  json["job"] = explanation.job.ToText();
  json["name"] = explanation.name;
  json["state"] = JobStateName(explanation.state);
  json["summary"] = explanation.summary;
  json["blockers"] = Json::array();
  for (const Blocker& blocker : explanation.blockers) {
    json["blockers"].push_back(BlockerJson(blocker));
  }
  json["ahead"] = AheadJson(explanation.ahead);
  json["smallest_change"] = explanation.changes.empty()
                                ? Json(nullptr)
                                : RemedyJson(explanation.changes.front());
  json["changes"] = Json::array();
  for (const Remedy& change : explanation.changes) {
    json["changes"].push_back(RemedyJson(change));
  }
  json["changes_complete"] = explanation.changes_complete;
  json["history"] = Json::array();
  for (const WaitReason& reason : explanation.history) {
    json["history"].push_back(WaitReasonJson(reason));
  }
  json["element"] = IdOrNull(explanation.element);
  json["elements"] = Json::array();
  for (const WaitingElements& elements : explanation.elements) {
    json["elements"].push_back(ElementsJson(elements));
  }
  return json.dump(2, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

}  // namespace cohort
