#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "head/store/records.h"
#include "head/store/store.h"

// Records to stored bytes and back.  Stateless; thread-safe.
//
// A value is 4 bytes CRC-32C (big-endian, over key and row) followed by the
// row, a message of storage.proto; equal rows are equal bytes.  Text may be any
// bytes.  Keys are
// raw ids; numbers are 8 bytes big-endian, so that key order is number order.
// Times keep their microseconds, InfinitePast is kept as it is.
namespace cohort::head {

// The row of the one cluster record.
std::string ClusterKey();
std::string NodeKey(const NodeId& node);
std::string JobKey(const JobId& job);
std::string AttemptKey(const AttemptId& attempt);
std::string ArrayKey(const JobId& array);
// Length-prefixed principal, then the request id.
std::string RequestRowKey(absl::string_view principal,
                          absl::string_view request_id);
std::string PackageKey(absl::string_view hash);
std::string EventKey(uint64_t number);
// And back; 0 for what is no such key.
uint64_t EventNumber(absl::string_view key);
std::string WaitReasonKey(uint64_t number);

// The write that stores a record under its key.
Write ToWrite(const ClusterRecord& record);
Write ToWrite(const NodeRecord& record);
Write ToWrite(const JobRecord& record);
Write ToWrite(const AttemptRecord& record);
Write ToWrite(const ArrayRecord& record);
Write ToWrite(const RequestRecord& record);
Write ToWrite(const PackageRecord& record);
Write ToWrite(const EventRecord& record);
Write ToWrite(const WaitReasonRecord& record);

// How many bytes a record has as it is stored: key and value.
template <typename Record>
size_t StoredBytes(const Record& record) {
  const Write write = ToWrite(record);
  return write.key.size() + write.value->size();
}

// The record of a stored row.  Defined for each record type of records.h.
// DataLoss, naming table and key, when the checksum, the encoding, the key or a
// value is wrong; FailedPrecondition for a cluster row of a newer schema.
template <typename Record>
absl::StatusOr<Record> FromRow(absl::string_view key, absl::string_view value);

// The message of a stored row, once it is what was written; valid as long as
// `value`.  DataLoss, naming table and key.  For migration.h.
absl::StatusOr<absl::string_view> UnsealRow(Table table, absl::string_view key,
                                            absl::string_view value);
// And back.
std::string SealRow(absl::string_view key, absl::string_view message);

// All records of `store`, in key order; the first error of the store or a row.
template <typename Record>
absl::StatusOr<std::vector<Record>> LoadRecords(Store& store);

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
