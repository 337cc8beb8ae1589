#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

#include "cohort/v1/storage.pb.h"
#include "head/store/records.h"

// Records to the messages of storage.proto and back.  Stateless; thread-safe.
namespace cohort::head {

// Reads the fields of one message, which may hold nonsense, and remembers the
// first that does.
class FieldReader {
 public:
  // Nil is stored as no bytes.
  template <typename Id>
  Id ToId(const std::string& bytes, const char* field) {
    if (bytes.empty()) return Id();
    absl::StatusOr<Id> id = Id::FromBytes(bytes);
    if (!id.ok()) {
      Blame(field);
      return Id();
    }
    return *id;
  }

  // Enums of records.h are contiguous.
  template <typename Enum>
  Enum ToEnum(uint32_t number, Enum first, Enum last, const char* field) {
    if (number < static_cast<uint32_t>(first) ||
        number > static_cast<uint32_t>(last)) {
      Blame(field);
      return first;
    }
    return static_cast<Enum>(number);
  }

  void Check(bool makes_sense, const char* field) {
    if (!makes_sense) Blame(field);
  }

  const std::string& wrong() const { return wrong_; }

 private:
  void Blame(const char* field) {
    if (wrong_.empty()) wrong_ = absl::StrCat("its ", field, " makes no sense");
  }

  std::string wrong_;
};

// Onto an empty row.  A record with a member `row` is stored as that.
void ToProto(const NodeRecord& record, storage::v1::NodeRow& row);
void ToProto(const AttemptRecord& record, storage::v1::AttemptRow& row);
void ToProto(const ProcessRecord& record, storage::v1::ProcessRow& row);
// REQUIRES: the row is an arena's and does not outlive the record.
void ToProto(const SpecRecord& record, storage::v1::SpecRow& row);

// And back.  What makes no sense is told to `reader`, and the record is then
// not to be used; that the row is under its key is for the caller to check.
NodeRecord FromProto(const storage::v1::NodeRow& row, FieldReader& reader);
JobRecord FromProto(storage::v1::JobRow row, FieldReader& reader);
ProcessRecord FromProto(const storage::v1::ProcessRow& row,
                        FieldReader& reader);
AttemptRecord FromProto(const storage::v1::AttemptRow& row,
                        FieldReader& reader);
ArrayRecord FromProto(storage::v1::ArrayRow row, FieldReader& reader);
SpecRecord FromProto(storage::v1::SpecRow row, FieldReader& reader);

// Of records that are messages: what code takes for granted of one.
void CheckRow(const ClusterRecord& cluster, FieldReader& reader);
void CheckRow(const EventRecord& event, FieldReader& reader);
void CheckRow(const WaitReasonRecord& row, FieldReader& reader);
void CheckRow(const DriverRecord& driver, FieldReader& reader);
void CheckRow(const InstanceRecord& instance, FieldReader& reader);
void CheckRow(const MetricsRecord& row, FieldReader& reader);
inline void CheckRow(const ClusterFile&, FieldReader&) {}
inline void CheckRow(const CapacityRecord&, FieldReader&) {}
inline void CheckRow(const TokenRecord&, FieldReader&) {}
inline void CheckRow(const AuditRecord&, FieldReader&) {}
inline void CheckRow(const RequestRecord&, FieldReader&) {}
inline void CheckRow(const PackageRecord&, FieldReader&) {}

}  // namespace cohort::head
