#include "head/archive/record_text.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/timestamp.pb.h"

#include "cohort/v1/storage.pb.h"
#include "common/job_id.h"
#include "common/printable_text.h"
#include "common/resources.h"
#include "common/status_macros.h"
#include "head/store/records_codec.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

bool IsBinary(const std::string& field) {
  return absl::EndsWith(field, "_id")
             ? field != "request_id"
             : absl::EndsWith(field, "_ids") || absl::EndsWith(field, "hash") ||
                   field == "generation" || field == "answer";
}

std::string Escaped(absl::string_view text) {
  if (IsPrintableUtf8(text)) return std::string(text);
  return IsUtf8(text) ? absl::Utf8SafeCHexEscape(text) : absl::CHexEscape(text);
}

std::string Bytes(const FieldDescriptor& field, const std::string& bytes) {
  if (field.name() == "job_id" || field.name() == "array_id") {
    return JobIdText(bytes);
  }
  return IsBinary(field.name()) ? absl::BytesToHexString(bytes)
                                : Escaped(bytes);
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

// Of a field in microseconds.
std::string MicrosText(const std::string& field, int64_t micros) {
  const bool is_time = absl::EndsWith(field, "_at_us") || field == "at_us" ||
                       absl::EndsWith(field, "since_us") ||
                       field == "until_us" || field == "deadline_us";
  if (!is_time) return absl::FormatDuration(absl::Microseconds(micros));
  return TimeText(absl::FromUnixMicros(micros));
}

// What a field says, and whether JSON has it in quotes.
struct Scalar {
  std::string text;
  bool is_text = true;
};

// One value; `index` is -1 for a field that is not repeated.
Scalar ScalarOf(const Message& message, const FieldDescriptor& field,
                int index) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    const auto& reflection = *message.GetReflection();
    return {Bytes(field, index < 0 ? reflection.GetString(message, &field)
                                   : reflection.GetRepeatedString(
                                         message, &field, index))};
  }
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, index,
                                                        &text);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const auto* const value = field.enum_type()->FindValueByName(text);
    return {value == nullptr ? text : EnumText(*value)};
  }
  int64_t micros = 0;
  if (absl::EndsWith(field.name(), "_us") && absl::SimpleAtoi(text, &micros)) {
    return {MicrosText(field.name(), micros)};
  }
  return {text, false};
}

// "CPU=4" and "rack=r1" in place of two fields, "CPU=4,GPU=1" of a set.
std::optional<std::string> PairText(const Message& message) {
  if (const auto* at =
          dynamic_cast<const google::protobuf::Timestamp*>(&message)) {
    return TimeText(rpc::FromWire(*at));
  }
  if (const auto* set = dynamic_cast<const v1::ResourceSet*>(&message)) {
    std::vector<std::string> amounts;
    for (const auto& each : set->amounts()) amounts.push_back(*PairText(each));
    return absl::StrJoin(amounts, ",");
  }
  const auto& type = *message.GetDescriptor();
  const auto* const amount = type.FindFieldByName("ten_thousandths");
  const auto* const value = type.FindFieldByName("value");
  if (type.field_count() != 2 || (amount == nullptr && value == nullptr)) {
    return std::nullopt;
  }
  return absl::StrCat(
      ScalarOf(message, *type.field(0), -1).text, "=",
      value != nullptr ? ScalarOf(message, *value, -1).text
                       : Amount::FromTenThousandths(
                             message.GetReflection()->GetInt64(message, amount))
                             .ToString());
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

std::string Render(const Message& message, RecordForm form,
                   const std::string& indent);

// `index` as in ScalarOf.  As text it begins after the field's colon.
std::string RenderValue(const Message& message, const FieldDescriptor& field,
                        int index, RecordForm form, const std::string& indent) {
  Scalar scalar;
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    scalar = ScalarOf(message, field, index);
  } else {
    const auto& reflection = *message.GetReflection();
    const Message& inner =
        index < 0 ? reflection.GetMessage(message, &field)
                  : reflection.GetRepeatedMessage(message, &field, index);
    const std::optional<std::string> pair = PairText(inner);
    if (!pair.has_value()) return Render(inner, form, indent + "  ");
    scalar.text = *pair;
  }
  if (form == RecordForm::kText) return absl::StrCat(" ", scalar.text, "\n");
  return scalar.is_text ? Quoted(scalar.text) : scalar.text;
}

std::string Render(const Message& message, RecordForm form,
                   const std::string& indent) {
  const bool json = form == RecordForm::kJson;
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::string out = json ? "{" : "\n";
  for (const FieldDescriptor* const field : fields) {
    const bool one = !field->is_repeated();
    const int size =
        one ? 1 : message.GetReflection()->FieldSize(message, field);
    std::vector<std::string> values;
    for (int i = 0; i < size; ++i) {
      values.push_back(
          RenderValue(message, *field, one ? -1 : i, form, indent));
    }
    // A map has no order of its own.
    if (field->is_map()) std::sort(values.begin(), values.end());
    if (json) {
      absl::StrAppend(&out, out == "{" ? "" : ",", Quoted(field->name()), ":",
                      one ? "" : "[", absl::StrJoin(values, ","),
                      one ? "" : "]");
      continue;
    }
    for (const std::string& value : values) {
      absl::StrAppend(&out, indent, field->name(), ":", value);
    }
  }
  return json ? out + "}" : out;
}

template <typename Row>
absl::StatusOr<std::unique_ptr<Message>> Parse(absl::string_view key,
                                               absl::string_view value) {
  COHORT_RETURN_IF_ERROR(FromRow<typename Row::Record>(key, value).status());
  auto message = std::make_unique<typename Row::Proto>();
  // It was just parsed.
  (void)ParseRow(Row::kTable, key, value, *message);
  return message;
}

// As a person names the row.
template <typename Row>
std::string KeyText(absl::string_view key) {
  using Key = typename Row::Key;
  if (std::is_same_v<Key, std::tuple<>>) return std::string(key);
  if (std::is_same_v<Key, std::tuple<JobId>>) return JobIdText(key);
  if (std::tuple_size_v<Key> == 1) return absl::BytesToHexString(key);
  // Past the length of the first text.
  return key.size() < 4 ? "" : Escaped(key.substr(4));
}

}  // namespace

absl::StatusOr<std::string> RecordText(Table table, absl::string_view key,
                                       absl::string_view value,
                                       RecordForm form) {
  using Parsed = absl::StatusOr<std::unique_ptr<Message>>;
  std::string name;
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Message> row,
      TableRows::Visit<Parsed>(table, [&]<typename Row>(Row) -> Parsed {
        name = KeyText<Row>(key);
        return Parse<Row>(key, value);
      }));
  const std::string record = Render(*row, form, "  ");
  if (form == RecordForm::kText) {
    return absl::StrCat(TableName(table), " ", name, record);
  }
  return absl::StrCat("{\"table\":", Quoted(TableName(table)),
                      ",\"key\":", Quoted(name), ",\"record\":", record, "}\n");
}

}  // namespace cohort::head
