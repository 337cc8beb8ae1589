#include "head/store/commit.h"

#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

template <typename T>
void MoveAppend(std::vector<T> from, std::vector<T>& to) {
  if (to.empty()) {
    to = std::move(from);
    return;
  }
  to.insert(to.end(), std::make_move_iterator(from.begin()),
            std::make_move_iterator(from.end()));
}

}  // namespace

Commit::Commit(Store& store, Executor& store_executor, Executor& strand,
               uint64_t term, FailureCallback on_failed)
    : store_(store),
      store_executor_(store_executor),
      strand_(strand),
      term_(term),
      on_failed_(std::move(on_failed)),
      alive_(std::make_shared<char>()) {}

Commit::~Commit() {
  std::vector<Effect> effects = std::move(running_.effects);
  MoveAppend(std::move(queued_.effects), effects);
  if (effects.empty()) return;
  PostAll(std::move(effects),
          SetReason(absl::UnavailableError(
                        "outcome unknown: the head is shutting down; send the "
                        "same request again"),
                    "outcome_unknown"));
}

void Commit::Submit(Transition transition) {
  std::optional<ClusterRecord> cluster = transition.TakeCluster();
  Batch batch = transition.TakeBatch();
  std::vector<Effect> effects = transition.TakeEffects();
  if (!failure_.ok()) {
    PostAll(std::move(effects), failure_);
    return;
  }
  if (batch.empty() && !cluster.has_value()) {
    for (Effect& effect : effects) AfterDurable(std::move(effect));
    return;
  }
  queued_.bytes += BytesOf(batch);
  queued_.transitions += 1;
  MoveAppend(std::move(batch), queued_.batch);
  if (cluster.has_value()) queued_.cluster = std::move(cluster);
  MoveAppend(std::move(effects), queued_.effects);
  if (!appending_) StartAppend();
}

void Commit::AfterDurable(Effect effect) {
  if (appending_) {
    // The last group that holds a row is the last one that it could have seen.
    Group& last = queued_.HasRows() ? queued_ : running_;
    last.effects.push_back(std::move(effect));
    return;
  }
  strand_.Post([effect = std::move(effect), status = failure_]() mutable {
    std::move(effect)(status);
  });
}

size_t Commit::pending_count() const {
  return running_.transitions + queued_.transitions;
}

size_t Commit::pending_bytes() const { return running_.bytes + queued_.bytes; }

bool Commit::failed() const { return !failure_.ok(); }

const Commit::Counters& Commit::counters() const { return counters_; }

void Commit::StartAppend() {
  appending_ = true;
  running_ = std::exchange(queued_, Group());
  if (running_.cluster.has_value()) {
    running_.batch.push_back(ToWrite(*running_.cluster));
    running_.bytes += BytesOf(running_.batch.back());
  }
  counters_.batches += 1;
  counters_.transitions += running_.transitions;
  counters_.rows += running_.batch.size();
  counters_.bytes += running_.bytes;
  store_executor_.Post([this, &store = store_, &strand = strand_, term = term_,
                        alive = std::weak_ptr<char>(alive_),
                        batch = std::move(running_.batch)]() mutable {
    absl::Status status = store.Append(term, batch);
    strand.Post(
        [this, alive = std::move(alive), status = std::move(status)]() mutable {
          if (alive.lock() != nullptr) OnAppended(status);
        });
  });
}

void Commit::OnAppended(const absl::Status& status) {
  if (!status.ok()) {
    Fail(status);
    return;
  }
  std::vector<Effect> effects = std::move(running_.effects);
  running_ = Group();
  appending_ = false;
  // The disk first: it works while the effects leave.
  if (queued_.HasRows()) StartAppend();
  // From here on nothing of the commit is touched: an effect may end it.
  for (Effect& effect : effects) std::move(effect)(absl::OkStatus());
}

void Commit::Fail(const absl::Status& status) {
  const std::string cause(status.message());
  const absl::Status unknown = SetReason(
      absl::UnavailableError(absl::StrCat("outcome unknown: ", cause,
                                          "; send the same request again")),
      "outcome_unknown");
  failure_ = SetReason(
      absl::UnavailableError(absl::StrCat(
          "nothing was changed: the store failed and is being opened anew: ",
          cause)),
      "read_only");
  std::vector<Effect> effects = std::move(running_.effects);
  // What was queued was never with the store, but a later attempt to read the
  // state may not tell the two apart, so all get the weaker promise.
  MoveAppend(std::move(queued_.effects), effects);
  running_ = Group();
  queued_ = Group();
  appending_ = false;
  // From here on nothing of the commit is touched: an effect may end it, and
  // then nobody is left to be told.
  FailureCallback on_failed = std::move(on_failed_);
  const std::weak_ptr<char> alive = alive_;
  for (Effect& effect : effects) std::move(effect)(unknown);
  if (alive.lock() != nullptr && on_failed) std::move(on_failed)(status);
}

void Commit::PostAll(std::vector<Effect> effects, absl::Status status) {
  if (effects.empty()) return;
  strand_.Post(
      [effects = std::move(effects), status = std::move(status)]() mutable {
        for (Effect& effect : effects) std::move(effect)(status);
      });
}

}  // namespace cohort::head
