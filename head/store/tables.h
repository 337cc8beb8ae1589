#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/string_view.h"

#include "cohort/v1/storage.pb.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/store/records.h"
#include "head/store/store.h"

// Which records are the rows of which table.
//
// A new table costs its name (store.h), its line below, its message with the
// two conversions (records_proto.h) or none, and the owner of its records.
namespace cohort::head {

// Keys are raw ids; numbers are 8 bytes big-endian, so that key order is number
// order; of two texts the first has its length before it.  Of the one row of
// the cluster there is nothing to tell.
std::string RowKey();
template <typename Tag>
std::string RowKey(const StrongId<Tag>& id) {
  return std::string(id.bytes());
}
std::string RowKey(const JobId& id);
std::string RowKey(const std::string& hash);
std::string RowKey(uint64_t number);
std::string RowKey(const std::string& first, const std::string& second);
template <typename Tag>
std::string RowKey(const StrongId<Tag>& id, uint64_t number) {
  return RowKey(id) + RowKey(number);
}

// And back; 0 for what is not such a key.
uint64_t RowNumber(absl::string_view key);

template <typename Member>
struct MemberOf;
template <typename Record, typename Member>
struct MemberOf<Member Record::*> {
  using Type = Member;
};
template <typename Record, typename Member>
struct MemberOf<Member (Record::*)() const> {
  using Type = std::decay_t<Member>;
};

// `kKey`: the members that make its key.  A record that is a message is stored
// as it is.
template <Table kNumber, typename RecordType, typename Message, auto... kKey>
struct Row {
  using Record = RecordType;
  using Proto = Message;
  using Key = std::tuple<typename MemberOf<decltype(kKey)>::Type...>;
  static constexpr Table kTable = kNumber;

  static std::string KeyOf(const Record& record) {
    return RowKey(std::invoke(kKey, record)...);
  }
};

template <typename... Rows>
struct RowList : Rows... {
  // Gives fn(row) of the table's row.
  template <typename Result, typename Fn>
  static Result Visit(Table table, Fn fn) {
    Result result{};
    (void)((Rows::kTable == table && (result = fn(Rows()), true)) || ...);
    return result;
  }
};

// One line a table.
using TableRows = RowList<
    Row<Table::kCluster, ClusterRecord, ClusterRecord>,
    Row<Table::kNodes, NodeRecord, storage::v1::NodeRow, &NodeRecord::id>,
    Row<Table::kJobs, JobRecord, storage::v1::JobRow, &JobRecord::id>,
    Row<Table::kAttempts, AttemptRecord, storage::v1::AttemptRow,
        &AttemptRecord::id>,
    Row<Table::kRequests, RequestRecord, RequestRecord,
        &RequestRecord::principal, &RequestRecord::request_id>,
    Row<Table::kPackages, PackageRecord, PackageRecord, &PackageRecord::hash>,
    Row<Table::kEvents, EventRecord, EventRecord, &EventRecord::number>,
    Row<Table::kArrays, ArrayRecord, storage::v1::ArrayRow, &ArrayRecord::id>,
    Row<Table::kWaitReasons, WaitReasonRecord, WaitReasonRecord,
        &WaitReasonRecord::number>,
    Row<Table::kSpecs, SpecRecord, storage::v1::SpecRow, &SpecRecord::id>,
    Row<Table::kProcesses, ProcessRecord, storage::v1::ProcessRow,
        &ProcessRecord::attempt, &ProcessRecord::slot>,
    Row<Table::kDrivers, DriverRecord, DriverRecord, &DriverRecord::driver_id>,
    Row<Table::kClusterFile, ClusterFile, ClusterFile>,
    Row<Table::kInstances, InstanceRecord, InstanceRecord,
        &InstanceRecord::instance_id>,
    Row<Table::kCapacity, CapacityRecord, CapacityRecord,
        &CapacityRecord::owner, &CapacityRecord::name>,
    Row<Table::kTokens, TokenRecord, TokenRecord, &TokenRecord::token_id>,
    Row<Table::kMetrics, MetricsRecord, MetricsRecord, &MetricsRecord::job_id>,
    Row<Table::kAudit, AuditRecord, AuditRecord, &AuditRecord::number>>;

template <typename Record, Table kNumber, typename Message, auto... kKey>
Row<kNumber, Record, Message, kKey...> FindRow(
    const Row<kNumber, Record, Message, kKey...>&);

// The row that stores such records.
template <typename Record>
using RowOf = decltype(FindRow<Record>(std::declval<TableRows>()));

}  // namespace cohort::head
