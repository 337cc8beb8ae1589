#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/safetensors.h"
#include "trainer/train/metrics.h"

namespace cohort::train {

// What a step's metrics were.
struct HistoryRow {
  int64_t step = 0;
  int64_t epoch = 0;  // from 1
  Metrics metrics;
};

// The metrics of a run, step by step, also of the attempts before this one.
//
// Beyond kRowsMax every second row is dropped, and from then on every second
// one is kept: what is there is spread evenly over the run.  A value;
// thread-compatible.
class History {
 public:
  static constexpr size_t kRowsMax = 200'000;

  // Adds to the row of that step, which is the last one or behind it.
  void Add(int64_t step, int64_t epoch, const Metrics& metrics);

  size_t size() const { return steps_.size(); }
  HistoryRow Row(size_t index) const;
  std::vector<HistoryRow> Rows() const;

  // Over the rows of that epoch that have it; 0 of none.
  double MeanOfEpoch(int64_t epoch, const std::string& name) const;
  // Writes "12 0.25", all digits, for each row that has it.  Errors name the
  // path.
  absl::Status WriteColumn(const std::string& name,
                           const std::string& path) const;

  // The rows as a checkpoint's file: "step", "epoch" and a tensor a metric, NaN
  // where a row has none.  Valid until the next Add or Load.
  std::vector<trainer::TensorView> Tensors() const;
  // DataLoss when the file is not a history; unchanged then.
  absl::Status Load(const trainer::SafetensorsFile& file);

  // {"step":1,"epoch":1,"loss":0.25}, all digits, and a newline.
  static std::string ToJsonLine(const HistoryRow& row);

 private:
  void Thin();

  std::vector<int64_t> steps_;
  std::vector<int64_t> epochs_;
  std::map<std::string, std::vector<double>> columns_;  // as long as steps_
  int64_t stride_ = 1;  // steps between rows that are kept
};

}  // namespace cohort::train
