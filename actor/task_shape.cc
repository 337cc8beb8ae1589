#include "actor/task_shape.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace cohort::actor {
namespace {

// Sent ahead; with the last one's it is within what ActorService takes.
constexpr size_t kAheadBytesMax = 8 << 20;

}  // namespace

bool SameShape(const TaskOptions& a, const TaskOptions& b) {
  return a.num_cpus == b.num_cpus && a.num_gpus == b.num_gpus &&
         a.memory == b.memory && a.accelerator_type == b.accelerator_type &&
         a.resources == b.resources && a.label_selector == b.label_selector;
}

std::string ShapeText(const TaskOptions& options) {
  std::vector<std::string> parts;
  const auto add = [&parts](absl::string_view name, Quantity quantity) {
    if (quantity > 0) {
      parts.push_back(absl::StrCat(name, ": ", quantity.units()));
    }
  };
  add("CPU", options.num_cpus);
  add("GPU", options.num_gpus);
  add("memory", options.memory);
  for (const auto& [name, quantity] : options.resources) add(name, quantity);
  for (const std::string& each : options.label_selector) parts.push_back(each);
  if (!options.accelerator_type.empty()) {
    parts.push_back(options.accelerator_type);
  }
  return parts.empty() ? "nothing" : absl::StrJoin(parts, ", ");
}

void DropEnded(TaskShape& shape) {
  if (shape.waiting.size() <= 2 * shape.waiting_live + 64) return;
  std::erase_if(shape.waiting,
                [](const TaskRef& each) { return each->done == nullptr; });
}

bool HasRoom(const ExecutorLease& lease) {
  if (lease.state != ExecutorState::kServing) return false;
  const int runs = lease.sent - std::min(lease.waiting, lease.sent);
  if (runs == 0) return true;
  const bool one_by_one = lease.shape->nests || lease.waiting > 0;
  return !one_by_one && runs < lease.sent_max &&
         lease.sent_bytes < kAheadBytesMax;
}

void NoteResult(absl::Duration now, const TaskPoolOptions& options,
                ExecutorLease& lease) {
  const double seconds = absl::ToDoubleSeconds(now - lease.busy_since);
  lease.busy_since = now;
  lease.task_seconds = lease.task_seconds == 0
                           ? seconds
                           : lease.task_seconds * 31 / 32 + seconds / 32;
  const double ahead = absl::ToDoubleSeconds(options.ahead);
  lease.sent_max =
      static_cast<int>(std::clamp(ahead / std::max(lease.task_seconds, 1e-9),
                                  1.0, static_cast<double>(options.ahead_max)));
}

}  // namespace cohort::actor
