#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

struct CheckReport {
  std::array<int64_t, std::size(kAllTables)> rows{};  // by table
  uint64_t term = 0;
  uint64_t last_change = 0;
  bool has_mark = false;  // without it a store that lost its end looks whole
};

// Reads the whole store in `state_dir` against all of its checksums and its
// mark, and every row as a head would.  Changes nothing on the disk.  Blocks.
//
// Errors as Inspect; each damaged row is told to `complain`.
absl::StatusOr<CheckReport> Check(
    const std::string& state_dir,
    absl::FunctionRef<void(absl::string_view)> complain);

// As text in a line, and as one JSON object.
std::string ToText(const CheckReport& report);
std::string ToJson(const CheckReport& report);

// For people: "cluster, nodes, ...".
std::string TableNames();

// The table of that name; InvalidArgument, naming those that there are.
absl::StatusOr<Table> ParseTable(absl::string_view name);

}  // namespace cohort::head
