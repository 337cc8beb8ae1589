#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "head/archive/record_text.h"
#include "head/store/store.h"

namespace cohort::head {

struct InspectOptions {
  std::string state_dir;       // of a head that does not run, or a backup
  std::optional<Table> table;  // nothing: all of them
  RecordForm form = RecordForm::kText;
};

// Gives each row of the store in `state_dir` to `print`, table by table in key
// order; an error from it ends this.  Changes nothing on the disk.  Blocks.
//
// FailedPrecondition: a head runs there (it is named), or a newer cohort wrote
// the store; NotFound: there is no store; DataLoss: it is damaged.  A damaged
// row is told to `complain`, the others are shown, and DataLoss is the end.
absl::Status Inspect(const InspectOptions& options,
                     absl::FunctionRef<absl::Status(absl::string_view)> print,
                     absl::FunctionRef<void(absl::string_view)> complain);

// For people: "cluster, nodes, ...".
std::string TableNames();

// The table of that name; InvalidArgument, naming those that there are.
absl::StatusOr<Table> ParseTable(absl::string_view name);

}  // namespace cohort::head
