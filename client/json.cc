#include "client/json.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "nlohmann/json.hpp"

#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/node_labels.h"
#include "common/resources.h"
#include "common/taint.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort {
namespace {

using google::protobuf::DynamicCastToGenerated;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

std::string Text(absl::string_view text) {
  return std::string(text.data(), text.size());
}

// Bytes that are not UTF-8 become U+FFFD rather than an exception.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

std::string Pretty(const Json& json) { return Dump(json, 2); }
std::string OnOneLine(const Json& json) { return Dump(json, -1); }

// A whole number where it is one.
Json AmountJson(Amount amount) {
  if (amount.ten_thousandths() % Amount::kScale == 0) {
    return amount.WholeUnits();
  }
  return amount.ToDouble();
}

// What every node has is always named, and what `all` names.
Json ResourcesObject(const v1::ResourceSet& wire, const v1::ResourceSet& all) {
  const ResourceSet resources = ResourcesOf(wire);
  Json json = Json::object();
  for (const char* name : {kCpu, kGpu, kMemory}) {
    json[name] = AmountJson(resources.Get(name));
  }
  for (const auto& [name, amount] : ResourcesOf(all)) {
    json[name] = AmountJson(resources.Get(name));
  }
  return json;
}

// What a rank wrote as JSON; null when it is none.
Json ParsedJson(const std::string& text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? Json(nullptr) : parsed;
}

const v1::Shown& ShownOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::shown);
}

// Request ids, and those of providers, are their makers' text.
bool IsId(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_BYTES &&
         absl::EndsWith(field.name(), "_id") && field.name() != "request_id" &&
         field.name() != "provider_id";
}

Json TextJson(const FieldDescriptor& field, const std::string& text) {
  if (IsId(field)) return IdText(text);
  if (absl::EndsWith(field.name(), "_hash") && !text.empty()) {
    return absl::BytesToHexString(text);
  }
  return ShownOf(field).parsed() ? ParsedJson(text) : Json(text);
}

Json NumberJson(const FieldDescriptor& field, int64_t number) {
  if (ShownOf(field).amount()) {
    return AmountJson(Amount::FromTenThousandths(number));
  }
  if (absl::EndsWith(field.name(), "_at_us") || field.name() == "since_us" ||
      field.name() == "until_us" || field.name() == "modified_us") {
    return TimeText(absl::FromUnixMicros(number));
  }
  if (absl::EndsWith(field.name(), "_us")) {
    return DurationToText(absl::Microseconds(number));
  }
  return number;
}

void AddFields(const Message& message, bool in_detail, Json& json);

Json MessageJson(const Message& message, bool in_detail) {
  if (const auto* time =
          DynamicCastToGenerated<google::protobuf::Timestamp>(&message)) {
    return TimeText(rpc::FromWire(*time));
  }
  if (const auto* duration =
          DynamicCastToGenerated<google::protobuf::Duration>(&message)) {
    return DurationToText(rpc::FromWire(*duration));
  }
  if (const auto* all = DynamicCastToGenerated<v1::ResourceSet>(&message)) {
    return ResourcesObject(*all, *all);
  }
  if (const auto* wire = DynamicCastToGenerated<v1::Toleration>(&message)) {
    return rpc::FromWire(*wire).ToString();
  }
  Json json = Json::object();
  AddFields(message, in_detail, json);
  return json;
}

// Of a field that is set, or of element `index` of a repeated one.
Json ValueJson(const Message& message, const FieldDescriptor& field, int index,
               bool in_detail) {
  const Reflection& values = *message.GetReflection();
  const auto get = [&](auto one, auto of_several) {
    return field.is_repeated() ? (values.*of_several)(message, &field, index)
                               : (values.*one)(message, &field);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_INT64:
      return NumberJson(
          field, get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_STRING:
      return TextJson(
          field, get(&Reflection::GetString, &Reflection::GetRepeatedString));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number =
          get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue);
      return ShownOf(field).lower()
                 ? absl::AsciiStrToLower(EnumText(*field.enum_type(), number))
                 : EnumText(*field.enum_type(), number);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return MessageJson(field.is_repeated()
                         ? values.GetRepeatedMessage(message, &field, index)
                         : values.GetMessage(message, &field, nullptr),
                     in_detail);
}

// The entries of a map, whose order is by chance, or of pairs.
Json ObjectJson(const Message& message, const FieldDescriptor& field,
                bool in_detail) {
  const Reflection& values = *message.GetReflection();
  std::map<std::string, Json> sorted;
  Json json = Json::object();
  for (int i = 0; i < values.FieldSize(message, &field); ++i) {
    const Message& entry = values.GetRepeatedMessage(message, &field, i);
    const auto part = [&](int which) {
      return ValueJson(entry, *field.message_type()->field(which), 0,
                       in_detail);
    };
    if (field.is_map()) {
      sorted.emplace(part(0), part(1));
    } else {
      json[part(0).get<std::string>()] = part(1);
    }
  }
  for (auto& [key, value] : sorted) json[key] = std::move(value);
  return json;
}

bool IsNullable(const FieldDescriptor& field) {
  const v1::Shown& shown = ShownOf(field);
  if (shown.has_nullable()) return shown.nullable();
  if (field.has_presence()) return !shown.always();
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
}

Json FieldJson(const Message& message, const FieldDescriptor& field,
               bool in_detail) {
  if (field.is_map() || ShownOf(field).pairs()) {
    return ObjectJson(message, field, in_detail);
  }
  const Reflection& values = *message.GetReflection();
  if (field.is_repeated()) {
    Json json = Json::array();
    for (int i = 0; i < values.FieldSize(message, &field); ++i) {
      json.push_back(ValueJson(message, field, i, in_detail));
    }
    return json;
  }
  if (IsNullable(field) && !values.HasField(message, &field)) return nullptr;
  return ValueJson(message, field, 0, in_detail);
}

// A process ended by a signal has no exit code, and the other way round.
void AddExit(const v1::ExitStatus* exit, Json& json) {
  json["exit_code"] = nullptr;
  json["signal"] = nullptr;
  if (exit == nullptr) return;
  if (exit->signal() != 0) {
    json["signal"] = exit->signal();
  } else {
    json["exit_code"] = exit->code();
  }
}

// ---- what fields do not say by themselves ----

void Derive(const v1::Job& job, bool in_detail, Json& json) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED && !job.has_exit()) {
    json["exit_code"] = 0;
  }
  if (!in_detail) return;
  if (job.failed_rank() < 0) json["failed_rank"] = nullptr;
  const v1::ScalingConfig& scaling = job.spec().scaling();
  json["topology"] = nullptr;
  if (!scaling.topology_level().empty()) {
    json["topology"] = {{"level", scaling.topology_level()},
                        {"required", scaling.topology_required()}};
  }
  // Of an attempt that has not come so far only that it is wanted.
  if (job.spec().run().preflight() && !job.has_preflight()) {
    json["preflight"] = MessageJson(job.preflight(), in_detail);
  }
}

void Derive(const v1::Rank& rank, Json& json) {
  const auto text = [](const std::string& value) {
    return value.empty() ? Json(nullptr) : Json(value);
  };
  json["node_name"] = text(rank.node_name());
  json["exit_detail"] = text(rank.exit().detail());
  json["oom_killed"] = rank.exit().oom_killed();
}

void Derive(const v1::Node& node, Json& json) {
  for (const auto& [key, label] : {std::pair("type", kNodeTypeLabel),
                                   std::pair("instance", kInstanceLabel)}) {
    const auto found = node.labels().find(label);
    json[key] =
        found == node.labels().end() ? Json(nullptr) : Json(found->second);
  }
  json["available"] = ResourcesObject(node.available(), node.resources());
  json["devices"] = Json::array();
  for (const v1::Device& device : node.devices()) {
    json["devices"].push_back(MessageJson(device, /*in_detail=*/true));
  }
}

// States without anybody are there too.
void AddZeros(const google::protobuf::EnumDescriptor& states, Json& counts) {
  Json all = Json::object();
  for (int i = 1; i < states.value_count(); ++i) {
    all[EnumText(*states.value(i))] = 0;
  }
  all.update(counts);
  counts = std::move(all);
}

void Derive(const v1::GetStatusResponse& status, Json& json) {
  AddZeros(*v1::JobState_descriptor(), json["jobs"]);
  AddZeros(*v1::NodeState_descriptor(), json["nodes"]);
  json["later_store"] = nullptr;
  if (status.later_store_node_names().empty()) return;
  json["later_store"] = {{"term", status.later_store_term()},
                         {"nodes", status.later_store_node_names()},
                         {"why", status.later_store_why()}};
}

void AddDerived(const Message& message, bool in_detail, Json& json) {
  if (const auto* job = DynamicCastToGenerated<v1::Job>(&message)) {
    Derive(*job, in_detail, json);
  } else if (const auto* rank = DynamicCastToGenerated<v1::Rank>(&message)) {
    Derive(*rank, json);
  } else if (const auto* node = DynamicCastToGenerated<v1::Node>(&message)) {
    Derive(*node, json);
  } else if (const auto* status =
                 DynamicCastToGenerated<v1::GetStatusResponse>(&message)) {
    Derive(*status, json);
  } else if (const auto* resources =
                 DynamicCastToGenerated<v1::GetResourcesResponse>(&message)) {
    json["available"] =
        ResourcesObject(resources->available(), resources->total());
  } else if (const auto* blocker =
                 DynamicCastToGenerated<v1::Blocker>(&message)) {
    // Nothing was counted.
    if (!blocker->shape().empty()) return;
    for (const char* key :
         {"workers", "nodes", "nodes_that_fit", "workers_that_fit"}) {
      json[key] = nullptr;
    }
  } else if (const auto* failure =
                 DynamicCastToGenerated<v1::NodeFailure>(&message)) {
    json["by"] = absl::StrCat(failure->by(), ":", failure->what());
  } else if (const auto* change =
                 DynamicCastToGenerated<v1::Remedy>(&message)) {
    json["of"] = change->of_request() ? "request" : "cluster";
  } else if (DynamicCastToGenerated<v1::ExplainJobResponse>(&message)) {
    const Json& changes = json["changes"];
    json["smallest_change"] = changes.empty() ? Json(nullptr) : changes.front();
  }
}

void AddFields(const Message& message, bool in_detail, Json& json) {
  const Reflection& values = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const v1::Shown& shown = ShownOf(field);
    if (shown.hide() || (shown.in_detail() && !in_detail)) continue;
    if (!shown.flat()) {
      json[shown.key().empty() ? field.name() : shown.key()] =
          FieldJson(message, field, in_detail);
      continue;
    }
    const Message& part = values.GetMessage(message, &field, nullptr);
    if (const auto* exit = DynamicCastToGenerated<v1::ExitStatus>(&part)) {
      AddExit(values.HasField(message, &field) ? exit : nullptr, json);
    } else {
      AddFields(part, in_detail, json);
    }
  }
  AddDerived(message, in_detail, json);
}

template <typename Value>
std::string ListJson(const std::vector<Value>& list) {
  Json json = Json::array();
  for (const Value& each : list) {
    json.push_back(MessageJson(each, /*in_detail=*/false));
  }
  return Pretty(json);
}

// The same keys for one and in lists, whose jobs have no `launch`.
Json ActorObject(const Job& actor) {
  Json whole = MessageJson(actor, /*in_detail=*/true);
  Json json;
  for (const char* key : {"id", "name", "namespace", "state", "reason"}) {
    json[key] = whole[key];
  }
  const Json& spec = whole["actor"];
  for (const char* key : {"class", "driver", "dimensions"}) {
    json[key] = spec.is_null() ? Json(nullptr) : spec[key];
  }
  json["resources"] = whole["resources_per_worker"];
  json["max_restarts"] = whole["max_failures"];
  json["restarts"] = actor.failures() + actor.infra_restarts();
  for (const char* key :
       {"num_workers", "submitted_at", "started_at", "ended_at", "ranks"}) {
    json[key] = whole[key];
  }
  return json;
}

// A device, and whose it is.
Json GpuObject(const Node& node, int index) {
  Json json = MessageJson(node.devices(index), /*in_detail=*/true);
  json["node"] = node.name();
  json["node_id"] = IdText(node.node_id());
  json["node_state"] = EnumText(node.state());
  return json;
}

}  // namespace

std::string ToJson(const Message& message) {
  return Pretty(MessageJson(message, /*in_detail=*/true));
}

std::string ToJsonLine(const Message& message) {
  return OnOneLine(MessageJson(message, /*in_detail=*/true));
}

std::string JobsJson(const std::vector<Job>& jobs) { return ListJson(jobs); }

std::string ExplanationsJson(const std::vector<Explanation>& explanations) {
  return ListJson(explanations);
}

std::string NodesJson(const std::vector<Node>& nodes) {
  return ListJson(nodes);
}

std::string GpuJson(const Node& node, int index) {
  return Pretty(GpuObject(node, index));
}

std::string GpusJson(const std::vector<Node>& nodes) {
  Json json = Json::array();
  for (const Node& node : nodes) {
    for (int i = 0; i < node.devices_size(); ++i) {
      if (node.devices(i).kind() == "gpu") json.push_back(GpuObject(node, i));
    }
  }
  return Pretty(json);
}

std::string ActorJson(const Job& actor) { return Pretty(ActorObject(actor)); }

std::string ActorsJson(const std::vector<Job>& actors) {
  Json json = Json::array();
  for (const Job& actor : actors) json.push_back(ActorObject(actor));
  return Pretty(json);
}

std::string DriversJson(const DriverList& drivers) {
  Json json = Json::array();
  for (const Driver& driver : drivers.drivers()) {
    json.push_back(MessageJson(driver, /*in_detail=*/true));
  }
  return Pretty(json);
}

std::string TasksJson(const DriverList& drivers) {
  Json json = Json::array();
  for (const Driver& driver : drivers.drivers()) {
    for (const v1::TaskCounts& tasks : driver.tasks()) {
      Json line;
      line["driver"] = IdText(driver.driver_id());
      line["driver_name"] = driver.name();
      line.update(MessageJson(tasks, /*in_detail=*/true));
      json.push_back(std::move(line));
    }
  }
  return Pretty(json);
}

std::string StacksJson(const std::vector<RankStack>& stacks) {
  return ListJson(stacks);
}

std::string JobFilesJson(const JobFiles& files) {
  Json json;
  json["files"] = Json::array();
  for (const JobFile& each : files.files) {
    Json file = MessageJson(each.file, /*in_detail=*/true);
    file["node"] = Text(each.node_name);
    json["files"].push_back(std::move(file));
  }
  json["nodes_away"] = Json::array();
  for (const std::string& name : files.nodes_away) {
    json["nodes_away"].push_back(Text(name));
  }
  json["nodes_gone"] = Json::array();
  for (const std::string& name : files.nodes_gone) {
    json["nodes_gone"].push_back(Text(name));
  }
  return Pretty(json);
}

std::string BackupJson(const std::string& directory,
                       const BackupSummary& summary) {
  Json json;
  json["directory"] = directory;
  json["files"] = summary.files();
  json["size_bytes"] = summary.size_bytes();
  json["missing_packages"] = Json::array();
  for (const std::string& hash : summary.missing_packages()) {
    json["missing_packages"].push_back(absl::BytesToHexString(hash));
  }
  return Pretty(json);
}

std::string VersionJson(const BuildInfo& build) {
  return Pretty({{"version", Text(build.version)},
                 {"commit", Text(build.commit)},
                 {"build", Text(build.build)}});
}

std::string IdJson(const JobId& job) {
  return OnOneLine({{"id", job.ToText()}});
}

std::string IdsJson(const std::vector<JobId>& jobs) {
  Json json = Json::array();
  for (const JobId& job : jobs) json.push_back({{"id", job.ToText()}});
  return Pretty(json);
}

std::string ErrorJson(absl::string_view code, absl::string_view reason,
                      absl::string_view message) {
  return OnOneLine({{"code", Text(code)},
                    {"reason", Text(reason)},
                    {"message", Text(message)}});
}

std::string LogLineJson(int attempt, int rank, absl::string_view stream,
                        absl::string_view line, absl::string_view time) {
  return OnOneLine({{"attempt", attempt},
                    {"rank", rank},
                    {"stream", Text(stream)},
                    {"time", time.empty() ? Json(nullptr) : Json(Text(time))},
                    {"line", Text(line)}});
}

}  // namespace cohort
