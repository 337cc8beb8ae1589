#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "head/store/store.h"

// Stored rows as a person reads them, for `cohort head inspect`.  Shows every
// field of storage.proto that is not zero, also those that records.h has no
// word for.  Stateless; thread-safe.
namespace cohort::head {

enum class RecordForm {
  kText,  // "jobs 4f1c...", then one indented line a field
  kJson,  // {"table":"jobs","key":"4f1c...","record":{...}}, one line
};

// One row, with a newline at its end.  DataLoss, naming table and key, when it
// is damaged (records_codec.h).
absl::StatusOr<std::string> RecordText(Table table, absl::string_view key,
                                       absl::string_view value,
                                       RecordForm form);

}  // namespace cohort::head
