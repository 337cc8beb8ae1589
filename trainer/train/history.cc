#include "trainer/train/history.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

#include "common/file.h"
#include "common/status_macros.h"

namespace cohort::train {
namespace {

using trainer::SafetensorsFile;
using trainer::TensorType;
using trainer::TensorView;

constexpr absl::string_view kColumn = "metric.";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

template <typename T>
TensorView ColumnView(std::string name, TensorType type,
                      const std::vector<T>& values) {
  return {std::move(name),
          type,
          {static_cast<int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

template <typename T>
absl::Status ReadColumn(const TensorView& view, TensorType type, size_t rows,
                        std::vector<T>& values) {
  if (view.type != type || view.bytes.size() != rows * sizeof(T)) {
    return absl::DataLossError(absl::StrCat("the history's ", view.name,
                                            " does not fit its other columns"));
  }
  values.resize(rows);
  // Of no rows both are null.
  if (rows > 0) {
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  }
  return absl::OkStatus();
}

template <typename T>
void KeepEverySecond(std::vector<T>& values) {
  size_t kept = 0;
  for (size_t i = 1; i < values.size(); i += 2) values[kept++] = values[i];
  values.resize(kept);
}

}  // namespace

void History::Add(int64_t step, int64_t epoch, const Metrics& metrics) {
  const bool is_new = steps_.empty() || steps_.back() != step;
  if (is_new && stride_ > 1 && step % stride_ != 0) return;
  if (is_new) {
    if (steps_.size() == kRowsMax) Thin();
    steps_.push_back(step);
    epochs_.push_back(epoch);
    for (auto& [name, values] : columns_) values.push_back(kNone);
  }
  for (const auto& [name, value] : metrics) {
    std::vector<double>& column = columns_[name];
    column.resize(steps_.size(), kNone);
    column.back() = value;
  }
}

void History::Thin() {
  stride_ *= 2;
  KeepEverySecond(steps_);
  KeepEverySecond(epochs_);
  for (auto& [name, values] : columns_) KeepEverySecond(values);
}

HistoryRow History::Row(size_t index) const {
  HistoryRow row{.step = steps_[index], .epoch = epochs_[index], .metrics = {}};
  for (const auto& [name, values] : columns_) {
    if (!std::isnan(values[index])) row.metrics[name] = values[index];
  }
  return row;
}

std::vector<HistoryRow> History::Rows() const {
  std::vector<HistoryRow> rows;
  rows.reserve(size());
  for (size_t i = 0; i < size(); ++i) rows.push_back(Row(i));
  return rows;
}

double History::MeanOfEpoch(int64_t epoch, const std::string& name) const {
  const auto column = columns_.find(name);
  if (column == columns_.end()) return 0;
  double sum = 0;
  double count = 0;
  for (size_t i = 0; i < size(); ++i) {
    const double value = column->second[i];
    if (epochs_[i] != epoch || std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

absl::Status History::WriteColumn(const std::string& name,
                                  const std::string& path) const {
  std::string text;
  for (size_t i = 0; i < size(); ++i) {
    const HistoryRow row = Row(i);
    const auto value = row.metrics.find(name);
    if (value == row.metrics.end()) continue;
    absl::StrAppendFormat(&text, "%d %.17g\n", row.step, value->second);
  }
  return WriteFileAtomically(path, text, 0644);
}

std::vector<TensorView> History::Tensors() const {
  std::vector<TensorView> tensors = {
      ColumnView("step", TensorType::kI64, steps_),
      ColumnView("epoch", TensorType::kI64, epochs_)};
  for (const auto& [name, values] : columns_) {
    tensors.push_back(
        ColumnView(absl::StrCat(kColumn, name), TensorType::kF64, values));
  }
  return tensors;
}

absl::Status History::Load(const SafetensorsFile& file) {
  COHORT_ASSIGN_OR_RETURN(const TensorView steps, file.Find("step"));
  const size_t rows = steps.bytes.size() / sizeof(int64_t);
  History read;
  for (const TensorView& view : file.tensors()) {
    absl::string_view name = view.name;
    if (name == "step" || name == "epoch") {
      COHORT_RETURN_IF_ERROR(
          ReadColumn(view, TensorType::kI64, rows,
                     name == "step" ? read.steps_ : read.epochs_));
    } else if (absl::ConsumePrefix(&name, kColumn)) {
      COHORT_RETURN_IF_ERROR(ReadColumn(view, TensorType::kF64, rows,
                                        read.columns_[std::string(name)]));
    }
  }
  if (rows > kRowsMax || read.epochs_.size() != rows) {
    return absl::DataLossError("the history's columns do not fit each other");
  }
  // A run is thinned only when it is full, by halves.
  if (rows > 1)
    read.stride_ = std::max<int64_t>(1, read.steps_[1] - read.steps_[0]);
  *this = std::move(read);
  return absl::OkStatus();
}

std::string History::ToJsonLine(const HistoryRow& row) {
  nlohmann::ordered_json line = {{"step", row.step}, {"epoch", row.epoch}};
  for (const auto& [name, value] : row.metrics) line[name] = value;
  return line.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace cohort::train
