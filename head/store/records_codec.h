#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/message.h"

#include "common/status_macros.h"
#include "head/store/records.h"
#include "head/store/records_proto.h"
#include "head/store/store.h"
#include "head/store/tables.h"

// Records to stored bytes and back.  Stateless; thread-safe.
//
// A value is 4 bytes CRC-32C (big-endian, over key and row) followed by the
// row, a message of storage.proto; equal rows are equal bytes.  Text may be any
// bytes.  Times keep their microseconds, InfinitePast is kept as it is.
namespace cohort::head {

// A message as it is stored, and back.  DataLoss, naming table and key, when
// the checksum or the encoding is wrong; FailedPrecondition for a cluster row
// of a newer schema.
std::string SealRow(absl::string_view key,
                    const google::protobuf::Message& message);
absl::Status ParseRow(Table table, absl::string_view key,
                      absl::string_view value,
                      google::protobuf::Message& message);
absl::Status DamagedRow(Table table, absl::string_view key,
                        absl::string_view what);

template <typename Record>
inline constexpr bool kIsMessage =
    std::is_same_v<Record, typename RowOf<Record>::Proto>;

// The write that stores a record under its key.
template <typename Record>
Write ToWrite(const Record& record) {
  std::string key = RowOf<Record>::KeyOf(record);
  std::string value;
  if constexpr (kIsMessage<Record>) {
    value = SealRow(key, record);
  } else if constexpr (requires { record.row; }) {
    value = SealRow(key, record.row);
  } else {
    // Most rows are a handful of small messages: their place is the stack.
    alignas(8) char block[4096];
    google::protobuf::Arena arena(block, sizeof(block));
    auto& message =
        *google::protobuf::Arena::CreateMessage<typename RowOf<Record>::Proto>(
            &arena);
    ToProto(record, message);
    value = SealRow(key, message);
  }
  return {RowOf<Record>::kTable, std::move(key), std::move(value)};
}

// The write that deletes the record whose key these members make.
template <typename Record, typename... Part>
Write ToDelete(const Part&... key) {
  static_assert(
      std::is_constructible_v<typename RowOf<Record>::Key, const Part&...>);
  return {RowOf<Record>::kTable, RowKey(key...), std::nullopt};
}

// How many bytes a record has as it is stored: key and value.
template <typename Record>
size_t StoredBytes(const Record& record) {
  const Write write = ToWrite(record);
  return write.key.size() + write.value->size();
}

// The record of a stored row.  Errors as ParseRow; DataLoss too when a value
// makes no sense, or the key is another row's.
template <typename Record>
absl::StatusOr<Record> FromRow(absl::string_view key, absl::string_view value) {
  constexpr Table kTable = RowOf<Record>::kTable;
  typename RowOf<Record>::Proto message;
  COHORT_RETURN_IF_ERROR(ParseRow(kTable, key, value, message));
  FieldReader reader;
  Record record;
  if constexpr (kIsMessage<Record>) {
    record = std::move(message);
    CheckRow(record, reader);
  } else {
    record = FromProto(std::move(message), reader);
  }
  if (!reader.wrong().empty()) return DamagedRow(kTable, key, reader.wrong());
  if (RowOf<Record>::KeyOf(record) != key) {
    return DamagedRow(kTable, key, "its key is another row's");
  }
  return record;
}

// The message of a stored row, once it is what was written; valid as long as
// `value`.  DataLoss, naming table and key.  For migration.h.
absl::StatusOr<absl::string_view> UnsealRow(Table table, absl::string_view key,
                                            absl::string_view value);
// And back.
std::string SealRow(absl::string_view key, absl::string_view message);

// All records of `store`, in key order; the first error of the store or a row.
template <typename Record>
absl::StatusOr<std::vector<Record>> LoadRecords(Store& store) {
  std::vector<Record> records;
  COHORT_RETURN_IF_ERROR(
      store.Scan(RowOf<Record>::kTable, "", std::numeric_limits<size_t>::max(),
                 [&](absl::string_view key, absl::string_view value) {
                   COHORT_ASSIGN_OR_RETURN(records.emplace_back(),
                                           FromRow<Record>(key, value));
                   return absl::OkStatus();
                 }));
  return records;
}

// The fence and the schema in a stored cluster row; errors as FromRow.  Of a
// newer schema's row only these two are readable.
struct ClusterStamp {
  uint32_t schema_version = 0;
  uint64_t term = 0;
};
absl::StatusOr<ClusterStamp> ReadClusterStamp(absl::string_view value);

// FailedPrecondition, saying what to do, for a schema newer than this one.
absl::Status CheckSchema(const ClusterStamp& stamp);

}  // namespace cohort::head
