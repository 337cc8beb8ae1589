#include "rpc/admission.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

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

// AD-2.
constexpr size_t kPlacesAFreeOne = 3;

using Counts = absl::flat_hash_map<std::string, size_t>;  // none is 0

size_t CountOf(const Counts& counts, absl::string_view name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

void CountDown(Counts& counts, absl::string_view name) {
  const auto found = counts.find(name);
  if (--found->second == 0) counts.erase(found);
}

absl::Status Busy(Load load, size_t taken, size_t limit, size_t held,
                  absl::string_view whose) {
  return SetReason(absl::ResourceExhaustedError(absl::StrCat(
                       "the server has ", taken, " of ", limit, " ",
                       NameOf(load), " in work, ", held, " of them ", whose,
                       ", which is all that one may have: try again later")),
                   "busy");
}

}  // namespace

struct Admission::Shared {
  struct Kind {
    size_t limit = 0;
    size_t taken = 0;
    Counts by_caller;
    Counts by_principal;
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

absl::StatusOr<Admission::Place> Admission::Enter(Load load, std::string caller,
                                                  size_t principal_bytes) {
  MutexLock lock(shared_->mutex);
  Shared::Kind& kind = shared_->kinds[IndexOf(load)];
  const size_t free = kind.limit - kind.taken;
  const size_t held = CountOf(kind.by_caller, caller);
  if (held >= free) {
    return Busy(load, kind.taken, kind.limit, held, "from this connection");
  }
  if (principal_bytes > 0) {
    const absl::string_view principal =
        absl::string_view(caller).substr(0, principal_bytes);
    const size_t all = CountOf(kind.by_principal, principal);
    if (all >= kPlacesAFreeOne * free) {
      return Busy(load, kind.taken, kind.limit, all,
                  absl::StrCat("of ", principal));
    }
    ++kind.by_principal[principal];
  }
  ++kind.taken;
  ++kind.by_caller[caller];
  return Place(shared_, load, std::move(caller), principal_bytes);
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
  CountDown(kind.by_caller, caller_);
  if (principal_bytes_ == 0) return;
  CountDown(kind.by_principal,
            absl::string_view(caller_).substr(0, principal_bytes_));
}

}  // namespace cohort::rpc
