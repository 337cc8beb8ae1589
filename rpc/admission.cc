#include "rpc/admission.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::rpc {
namespace {

constexpr size_t kLoads = 5;

size_t IndexOf(Load load) { return static_cast<size_t>(load); }

const char* NameOf(Load load) {
  switch (load) {
    case Load::kBrief:
      return "calls";
    case Load::kBulk:
      return "transfers";
    case Load::kWaiting:
      return "waiting calls";
    case Load::kNode:
      return "node streams";
    case Load::kNodeLog:
      return "logs of nodes";
  }
  return "calls";
}

}  // namespace

struct Admission::Shared {
  struct Kind {
    size_t limit = 0;
    size_t taken = 0;
    absl::flat_hash_map<std::string, size_t> by_caller;  // none is 0
  };

  mutable Mutex mutex;
  std::array<Kind, kLoads> kinds ABSL_GUARDED_BY(mutex);
};

Admission::Admission(Limits limits) : shared_(std::make_shared<Shared>()) {
  MutexLock lock(shared_->mutex);
  shared_->kinds[IndexOf(Load::kBrief)].limit = limits.brief;
  shared_->kinds[IndexOf(Load::kBulk)].limit = limits.bulk;
  shared_->kinds[IndexOf(Load::kWaiting)].limit = limits.waiting;
  shared_->kinds[IndexOf(Load::kNode)].limit = limits.node;
  shared_->kinds[IndexOf(Load::kNodeLog)].limit = limits.node_log;
}

absl::StatusOr<Admission::Place> Admission::Enter(Load load,
                                                  std::string caller) {
  MutexLock lock(shared_->mutex);
  Shared::Kind& kind = shared_->kinds[IndexOf(load)];
  const auto mine = kind.by_caller.find(caller);
  const size_t held = mine == kind.by_caller.end() ? 0 : mine->second;
  if (held >= kind.limit - kind.taken) {
    return SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "the server has ", kind.taken, " of ", kind.limit, " ",
            NameOf(load), " in work, ", held,
            " of them from this connection, which is all that one may have: "
            "try again later")),
        "busy");
  }
  ++kind.taken;
  ++kind.by_caller[caller];
  return Place(shared_, load, std::move(caller));
}

size_t Admission::taken() const {
  MutexLock lock(shared_->mutex);
  size_t taken = 0;
  for (const Shared::Kind& kind : shared_->kinds) taken += kind.taken;
  return taken;
}

void Admission::Place::GiveBack() {
  if (shared_ == nullptr) return;
  MutexLock lock(shared_->mutex);
  Shared::Kind& kind = shared_->kinds[IndexOf(load_)];
  --kind.taken;
  const auto mine = kind.by_caller.find(caller_);
  if (--mine->second == 0) kind.by_caller.erase(mine);
}

}  // namespace cohort::rpc
