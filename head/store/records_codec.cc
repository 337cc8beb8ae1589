#include "head/store/records_codec.h"

#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

#include "cohort/v1/storage.pb.h"
#include "common/hash.h"
#include "common/status_util.h"
#include "head/store/unknown_fields.h"

namespace cohort::head {
namespace {

// The message package; `storage` is also a word of ours.
namespace pb = ::cohort::storage::v1;

constexpr size_t kChecksumBytes = 4;

std::string BigEndian32(uint32_t number) {
  std::string bytes(4, '\0');
  for (int i = 3; i >= 0; --i, number >>= 8) {
    bytes[static_cast<size_t>(i)] = static_cast<char>(number & 0xff);
  }
  return bytes;
}

std::string BigEndian64(uint64_t number) {
  return BigEndian32(static_cast<uint32_t>(number >> 32)) +
         BigEndian32(static_cast<uint32_t>(number));
}

// Over the key too, so that a value under another row's key is found.
std::string Checksum(absl::string_view key, absl::string_view row) {
  return BigEndian32(Crc32c(row, Crc32c(key)));
}

bool Parse(absl::string_view row, google::protobuf::Message& message) {
  return row.size() <= std::numeric_limits<int>::max() &&
         message.ParseFromArray(row.data(), static_cast<int>(row.size()));
}

}  // namespace

std::string RowKey() { return "cluster"; }
std::string RowKey(const JobId& id) { return id.bytes(); }
std::string RowKey(const std::string& hash) { return hash; }
std::string RowKey(uint64_t number) { return BigEndian64(number); }
std::string RowKey(const std::string& first, const std::string& second) {
  return absl::StrCat(BigEndian32(static_cast<uint32_t>(first.size())), first,
                      second);
}

uint64_t RowNumber(absl::string_view key) {
  uint64_t number = 0;
  if (key.size() != sizeof number) return number;
  for (const char c : key) number = number << 8 | static_cast<uint8_t>(c);
  return number;
}

std::string SealRow(absl::string_view key,
                    const google::protobuf::Message& message) {
  std::string value;
  value.reserve(kChecksumBytes + message.ByteSizeLong());
  value.resize(kChecksumBytes);
  // Maps in one order, so that equal rows are equal bytes.
  google::protobuf::io::StringOutputStream stream(&value);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  const absl::string_view row = absl::string_view(value).substr(kChecksumBytes);
  value.replace(0, kChecksumBytes, Checksum(key, row));
  return value;
}

absl::Status ParseRow(Table table, absl::string_view key,
                      absl::string_view value,
                      google::protobuf::Message& message) {
  if (table == Table::kCluster) {
    COHORT_ASSIGN_OR_RETURN(const ClusterStamp stamp, ReadClusterStamp(value));
    COHORT_RETURN_IF_ERROR(CheckSchema(stamp));
  }
  COHORT_ASSIGN_OR_RETURN(const absl::string_view row,
                          UnsealRow(table, key, value));
  if (!Parse(row, message)) {
    return DamagedRow(table, key, "it is not a row of this table");
  }
  // Fields that this program does not know, at any depth: a newer schema would
  // have been refused before, so these bytes are another table's.
  if (DropUnknownFields(message) || message.ByteSizeLong() != row.size()) {
    return DamagedRow(table, key, "it has unknown fields");
  }
  return absl::OkStatus();
}

absl::Status DamagedRow(Table table, absl::string_view key,
                        absl::string_view what) {
  return SetReason(
      absl::DataLossError(absl::StrCat(
          "row ", absl::BytesToHexString(key), " of table ", TableName(table),
          " is damaged (", what, "): restore the control store from a backup")),
      "row_damaged");
}

absl::StatusOr<ClusterStamp> ReadClusterStamp(absl::string_view value) {
  COHORT_ASSIGN_OR_RETURN(const absl::string_view row,
                          UnsealRow(Table::kCluster, RowKey(), value));
  pb::ClusterRow message;
  if (!Parse(row, message)) {
    return DamagedRow(Table::kCluster, RowKey(),
                      "it is not a row of this table");
  }
  return ClusterStamp{.schema_version = message.schema_version(),
                      .term = message.term()};
}

absl::Status CheckSchema(const ClusterStamp& stamp) {
  if (stamp.schema_version <= kSchemaVersion) return absl::OkStatus();
  return SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          "the control store comes from the future of this program: its "
          "schema is ",
          stamp.schema_version, ", known is ", kSchemaVersion,
          ": run the newer cohort that wrote it, or restore the backup from "
          "before the upgrade")),
      "store_from_the_future");
}

absl::StatusOr<absl::string_view> UnsealRow(Table table, absl::string_view key,
                                            absl::string_view value) {
  if (value.size() < kChecksumBytes) {
    return DamagedRow(table, key, "it is too short");
  }
  const absl::string_view row = value.substr(kChecksumBytes);
  if (value.substr(0, kChecksumBytes) != Checksum(key, row)) {
    return DamagedRow(table, key, "its checksum is wrong");
  }
  return row;
}

std::string SealRow(absl::string_view key, absl::string_view message) {
  return absl::StrCat(Checksum(key, message), message);
}

}  // namespace cohort::head
