#include "head/explain/named_change.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/resource_text.h"

namespace cohort::head {
namespace {

std::string Count(int64_t n, const char* noun) {
  return absl::StrCat(n, " ", noun, n == 1 ? "" : "s");
}

// Exact: it is what lets the job start.
std::string Exact(const std::string& resource, Amount amount) {
  return AmountText(resource, amount, SizeRounding::kNone);
}

// The flag of `cohort submit` for an amount of a resource.
std::string FlagFor(const std::string& resource, Amount amount) {
  if (resource == kCpu) return absl::StrCat("--cpus ", amount.ToString());
  if (resource == kGpu) return absl::StrCat("--gpus ", amount.ToString());
  if (resource == kMemory) {
    return absl::StrCat("--memory ", Exact(resource, amount));
  }
  return absl::StrCat("--resources ", resource, "=", amount.ToString());
}

class Wording {
 public:
  explicit Wording(const NodeTable& nodes) : nodes_(nodes) {}

  NamedChange Of(const Remedy& remedy) const {
    return {.kind = RemedyName(remedy.kind),
            .of_request = IsOfRequest(remedy.kind),
            .text = Text(remedy),
            .how = How(remedy)};
  }

 private:
  bool AreUnfit(const std::vector<NodeId>& nodes) const {
    return std::all_of(nodes.begin(), nodes.end(), [this](const NodeId& node) {
      return nodes_.ShownState(node) == ShownNodeState::kUnfit;
    });
  }

  std::vector<std::string> NodeNames(const Remedy& remedy) const {
    std::vector<std::string> names;
    for (const NodeId& node : remedy.nodes) {
      names.push_back(nodes_.Find(node)->name);
    }
    return names;
  }

  std::string Text(const Remedy& remedy) const {
    switch (remedy.kind) {
      case Remedy::Kind::kPreferTopology:
        return absl::StrCat("prefer one ", remedy.subject,
                            " instead of requiring it");
      case Remedy::Kind::kOtherStrategy:
        return absl::StrCat("strategy ", remedy.subject);
      case Remedy::Kind::kTolerateTaint:
        return absl::StrCat("tolerate the taint ", remedy.subject);
      case Remedy::Kind::kDropSelector:
        return absl::StrCat("without the selector ", remedy.subject);
      case Remedy::Kind::kAnyAccelerator:
        return absl::StrCat("any accelerator instead of ", remedy.subject);
      case Remedy::Kind::kLessOfResource:
        return absl::StrCat(
            remedy.subject, " ", Exact(remedy.subject, remedy.to),
            " a worker instead of ", Exact(remedy.subject, remedy.from));
      case Remedy::Kind::kFewerWorkers:
        return absl::StrCat(Count(remedy.to.WholeUnits(), "worker"),
                            " instead of ", remedy.from.WholeUnits());
      case Remedy::Kind::kNodeReturns:
        return absl::StrCat(NamesText(NodeNames(remedy)),
                            AreUnfit(remedy.nodes) ? " being fit for work again"
                                                   : " coming back");
      case Remedy::Kind::kUndrain:
        return absl::StrCat("undrain ", NamesText(NodeNames(remedy)));
      case Remedy::Kind::kJobEnds:
        return absl::StrCat("the end of job ", remedy.job.ToText());
      case Remedy::Kind::kMoreNodes:
        return absl::StrCat(
            remedy.count, " more ", remedy.count == 1 ? "node" : "nodes",
            " like ", remedy.subject, " (",
            ResourcesText(remedy.model->total, SizeRounding::kUp), ")");
      case Remedy::Kind::kOtherNodes:
        return absl::StrCat(Count(remedy.count, "node"), " with ",
                            NodeText(*remedy.model),
                            remedy.count == 1 ? "" : " each");
    }
    return RemedyName(remedy.kind);
  }

  std::string How(const Remedy& remedy) const {
    switch (remedy.kind) {
      case Remedy::Kind::kPreferTopology:
        return absl::StrCat("--prefer-same ", remedy.subject);
      case Remedy::Kind::kOtherStrategy:
        return absl::StrCat("--strategy ", remedy.subject);
      case Remedy::Kind::kTolerateTaint:
        return absl::StrCat("--tolerate '", remedy.subject, "'");
      case Remedy::Kind::kLessOfResource:
        return FlagFor(remedy.subject, remedy.to);
      case Remedy::Kind::kFewerWorkers:
        return absl::StrCat("--num-workers ", remedy.to.WholeUnits());
      case Remedy::Kind::kUndrain:
        if (remedy.nodes.size() > 1) return "";
        return absl::StrCat("cohort undrain ", Address(remedy.nodes.front()));
      case Remedy::Kind::kDropSelector:
      case Remedy::Kind::kAnyAccelerator:
      case Remedy::Kind::kNodeReturns:
      case Remedy::Kind::kJobEnds:
      case Remedy::Kind::kMoreNodes:
      case Remedy::Kind::kOtherNodes:
        return "";
    }
    return "";
  }

  // Its name, or its id where others are named so too.
  std::string Address(const NodeId& node) const {
    const std::string& name = nodes_.Find(node)->name;
    const auto& all = nodes_.records();
    const auto same = std::count_if(
        all.begin(), all.end(),
        [&name](const auto& each) { return each.second.name == name; });
    return same == 1 ? name : node.ToHex();
  }

  // "CPU 4, GPU 2 (H100), labelled rack=new".
  static std::string NodeText(const NodeSnapshot& node) {
    std::string text = ResourcesText(node.total, SizeRounding::kNone);
    if (!node.accelerator.empty()) {
      absl::StrAppend(&text, " (", node.accelerator, ")");
    }
    const char* before = ", labelled ";
    for (const auto& [key, value] : node.labels) {
      absl::StrAppend(&text, std::exchange(before, ","), key, "=", value);
    }
    return text;
  }

  const NodeTable& nodes_;
};

}  // namespace

NamedChange NameChange(const Remedy& remedy, const NodeTable& nodes) {
  return Wording(nodes).Of(remedy);
}

}  // namespace cohort::head
