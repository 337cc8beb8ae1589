#include "head/state/cluster_file.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

#include "common/duration_text.h"
#include "common/node_labels.h"
#include "common/printable_text.h"
#include "common/resources.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/taint.h"
#include "head/state/fleet.h"
#include "rpc/wire_values.h"
#include "yaml-cpp/yaml.h"

namespace cohort::head {
namespace {

constexpr size_t kTextBytesMax = 64 << 10;
constexpr int kNodeTypesMax = 256;
constexpr size_t kNameBytesMax = 64;
constexpr int64_t kNodesMax = 10'000;
constexpr int kConfigDepthMax = 32;
constexpr int kConfigValuesMax = 1'000;
constexpr size_t kConfigBytesMax = 4 << 10;
constexpr absl::Duration kIdleTimeout = absl::Minutes(5);
constexpr absl::Duration kLaunchTimeout = absl::Minutes(10);
constexpr absl::Duration kDataTimeout = absl::Minutes(10);
constexpr double kUpscalingSpeed = 1.0;

absl::Status Wrong(const YAML::Node& node, absl::string_view what) {
  const int line = node.Mark().line;
  return absl::InvalidArgumentError(
      line < 0 ? std::string(what)
               : absl::StrCat("line ", line + 1, ": ", what));
}

// `status` with the line of `node`.
absl::Status At(const YAML::Node& node, const absl::Status& status) {
  return status.ok() ? status : Wrong(node, status.message());
}

absl::StatusOr<std::string> Text(const YAML::Node& node,
                                 absl::string_view what) {
  if (node.IsScalar()) return node.Scalar();
  return Wrong(node, absl::StrCat(what, " is not a single value"));
}

absl::StatusOr<int64_t> Count(const YAML::Node& node, absl::string_view what) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, Text(node, what));
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= 0 && value <= kNodesMax) {
    return value;
  }
  return Wrong(node, absl::StrCat(what, " is a whole number from 0 to ",
                                  kNodesMax, ", not ", Shown(text)));
}

absl::StatusOr<double> Number(const YAML::Node& node, absl::string_view what) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, Text(node, what));
  double value = 0;
  if (absl::SimpleAtod(text, &value) && std::isfinite(value) && value >= 0) {
    return value;
  }
  return Wrong(node,
               absl::StrCat(what, " is a number from 0 on, not ", Shown(text)));
}

absl::StatusOr<bool> Truth(const YAML::Node& node, absl::string_view what) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, Text(node, what));
  bool value = false;
  if (YAML::convert<bool>::decode(node, value)) return value;
  return Wrong(node,
               absl::StrCat(what, " is true or false, not ", Shown(text)));
}

absl::StatusOr<absl::Duration> Time(const YAML::Node& node,
                                    absl::string_view what) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, Text(node, what));
  const absl::StatusOr<absl::Duration> time = ParseDuration(text);
  if (time.ok()) return time;
  return Wrong(node, absl::StrCat(what, ": ", time.status().message()));
}

// A mapping whose keys are these, each handled by its function.
using Keys =
    std::map<std::string, std::function<absl::Status(const YAML::Node&)>>;

absl::Status ReadKeys(const YAML::Node& node, absl::string_view what,
                      const Keys& keys) {
  if (!node.IsMap()) {
    return Wrong(node, absl::StrCat(what, " is not a list of `key: value`"));
  }
  std::set<std::string> seen;
  for (const auto& each : node) {
    COHORT_ASSIGN_OR_RETURN(const std::string key, Text(each.first, "a key"));
    const auto found = keys.find(key);
    if (found == keys.end()) {
      return Wrong(
          each.first,
          absl::StrCat(what, " has no key ", Shown(key), " (it has ",
                       absl::StrJoin(keys, ", ",
                                     [](std::string* out, const auto& known) {
                                       out->append(known.first);
                                     }),
                       ")"));
    }
    if (!seen.insert(key).second) {
      return Wrong(each.first,
                   absl::StrCat(what, " has ", key, " more than once"));
    }
    COHORT_RETURN_IF_ERROR(found->second(each.second));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ResourceSet> ReadResources(const YAML::Node& node) {
  if (!node.IsMap()) {
    return Wrong(node, "resources are not a list of `name: amount`");
  }
  ResourceSet resources;
  for (const auto& each : node) {
    COHORT_ASSIGN_OR_RETURN(const std::string name,
                            Text(each.first, "a resource"));
    COHORT_ASSIGN_OR_RETURN(const std::string text, Text(each.second, name));
    const auto parsed = ParseResources(absl::StrCat(name, "=", text));
    if (!parsed.ok()) return At(each.second, parsed.status());
    if (!resources.Get(name).IsZero()) {
      return Wrong(each.first, absl::StrCat(name, " is there twice"));
    }
    resources.Add(*parsed);
  }
  if (resources.Get(kGpu) !=
      Amount::FromUnits(resources.Get(kGpu).WholeUnits())) {
    return Wrong(node, "a node has whole GPUs");
  }
  COHORT_RETURN_IF_ERROR(At(node, resources.Validate()));
  return rpc::ToWire(resources);
}

absl::Status ReadLabels(const YAML::Node& node, v1::NodeType& type) {
  if (!node.IsMap())
    return Wrong(node, "labels are not a list of `name: value`");
  std::map<std::string, std::string> labels;
  for (const auto& each : node) {
    COHORT_ASSIGN_OR_RETURN(const std::string key, Text(each.first, "a label"));
    COHORT_ASSIGN_OR_RETURN(labels[key], Text(each.second, key));
    if (key == kNodeTypeLabel || key == kInstanceLabel) {
      return Wrong(each.first,
                   absl::StrCat("the label ", key, " is the autoscaler's"));
    }
    // As a worker's flag takes them.
    if (labels[key].find(',') != std::string::npos) {
      return Wrong(each.second, "a label of a node type has no comma");
    }
  }
  COHORT_RETURN_IF_ERROR(At(node, CheckNodeLabels(labels)));
  for (auto& [key, value] : labels) (*type.mutable_labels())[key] = value;
  return absl::OkStatus();
}

absl::Status ReadTaints(const YAML::Node& node, v1::NodeType& type) {
  if (!node.IsSequence()) return Wrong(node, "taints are not a list");
  std::vector<std::string> texts;
  for (const YAML::Node& each : node) {
    COHORT_ASSIGN_OR_RETURN(texts.emplace_back(), Text(each, "a taint"));
  }
  const auto taints = ParseTaints(texts);
  if (!taints.ok()) return At(node, taints.status());
  for (const Taint& taint : *taints) *type.add_taints() = rpc::ToWire(taint);
  return absl::OkStatus();
}

// What is the provider's own, as JSON.
// `left`: how many values it may have, as aliases multiply them.
absl::StatusOr<nlohmann::json> ToJson(const YAML::Node& node, int depth,
                                      int& left) {
  if (depth > kConfigDepthMax || --left < 0) {
    return Wrong(node, absl::StrCat("provider_config has more than ",
                                    kConfigValuesMax, " values, or is nested ",
                                    "deeper than ", kConfigDepthMax));
  }
  if (node.IsMap()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& each : node) {
      COHORT_ASSIGN_OR_RETURN(const std::string key, Text(each.first, "a key"));
      COHORT_ASSIGN_OR_RETURN(object[key],
                              ToJson(each.second, depth + 1, left));
    }
    return object;
  }
  if (node.IsSequence()) {
    nlohmann::json list = nlohmann::json::array();
    for (const YAML::Node& each : node) {
      COHORT_ASSIGN_OR_RETURN(list.emplace_back(),
                              ToJson(each, depth + 1, left));
    }
    return list;
  }
  if (!node.IsScalar()) return nlohmann::json();
  const std::string& text = node.Scalar();
  // Quoted, it is text.
  int64_t whole = 0;
  double number = 0;
  bool truth = false;
  if (node.Tag() == "!") return text;
  if (absl::SimpleAtoi(text, &whole)) return whole;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) return number;
  if (YAML::convert<bool>::decode(node, truth)) return truth;
  return text;
}

absl::StatusOr<v1::NodeType> ReadType(const std::string& name,
                                      const YAML::Node& node,
                                      absl::Duration idle_timeout) {
  v1::NodeType type;
  type.set_name(name);
  type.set_cost(1);
  type.set_max(kNodesMax);
  const auto count = [](auto set, const char* what) {
    return [set, what](const YAML::Node& value) -> absl::Status {
      COHORT_ASSIGN_OR_RETURN(const int64_t number, Count(value, what));
      set(static_cast<uint32_t>(number));
      return absl::OkStatus();
    };
  };
  const Keys keys = {
      {"resources",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(*type.mutable_resources(),
                                 ReadResources(value));
         return absl::OkStatus();
       }},
      {"labels",
       [&](const YAML::Node& value) { return ReadLabels(value, type); }},
      {"taints",
       [&](const YAML::Node& value) { return ReadTaints(value, type); }},
      {"accelerator_type",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(*type.mutable_accelerator_type(),
                                 Text(value, "accelerator_type"));
         return absl::OkStatus();
       }},
      {"min", count([&](uint32_t n) { type.set_min(n); }, "min")},
      {"max", count([&](uint32_t n) { type.set_max(n); }, "max")},
      {"cost",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(const double cost, Number(value, "cost"));
         type.set_cost(cost);
         return absl::OkStatus();
       }},
      {"spot",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(const bool spot, Truth(value, "spot"));
         type.set_spot(spot);
         return absl::OkStatus();
       }},
      {"idle_timeout",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(idle_timeout, Time(value, "idle_timeout"));
         return absl::OkStatus();
       }},
      {"provider_config",
       [&](const YAML::Node& value) -> absl::Status {
         int left = kConfigValuesMax;
         COHORT_ASSIGN_OR_RETURN(const nlohmann::json json,
                                 ToJson(value, 0, left));
         type.set_provider_config(json.dump(
             -1, ' ', false, nlohmann::json::error_handler_t::replace));
         if (type.provider_config().size() <= kConfigBytesMax) {
           return absl::OkStatus();
         }
         return Wrong(value, absl::StrCat("provider_config has more than ",
                                          kConfigBytesMax, " bytes"));
       }},
  };
  const std::string what = absl::StrCat("node type ", Shown(name));
  COHORT_RETURN_IF_ERROR(ReadKeys(node, what, keys));
  if (type.resources().amounts().empty()) {
    return Wrong(node, absl::StrCat(what, " has no resources"));
  }
  if (type.min() > type.max()) {
    return Wrong(node, absl::StrCat(what, " has min ", type.min(),
                                    " above max ", type.max()));
  }
  type.set_idle_timeout_us(absl::ToInt64Microseconds(idle_timeout));
  return type;
}

absl::Status ReadTypes(const YAML::Node& node, absl::Duration idle_timeout,
                       ClusterFile& file) {
  if (!node.IsMap())
    return Wrong(node, "node_types are not a list of `NAME: {...}`");
  for (const auto& each : node) {
    COHORT_ASSIGN_OR_RETURN(const std::string name,
                            Text(each.first, "a node type"));
    const bool is_plain =
        !name.empty() && name.size() <= kNameBytesMax &&
        std::all_of(name.begin(), name.end(), [](char c) {
          return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                 c == '-' || c == '_' || c == '.';
        });
    if (!is_plain) {
      return Wrong(
          each.first,
          absl::StrCat("the name of a node type has 1 to ", kNameBytesMax,
                       " letters, digits, - _ and ., not ", Shown(name)));
    }
    COHORT_ASSIGN_OR_RETURN(*file.add_node_types(),
                            ReadType(name, each.second, idle_timeout));
  }
  if (file.node_types_size() > kNodeTypesMax) {
    return Wrong(node, absl::StrCat("there are ", file.node_types_size(),
                                    " node types: at most ", kNodeTypesMax));
  }
  std::sort(file.mutable_node_types()->begin(),
            file.mutable_node_types()->end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  for (int i = 1; i < file.node_types_size(); ++i) {
    if (file.node_types(i - 1).name() == file.node_types(i).name()) {
      return Wrong(node, absl::StrCat("node type ", file.node_types(i).name(),
                                      " is there twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ClusterFile> Read(const YAML::Node& root) {
  ClusterFile file;
  file.set_max_nodes(kNodesMax);
  file.set_upscaling_speed(kUpscalingSpeed);
  absl::Duration idle_timeout = kIdleTimeout;
  absl::Duration launch_timeout = kLaunchTimeout;
  absl::Duration data_timeout = kDataTimeout;
  YAML::Node types;
  bool has_types = false;
  const Keys keys = {
      {"provider",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(*file.mutable_provider(),
                                 Text(value, "provider"));
         if (!absl::StrContains(file.provider(), '/') ||
             absl::StartsWith(file.provider(), "/")) {
           return absl::OkStatus();
         }
         return Wrong(value, absl::StrCat("provider ", Shown(file.provider()),
                                          " is neither a name nor the whole "
                                          "path of a program"));
       }},
      {"max_nodes",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(const int64_t max, Count(value, "max_nodes"));
         file.set_max_nodes(static_cast<uint32_t>(max));
         return absl::OkStatus();
       }},
      {"upscaling_speed",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(const double speed,
                                 Number(value, "upscaling_speed"));
         file.set_upscaling_speed(speed);
         return absl::OkStatus();
       }},
      {"idle_timeout",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(idle_timeout, Time(value, "idle_timeout"));
         return absl::OkStatus();
       }},
      {"launch_timeout",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(launch_timeout, Time(value, "launch_timeout"));
         return absl::OkStatus();
       }},
      {"data_timeout",
       [&](const YAML::Node& value) -> absl::Status {
         COHORT_ASSIGN_OR_RETURN(data_timeout, Time(value, "data_timeout"));
         return absl::OkStatus();
       }},
      {"node_types",
       [&](const YAML::Node& value) {
         types = value;
         has_types = true;
         return absl::OkStatus();
       }},
  };
  COHORT_RETURN_IF_ERROR(ReadKeys(root, "the cluster file", keys));
  if (file.provider().empty()) {
    return Wrong(root, "the cluster file names no provider");
  }
  if (!has_types) return Wrong(root, "the cluster file has no node_types");
  COHORT_RETURN_IF_ERROR(ReadTypes(types, idle_timeout, file));
  int64_t least = 0;
  for (const v1::NodeType& type : file.node_types()) least += type.min();
  if (least > file.max_nodes()) {
    return Wrong(types,
                 absl::StrCat("the min of all node types is ", least,
                              " together, above max_nodes ", file.max_nodes()));
  }
  file.set_launch_timeout_us(absl::ToInt64Microseconds(launch_timeout));
  file.set_data_timeout_us(absl::ToInt64Microseconds(data_timeout));
  return file;
}

}  // namespace

absl::StatusOr<ClusterFile> ParseClusterFile(absl::string_view text) {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the cluster file has ", text.size(), " bytes: at most ",
                     kTextBytesMax));
  }
  if (!IsUtf8(text)) {
    return absl::InvalidArgumentError("the cluster file is not UTF-8");
  }
  // The library throws, for some texts also while they are read.
  try {
    COHORT_ASSIGN_OR_RETURN(ClusterFile file,
                            Read(YAML::Load(std::string(text))));
    file.set_text(std::string(text));
    return file;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", error.mark.line + 1, ": ", error.msg));
  }
}

}  // namespace cohort::head
