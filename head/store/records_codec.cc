#include "head/store/records_codec.h"

#include <limits>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"

#include "cohort/v1/storage.pb.h"
#include "common/hash.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/store/records_proto.h"

namespace cohort::head {
namespace {

// The message package; `storage` is also a word of ours.
namespace pb = ::cohort::storage::v1;

constexpr size_t kChecksumBytes = 4;
constexpr size_t kRowBlockBytes = 4096;

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

absl::Status Damaged(Table table, absl::string_view key,
                     absl::string_view what) {
  return SetReason(
      absl::DataLossError(absl::StrCat(
          "row ", absl::BytesToHexString(key), " of table ", TableName(table),
          " is damaged (", what, "): restore the control store from a backup")),
      "row_damaged");
}

// ---- tables and keys ----

template <typename Record>
struct RowOf;
template <>
struct RowOf<ClusterRecord> {
  using Proto = pb::ClusterRow;
  static constexpr Table kTable = Table::kCluster;
  static std::string Key(const ClusterRecord&) { return ClusterKey(); }
};
template <>
struct RowOf<NodeRecord> {
  using Proto = pb::NodeRow;
  static constexpr Table kTable = Table::kNodes;
  static std::string Key(const NodeRecord& r) { return NodeKey(r.id); }
};
template <>
struct RowOf<JobRecord> {
  using Proto = pb::JobRow;
  static constexpr Table kTable = Table::kJobs;
  static std::string Key(const JobRecord& r) { return JobKey(r.id); }
};
template <>
struct RowOf<AttemptRecord> {
  using Proto = pb::AttemptRow;
  static constexpr Table kTable = Table::kAttempts;
  static std::string Key(const AttemptRecord& r) { return AttemptKey(r.id); }
};
template <>
struct RowOf<ArrayRecord> {
  using Proto = pb::ArrayRow;
  static constexpr Table kTable = Table::kArrays;
  static std::string Key(const ArrayRecord& r) { return ArrayKey(r.id); }
};
template <>
struct RowOf<RequestRecord> {
  using Proto = pb::RequestRow;
  static constexpr Table kTable = Table::kRequests;
  static std::string Key(const RequestRecord& r) {
    return RequestRowKey(r.principal, r.request_id);
  }
};
template <>
struct RowOf<PackageRecord> {
  using Proto = pb::PackageRow;
  static constexpr Table kTable = Table::kPackages;
  static std::string Key(const PackageRecord& r) { return PackageKey(r.hash); }
};
template <>
struct RowOf<EventRecord> {
  using Proto = pb::EventRow;
  static constexpr Table kTable = Table::kEvents;
  static std::string Key(const EventRecord& r) { return EventKey(r.number); }
};
template <>
struct RowOf<WaitReasonRecord> {
  using Proto = pb::WaitReasonRow;
  static constexpr Table kTable = Table::kWaitReasons;
  static std::string Key(const WaitReasonRecord& r) {
    return WaitReasonKey(r.number);
  }
};

template <typename Record>
Write Encode(const Record& record) {
  // Most rows are a handful of small messages: their place is the stack.
  alignas(8) char block[kRowBlockBytes];
  google::protobuf::Arena arena(block, sizeof(block));
  auto& message =
      *google::protobuf::Arena::CreateMessage<typename RowOf<Record>::Proto>(
          &arena);
  ToProto(record, message);
  Write write{RowOf<Record>::kTable, RowOf<Record>::Key(record), std::string()};
  std::string& value = *write.value;
  value.reserve(kChecksumBytes + message.ByteSizeLong());
  value.resize(kChecksumBytes);
  // Maps in one order, so that equal rows are equal bytes.
  google::protobuf::io::StringOutputStream stream(&value);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  const absl::string_view row = absl::string_view(value).substr(kChecksumBytes);
  value.replace(0, kChecksumBytes, Checksum(write.key, row));
  return write;
}

// The row's bytes, once they are what was written.
absl::StatusOr<absl::string_view> Verified(Table table, absl::string_view key,
                                           absl::string_view value) {
  if (value.size() < kChecksumBytes) {
    return Damaged(table, key, "it is too short");
  }
  const absl::string_view row = value.substr(kChecksumBytes);
  if (value.substr(0, kChecksumBytes) != Checksum(key, row)) {
    return Damaged(table, key, "its checksum is wrong");
  }
  return row;
}

template <typename Proto>
bool Parse(absl::string_view row, Proto& message) {
  return row.size() <= std::numeric_limits<int>::max() &&
         message.ParseFromArray(row.data(), static_cast<int>(row.size()));
}

template <typename Record>
absl::StatusOr<Record> Decode(absl::string_view key, absl::string_view value) {
  constexpr Table kTable = RowOf<Record>::kTable;
  COHORT_ASSIGN_OR_RETURN(const absl::string_view row,
                          Verified(kTable, key, value));
  typename RowOf<Record>::Proto message;
  if (!Parse(row, message)) {
    return Damaged(kTable, key, "it is no row of this table");
  }
  // Fields that this program does not know, at any depth: a newer schema would
  // have been refused before, so these bytes are another table's.
  message.DiscardUnknownFields();
  if (message.ByteSizeLong() != row.size()) {
    return Damaged(kTable, key, "it has unknown fields");
  }
  FieldReader reader;
  Record record = FromProto(message, reader);
  if (!reader.wrong().empty()) return Damaged(kTable, key, reader.wrong());
  if (RowOf<Record>::Key(record) != key) {
    return Damaged(kTable, key, "its key is another row's");
  }
  return record;
}

}  // namespace

std::string ClusterKey() { return "cluster"; }
std::string NodeKey(const NodeId& node) { return std::string(node.bytes()); }
std::string JobKey(const JobId& job) { return job.bytes(); }
std::string AttemptKey(const AttemptId& attempt) {
  return std::string(attempt.bytes());
}
std::string ArrayKey(const JobId& array) { return array.bytes(); }
std::string RequestRowKey(absl::string_view principal,
                          absl::string_view request_id) {
  return absl::StrCat(BigEndian32(static_cast<uint32_t>(principal.size())),
                      principal, request_id);
}
std::string PackageKey(absl::string_view hash) { return std::string(hash); }
std::string EventKey(uint64_t number) { return BigEndian64(number); }
uint64_t EventNumber(absl::string_view key) {
  uint64_t number = 0;
  if (key.size() != sizeof number) return number;
  for (const char c : key) number = number << 8 | static_cast<uint8_t>(c);
  return number;
}
std::string WaitReasonKey(uint64_t number) { return BigEndian64(number); }

Write ToWrite(const ClusterRecord& record) { return Encode(record); }
Write ToWrite(const NodeRecord& record) { return Encode(record); }
Write ToWrite(const JobRecord& record) { return Encode(record); }
Write ToWrite(const AttemptRecord& record) { return Encode(record); }
Write ToWrite(const ArrayRecord& record) { return Encode(record); }
Write ToWrite(const RequestRecord& record) { return Encode(record); }
Write ToWrite(const PackageRecord& record) { return Encode(record); }
Write ToWrite(const EventRecord& record) { return Encode(record); }
Write ToWrite(const WaitReasonRecord& record) { return Encode(record); }

absl::StatusOr<ClusterStamp> ReadClusterStamp(absl::string_view value) {
  COHORT_ASSIGN_OR_RETURN(const absl::string_view row,
                          Verified(Table::kCluster, ClusterKey(), value));
  pb::ClusterRow message;
  if (!Parse(row, message)) {
    return Damaged(Table::kCluster, ClusterKey(), "it is no row of this table");
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

template <typename Record>
absl::StatusOr<Record> FromRow(absl::string_view key, absl::string_view value) {
  if constexpr (std::is_same_v<Record, ClusterRecord>) {
    COHORT_ASSIGN_OR_RETURN(const ClusterStamp stamp, ReadClusterStamp(value));
    COHORT_RETURN_IF_ERROR(CheckSchema(stamp));
  }
  return Decode<Record>(key, value);
}

absl::StatusOr<absl::string_view> UnsealRow(Table table, absl::string_view key,
                                            absl::string_view value) {
  return Verified(table, key, value);
}

std::string SealRow(absl::string_view key, absl::string_view message) {
  return absl::StrCat(Checksum(key, message), message);
}

template <typename Record>
absl::StatusOr<std::vector<Record>> LoadRecords(Store& store) {
  using Rows = std::vector<std::pair<std::string, std::string>>;
  COHORT_ASSIGN_OR_RETURN(const Rows rows,
                          store.LoadAll(RowOf<Record>::kTable));
  std::vector<Record> records;
  records.reserve(rows.size());
  for (const auto& [key, value] : rows) {
    COHORT_ASSIGN_OR_RETURN(Record record, FromRow<Record>(key, value));
    records.push_back(std::move(record));
  }
  return records;
}

template absl::StatusOr<ClusterRecord> FromRow(absl::string_view,
                                               absl::string_view);
template absl::StatusOr<NodeRecord> FromRow(absl::string_view,
                                            absl::string_view);
template absl::StatusOr<JobRecord> FromRow(absl::string_view,
                                           absl::string_view);
template absl::StatusOr<AttemptRecord> FromRow(absl::string_view,
                                               absl::string_view);
template absl::StatusOr<ArrayRecord> FromRow(absl::string_view,
                                             absl::string_view);
template absl::StatusOr<RequestRecord> FromRow(absl::string_view,
                                               absl::string_view);
template absl::StatusOr<PackageRecord> FromRow(absl::string_view,
                                               absl::string_view);
template absl::StatusOr<EventRecord> FromRow(absl::string_view,
                                             absl::string_view);
template absl::StatusOr<WaitReasonRecord> FromRow(absl::string_view,
                                                  absl::string_view);

template absl::StatusOr<std::vector<ClusterRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<NodeRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<JobRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<AttemptRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<ArrayRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<RequestRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<PackageRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<EventRecord>> LoadRecords(Store&);
template absl::StatusOr<std::vector<WaitReasonRecord>> LoadRecords(Store&);

}  // namespace cohort::head
