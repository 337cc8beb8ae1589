#include "head/archive/record_text.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/message.h"

#include "cohort/v1/storage.pb.h"
#include "common/job_id.h"
#include "common/printable_text.h"
#include "common/resources.h"
#include "common/status_macros.h"
#include "head/state/attempt_table.h"
#include "head/state/job_table.h"
#include "head/state/run_controller.h"
#include "head/store/enum_text.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

namespace pb = ::cohort::storage::v1;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

constexpr size_t kChecksumBytes = 4;

// Names of the numbers that stand for enums of records.h; null for others.
const char* EnumName(const FieldDescriptor& field, uint32_t number) {
  static constexpr const char* kNodeStates[] = {"", "ALIVE", "DEAD", "SUSPECT"};
  static constexpr const char* kRankStates[] = {"", "PENDING", "STARTING",
                                                "RUNNING", "EXITED"};
  static constexpr const char* kPhases[] = {"",        "ASSIGNED", "PREPARED",
                                            "RUNNING", "ENDED",    "LOST"};
  static constexpr const char* kClasses[] = {
      "none", "user", "infra", "preempted", "oom", "hang", "timeout"};
  static constexpr const char* kJobPhases[] = {
      "", "in_line", "held", "array_limit", "back_off", "attempt", "orphan"};
  static constexpr const char* kVerdicts[] = {"", "passed", "slow", "failed"};
  const auto among = [number](const auto& names) -> const char* {
    return number < std::size(names) ? names[number] : nullptr;
  };
  const std::string name =
      absl::StrCat(field.containing_type()->name(), ".", field.name());
  if (name == "JobRow.state") return EnumText(static_cast<JobState>(number));
  if (name == "ArrayEnd.to") return EnumText(static_cast<JobState>(number));
  if (name == "AttemptRow.state") {
    return EnumText(static_cast<AttemptState>(number));
  }
  if (name == "AttemptRow.cause") {
    return LowerEnumText(static_cast<AttemptCause>(number));
  }
  if (name == "NodeRow.state") return among(kNodeStates);
  if (name == "AttemptRank.state") return among(kRankStates);
  if (name == "AttemptPart.phase") return among(kPhases);
  if (field.name() == "failure_class") return among(kClasses);
  if (name == "JobPhase.kind") return among(kJobPhases);
  if (name == "Preflight.verdict") return among(kVerdicts);
  return nullptr;
}

bool IsBinary(const std::string& field) {
  return absl::EndsWith(field, "_id")
             ? field != "request_id"
             : absl::EndsWith(field, "_ids") || absl::EndsWith(field, "hash") ||
                   field == "generation" || field == "answer";
}

// What a field says, and whether JSON has it in quotes.
struct Scalar {
  std::string text;
  bool is_text = true;
};

std::string Escaped(absl::string_view text) {
  if (IsPrintableUtf8(text)) return std::string(text);
  return IsUtf8(text) ? absl::Utf8SafeCHexEscape(text) : absl::CHexEscape(text);
}

Scalar Bytes(const FieldDescriptor& field, const std::string& bytes) {
  if (field.name() == "job_id" || field.name() == "array_id") {
    return {JobIdText(bytes)};
  }
  if (IsBinary(field.name())) return {absl::BytesToHexString(bytes)};
  return {Escaped(bytes)};
}

Scalar Signed(const FieldDescriptor& field, int64_t number) {
  const std::string& name = field.name();
  if (!absl::EndsWith(name, "_us")) return {absl::StrCat(number), false};
  const bool is_time = absl::EndsWith(name, "_at_us") || name == "at_us" ||
                       absl::EndsWith(name, "since_us") || name == "until_us" ||
                       name == "deadline_us";
  if (!is_time) return {absl::FormatDuration(absl::Microseconds(number))};
  return {absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(number),
                           absl::UTCTimeZone())};
}

// "STRICT_PACK" of PLACEMENT_STRATEGY_STRICT_PACK.
std::string EnumText(const google::protobuf::EnumValueDescriptor& value) {
  const std::string none = value.type()->value(0)->name();
  const std::string prefix(absl::StripSuffix(none, "UNSPECIFIED"));
  return std::string(absl::StripPrefix(value.name(), prefix));
}

// One value; `index` is -1 for a field that is not repeated.
Scalar ScalarOf(const Message& message, const FieldDescriptor& field,
                int index) {
  const auto& reflection = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      return Bytes(
          field, one ? reflection.GetStringReference(message, &field, &scratch)
                     : reflection.GetRepeatedStringReference(message, &field,
                                                             index, &scratch));
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return {(one ? reflection.GetBool(message, &field)
                   : reflection.GetRepeatedBool(message, &field, index))
                  ? "true"
                  : "false",
              false};
    case FieldDescriptor::CPPTYPE_INT32:
      return Signed(field,
                    one ? reflection.GetInt32(message, &field)
                        : reflection.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return Signed(field,
                    one ? reflection.GetInt64(message, &field)
                        : reflection.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT64:
      return {absl::StrCat(
                  one ? reflection.GetUInt64(message, &field)
                      : reflection.GetRepeatedUInt64(message, &field, index)),
              false};
    case FieldDescriptor::CPPTYPE_UINT32: {
      const uint32_t number =
          one ? reflection.GetUInt32(message, &field)
              : reflection.GetRepeatedUInt32(message, &field, index);
      if (const char* name = EnumName(field, number)) return {name};
      return {absl::StrCat(number), false};
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* const value =
          one ? reflection.GetEnum(message, &field)
              : reflection.GetRepeatedEnum(message, &field, index);
      return {EnumText(*value)};
    }
    default:
      return {"?"};  // rows have no other types
  }
}

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

// "CPU=4" and "rack=r1" in place of two fields.
std::optional<std::string> PairText(const Message& message) {
  if (message.GetDescriptor()->options().map_entry()) {
    const auto& type = *message.GetDescriptor();
    return absl::StrCat(ScalarOf(message, *type.field(0), -1).text, "=",
                        ScalarOf(message, *type.field(1), -1).text);
  }
  if (const auto* set = dynamic_cast<const v1::ResourceSet*>(&message)) {
    std::vector<std::string> amounts;
    for (const auto& each : set->amounts()) {
      const Amount amount = Amount::FromTenThousandths(each.ten_thousandths());
      amounts.push_back(absl::StrCat(each.name(), "=", amount.ToString()));
    }
    return absl::StrJoin(amounts, ",");
  }
  if (const auto* amount = dynamic_cast<const pb::Amount*>(&message)) {
    return Escaped(absl::StrCat(
        amount->name(), "=",
        Amount::FromTenThousandths(amount->ten_thousandths()).ToString()));
  }
  if (const auto* pair = dynamic_cast<const pb::TextPair*>(&message)) {
    return Escaped(absl::StrCat(pair->key(), "=", pair->value()));
  }
  return std::nullopt;
}

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

std::vector<const FieldDescriptor*> FieldsOf(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

const Message& SubMessage(const Message& message, const FieldDescriptor& field,
                          int index) {
  const auto& reflection = *message.GetReflection();
  return index < 0 ? reflection.GetMessage(message, &field)
                   : reflection.GetRepeatedMessage(message, &field, index);
}

// Calls `each` with the index of every value of a field; -1 for the only one.
template <typename Each>
void ForEachValue(const Message& message, const FieldDescriptor& field,
                  Each each) {
  if (!field.is_repeated()) return each(-1);
  const int size = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < size; ++i) each(i);
}

std::string ToJson(const Message& message) {
  std::vector<std::string> members;
  for (const FieldDescriptor* field : FieldsOf(message)) {
    std::vector<std::string> values;
    ForEachValue(message, *field, [&](int index) {
      if (!IsMessage(*field)) {
        const Scalar scalar = ScalarOf(message, *field, index);
        values.push_back(scalar.is_text ? Quoted(scalar.text) : scalar.text);
        return;
      }
      const Message& inner = SubMessage(message, *field, index);
      const std::optional<std::string> pair = PairText(inner);
      values.push_back(pair.has_value() ? Quoted(*pair) : ToJson(inner));
    });
    // A map has no order of its own.
    if (field->is_map()) std::sort(values.begin(), values.end());
    members.push_back(
        absl::StrCat(Quoted(field->name()), ":",
                     field->is_repeated()
                         ? absl::StrCat("[", absl::StrJoin(values, ","), "]")
                         : values.front()));
  }
  return absl::StrCat("{", absl::StrJoin(members, ","), "}");
}

void AppendText(const Message& message, const std::string& indent,
                std::string& out) {
  for (const FieldDescriptor* field : FieldsOf(message)) {
    std::vector<std::string> values;
    ForEachValue(message, *field, [&](int index) {
      std::string& text =
          values.emplace_back(absl::StrCat(indent, field->name(), ":"));
      if (!IsMessage(*field)) {
        absl::StrAppend(&text, " ", ScalarOf(message, *field, index).text,
                        "\n");
        return;
      }
      const Message& inner = SubMessage(message, *field, index);
      if (const auto pair = PairText(inner)) {
        absl::StrAppend(&text, " ", *pair, "\n");
        return;
      }
      text.push_back('\n');
      AppendText(inner, indent + "  ", text);
    });
    if (field->is_map()) std::sort(values.begin(), values.end());
    for (const std::string& value : values) out += value;
  }
}

template <typename Record, typename Row>
absl::StatusOr<std::unique_ptr<Message>> Parse(absl::string_view key,
                                               absl::string_view value) {
  COHORT_RETURN_IF_ERROR(FromRow<Record>(key, value).status());
  auto row = std::make_unique<Row>();
  const absl::string_view bytes = value.substr(kChecksumBytes);
  // It was just parsed.
  (void)row->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  return row;
}

absl::StatusOr<std::unique_ptr<Message>> ParseRow(Table table,
                                                  absl::string_view key,
                                                  absl::string_view value) {
  switch (table) {
    case Table::kCluster:
      return Parse<ClusterRecord, pb::ClusterRow>(key, value);
    case Table::kNodes:
      return Parse<NodeRecord, pb::NodeRow>(key, value);
    case Table::kJobs:
      return Parse<JobRecord, pb::JobRow>(key, value);
    case Table::kAttempts:
      return Parse<AttemptRecord, pb::AttemptRow>(key, value);
    case Table::kRequests:
      return Parse<RequestRecord, pb::RequestRow>(key, value);
    case Table::kPackages:
      return Parse<PackageRecord, pb::PackageRow>(key, value);
    case Table::kEvents:
      return Parse<EventRecord, pb::EventRow>(key, value);
    case Table::kArrays:
      return Parse<ArrayRecord, pb::ArrayRow>(key, value);
    case Table::kWaitReasons:
      return Parse<WaitReasonRecord, pb::WaitReasonRow>(key, value);
  }
  return absl::InternalError("a table without records");
}

// As a person names the row.
std::string KeyText(Table table, absl::string_view key) {
  if (table == Table::kCluster) return std::string(key);
  if (table == Table::kRequests) {
    // Past the length of the principal, both are text.
    return key.size() < 4 ? "" : Escaped(key.substr(4));
  }
  const bool is_job = table == Table::kJobs || table == Table::kArrays;
  return is_job ? JobIdText(key) : absl::BytesToHexString(key);
}

}  // namespace

absl::StatusOr<std::string> RecordText(Table table, absl::string_view key,
                                       absl::string_view value,
                                       RecordForm form) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Message> row,
                          ParseRow(table, key, value));
  const std::string name = KeyText(table, key);
  if (form == RecordForm::kJson) {
    return absl::StrCat("{\"table\":", Quoted(TableName(table)),
                        ",\"key\":", Quoted(name), ",\"record\":", ToJson(*row),
                        "}\n");
  }
  std::string text = absl::StrCat(TableName(table), " ", name, "\n");
  AppendText(*row, "  ", text);
  return text;
}

}  // namespace cohort::head
