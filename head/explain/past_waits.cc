#include "head/explain/past_waits.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/state/dependencies.h"
#include "head/state/job_phases.h"
#include "head/state/job_spec.h"
#include "head/state/job_table.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

// A reason is noted so long after what it tells of, or a little longer.
constexpr absl::Duration kNotingTakes = absl::Seconds(10);

// Of a phase in which it waited for something but room; else null.
const char* PastText(WaitKind kind) {
  switch (kind) {
    case v1::WAIT_KIND_HELD:
      return "held";
    case v1::WAIT_KIND_ARRAY:
      return "its array ran as many elements as it may";
    case v1::WAIT_KIND_BACK_OFF:
      return "its next attempt was not due yet";
    case v1::WAIT_KIND_START_TIME:
      return "it was not to start yet";
    case v1::WAIT_KIND_SECRETS:
      return "the head could not read its secrets";
    case v1::WAIT_KIND_ORPHAN:
      return "an attempt from before the restore might still run";
    default:
      return nullptr;
  }
}

// When a job, or all of an array, had ended: InfiniteFuture when it has not,
// nothing when it is not remembered.
std::optional<absl::Time> EndOf(const JobTable& jobs, const JobId& id) {
  const std::optional<JobState> state = StateOf(jobs, id);
  if (!state.has_value()) return std::nullopt;
  if (!HasEnded(*state)) return absl::InfiniteFuture();
  const JobRecord* const job = jobs.Find(id);
  return job != nullptr ? job->ended_at() : jobs.arrays().Find(id)->ended_at;
}

class Waits {
 public:
  Waits(const ClusterState& state, const WaitHistory& history,
        const JobRecord& job)
      : state_(state), history_(history), job_(job), spans_(PhaseSpans(job)) {}

  std::vector<v1::WaitReason> Find() && {
    const absl::Time others_end = AddDependencies();
    for (const PhaseSpan& span : spans_) AddSpan(span, others_end);
    std::stable_sort(waits_.begin(), waits_.end(),
                     [](const v1::WaitReason& a, const v1::WaitReason& b) {
                       return a.since_us() < b.since_us();
                     });
    return std::move(waits_);
  }

 private:
  void Add(v1::Blocker blocker, absl::Time since, absl::Time until) {
    if (since >= until) return;
    v1::WaitReason& wait = waits_.emplace_back();
    wait.set_since_us(absl::ToUnixMicros(since));
    if (until != absl::InfiniteFuture()) {
      wait.set_until_us(absl::ToUnixMicros(until));
    }
    *wait.mutable_blocker() = std::move(blocker);
  }
  void Add(WaitKind kind, std::string text, absl::Time since,
           absl::Time until) {
    v1::Blocker blocker;
    blocker.set_kind(LowerEnumText(kind));
    blocker.set_text(std::move(text));
    Add(std::move(blocker), since, until);
  }

  // By then it had begun, or ended without.
  absl::Time FirstAttemptOrEnd() const {
    for (const PhaseSpan& span : spans_) {
      if (span.kind == v1::WAIT_KIND_NOTHING) return span.since;
    }
    return spans_.empty() ? job_.submitted_at() : spans_.back().until;
  }

  // Gives when the last of those that are remembered had ended.
  absl::Time AddDependencies() {
    const absl::Time latest = FirstAttemptOrEnd();
    absl::Time last = absl::InfinitePast();
    for (const Dependency& each : job_.spec->after()) {
      const std::optional<absl::Time> end = EndOf(state_.jobs(), JobOf(each));
      const bool ok = each.kind() == v1::DEPENDENCY_KIND_OK;
      std::string text = absl::StrCat("job ", JobOf(each).ToText(), " had to ",
                                      ok ? "succeed" : "end", " first");
      if (!end.has_value()) {
        absl::StrAppend(&text, "; when it did is not remembered any more");
      }
      Add(v1::WAIT_KIND_AFTER, std::move(text), job_.submitted_at(),
          std::min(end.value_or(latest), latest));
      last = std::max(last, end.value_or(absl::InfinitePast()));
    }
    return last;
  }

  void AddSpan(const PhaseSpan& span, absl::Time others_end) {
    const absl::Time since = std::max(span.since, others_end);
    if (!span.kind.has_value()) {
      return Add(v1::WAIT_KIND_UNKNOWN,
                 "what it waited for, if for anything, is not remembered: of "
                 "each job its last changes are",
                 span.since, span.until);
    }
    if (*span.kind == v1::WAIT_KIND_RESOURCES)
      return AddLine(since, span.until);
    const char* const text = PastText(*span.kind);
    if (text == nullptr) return;
    const bool with_others =
        *span.kind == v1::WAIT_KIND_HELD || *span.kind == v1::WAIT_KIND_ORPHAN;
    Add(*span.kind, text, with_others ? span.since : since, span.until);
  }

  void AddLine(absl::Time since, absl::Time until) {
    if (since >= until) return;
    absl::Time known = since;
    for (const v1::WaitReason* const reason :
         history_.Between(ShapeKeyOf(RequestOf(job_)), since, until)) {
      const absl::Time begin =
          std::max(absl::FromUnixMicros(reason->since_us()), since);
      const absl::Time end =
          reason->until_us() == 0
              ? until
              : std::min(absl::FromUnixMicros(reason->until_us()), until);
      if (begin >= end) continue;
      AddUnknownRoom(known, begin);
      Add(reason->blocker(), begin, end);
      known = end;
    }
    AddUnknownRoom(known, until);
  }

  // Of what is still to be noted nothing is missing.
  void AddUnknownRoom(absl::Time since, absl::Time until) {
    if (until == absl::InfiniteFuture() || until - since < kNotingTakes) return;
    Add(v1::WAIT_KIND_RESOURCES,
        "it stood in line; why there was no room is not remembered", since,
        until);
  }

  const ClusterState& state_;
  const WaitHistory& history_;
  const JobRecord& job_;
  const std::vector<PhaseSpan> spans_;
  std::vector<v1::WaitReason> waits_;
};

}  // namespace

std::vector<v1::WaitReason> PastWaits(const ClusterState& state,
                                      const WaitHistory& history,
                                      const JobRecord& job,
                                      std::optional<absl::Time> at) {
  std::vector<v1::WaitReason> waits = Waits(state, history, job).Find();
  if (!at.has_value()) return waits;
  std::erase_if(waits, [at_us = absl::ToUnixMicros(*at)](const auto& wait) {
    return at_us < wait.since_us() ||
           (wait.until_us() != 0 && wait.until_us() <= at_us);
  });
  return waits;
}

}  // namespace cohort::head
