#include "head/state/metrics_table.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "nlohmann/json.hpp"

namespace cohort::head {
namespace {

using Curves = v1::MetricsHistory;
using CurvePoint = Curves::Point;

constexpr char kStepName[] = "step";
// Beyond it not every whole number is a double.
constexpr double kStepMax = 9e15;

// The index of a name, which is added where there is room.
std::optional<uint32_t> NameIndex(const std::string& name, Curves& history) {
  const auto found =
      std::find(history.names().begin(), history.names().end(), name);
  const auto index = static_cast<size_t>(found - history.names().begin());
  if (found == history.names().end()) {
    if (index == MetricsTable::kNamesMax) return std::nullopt;
    history.add_names(name);
  }
  return static_cast<uint32_t>(index);
}

void SetValue(uint32_t name, double value, CurvePoint& point) {
  const auto found =
      std::find(point.names().begin(), point.names().end(), name);
  if (found != point.names().end()) {
    point.set_values(static_cast<int>(found - point.names().begin()), value);
    return;
  }
  point.add_names(name);
  point.add_values(value);
}

// Whether a newer point takes the place of the last one.
bool IsProvisional(const Curves& history) {
  const int size = history.points_size();
  return size >= 2 &&
         history.points(size - 1).step() - history.points(size - 2).step() <
             history.gap();
}

// Drops every second point, the last one never.
void ThinOut(Curves& history) {
  auto& points = *history.mutable_points();
  const int size = points.size();
  int kept = 0;
  for (int i = (size - 1) % 2; i < size; i += 2) {
    points.SwapElements(kept++, i);
  }
  points.DeleteSubrange(kept, size - kept);
  if (kept < 2) return;
  const int64_t span = points.Get(kept - 1).step() - points.Get(0).step();
  history.set_gap(span / (kept - 1));
}

// Steps are values, too.
size_t ValuesOf(const Curves& history) {
  size_t values = 0;
  for (const CurvePoint& point : history.points()) {
    values += static_cast<size_t>(point.values_size()) + 1;
  }
  return values;
}

}  // namespace

void MetricsTable::Load(MetricsRecord record) {
  entries_[IdOf<JobId>(record.job_id())].row = std::move(record);
}

void MetricsTable::Note(const JobId& job, absl::string_view json) {
  const auto report = nlohmann::json::parse(json, nullptr, false);
  if (!report.is_object()) return;
  std::optional<int64_t> step;
  Numbers numbers;
  for (const auto& [name, value] : report.items()) {
    if (!value.is_number() || name.size() > kNameBytesMax) continue;
    const double number = value.get<double>();
    if (name == kStepName && std::abs(number) < kStepMax) {
      step = static_cast<int64_t>(number);
    }
    if (numbers.size() < kNamesMax) numbers.emplace_back(name, number);
  }
  if (step.has_value()) {
    Entry& entry = entries_[job];
    entry.row.set_job_id(IdBytes(job));
    AddPoint(entry, *step, numbers);
  }
  latest_[job] = std::move(numbers);
}

void MetricsTable::AddPoint(Entry& entry, int64_t step,
                            const Numbers& numbers) {
  Curves& history = *entry.row.mutable_history();
  auto& points = *history.mutable_points();
  while (!points.empty() && points.rbegin()->step() > step) {
    points.RemoveLast();  // MT-2
  }
  const bool is_same = !points.empty() && points.rbegin()->step() == step;
  CurvePoint& point =
      is_same || IsProvisional(history) ? *points.rbegin() : *points.Add();
  point.set_step(step);
  for (const auto& [name, value] : numbers) {
    if (name == kStepName) continue;
    const std::optional<uint32_t> index = NameIndex(name, history);
    if (index.has_value()) SetValue(*index, value, point);
  }
  ++entry.unstored;
  if (ValuesOf(history) > kValuesMax) ThinOut(history);
}

const MetricsRecord* MetricsTable::Take(Entry& entry) {
  entry.unstored = 0;
  return &entry.row;
}

const MetricsRecord* MetricsTable::TakeDue(const JobId& job) {
  const auto found = entries_.find(job);
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  const auto size = static_cast<size_t>(entry.row.history().points_size());
  constexpr size_t kPart = 8;
  return entry.unstored > 0 && entry.unstored * kPart >= size ? Take(entry)
                                                              : nullptr;
}

const MetricsRecord* MetricsTable::TakeLast(const JobId& job) {
  latest_.erase(job);
  const auto found = entries_.find(job);
  return found == entries_.end() || found->second.unstored == 0
             ? nullptr
             : Take(found->second);
}

bool MetricsTable::Remove(const JobId& job) {
  latest_.erase(job);
  return entries_.erase(job) > 0;
}

const MetricsRecord* MetricsTable::Find(const JobId& job) const {
  const auto found = entries_.find(job);
  return found == entries_.end() ? nullptr : &found->second.row;
}

}  // namespace cohort::head
