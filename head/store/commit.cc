#include "head/store/commit.h"

#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/mutex.h"
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

// What waits for the disk: the strand adds, a task of the store's executor
// takes all of it, appends it and tells the strand.  Thread-safe.
class Commit::Appender : public std::enable_shared_from_this<Appender> {
 public:
  using Tell = absl::AnyInvocable<void(const Appended&)>;

  // `tell` is called on `strand`, unless the commit has ended.
  Appender(Store& store, Executor& store_executor, Executor& strand,
           uint64_t term, std::weak_ptr<char> commit, Tell tell)
      : store_(store),
        store_executor_(store_executor),
        strand_(strand),
        term_(term),
        commit_(std::move(commit)),
        tell_(std::move(tell)) {}

  void Add(uint64_t number, Batch batch, std::optional<ClusterRecord> cluster) {
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      MoveAppend(std::move(batch), queued_.batch);
      if (cluster.has_value()) queued_.cluster = std::move(cluster);
      queued_.last = number;
      if (std::exchange(busy_, true)) return;
    }
    PostNext();
  }

  // From now on nothing more is given to the store.
  void Stop() {
    Group queued;  // destroyed unlocked
    MutexLock lock(mutex_);
    stopped_ = true;
    std::swap(queued, queued_);
  }

 private:
  // What is to be one batch.
  struct Group {
    Batch batch;
    // Written once a batch, as the last transition left it: nearly each one
    // moves the cluster's counters on.
    std::optional<ClusterRecord> cluster;
    uint64_t last = 0;  // 0: empty
  };

  void PostNext() {
    store_executor_.Post([self = shared_from_this()] { self->AppendNext(); });
  }

  void AppendNext() {
    Group group;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      std::swap(group, queued_);
    }
    if (group.cluster.has_value()) {
      group.batch.push_back(ToWrite(*group.cluster));
    }
    Appended appended{.status = store_.Append(term_, group.batch),
                      .last = group.last,
                      .rows = group.batch.size(),
                      .bytes = BytesOf(group.batch)};
    const bool ok = appended.status.ok();
    bool more = false;
    {
      MutexLock lock(mutex_);
      if (!ok) stopped_ = true;  // CM-3
      more = busy_ = !stopped_ && queued_.last != 0;
    }
    if (more) PostNext();
    Task task = [self = shared_from_this(), appended = std::move(appended)] {
      if (self->commit_.lock() != nullptr) self->tell_(appended);
    };
    // With the disk idle this thread has nothing better to do.  A failure may
    // end the store, for which its executor must be done with this.
    if (ok && !more) {
      strand_.Dispatch(std::move(task));
    } else {
      strand_.Post(std::move(task));
    }
  }

  Store& store_;
  Executor& store_executor_;
  Executor& strand_;
  const uint64_t term_;
  const std::weak_ptr<char> commit_;
  Tell tell_;  // the strand's

  Mutex mutex_;
  Group queued_ ABSL_GUARDED_BY(mutex_);
  // A task is posted or runs.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

Commit::Commit(Store& store, Executor& store_executor, Executor& strand,
               uint64_t term, FailureCallback on_failed)
    : strand_(strand),
      on_failed_(std::move(on_failed)),
      alive_(std::make_shared<char>()),
      appender_(std::make_shared<Appender>(
          store, store_executor, strand, term, alive_,
          [this](const Appended& appended) { OnAppended(appended); })) {}

Commit::~Commit() {
  appender_->Stop();
  PostAll(TakeEffects(last_number_),
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
  waiting_.push_back({.number = ++last_number_,
                      .bytes = BytesOf(batch),
                      .effects = std::move(effects)});
  waiting_bytes_ += waiting_.back().bytes;
  appender_->Add(last_number_, std::move(batch), std::move(cluster));
}

void Commit::AfterDurable(Effect effect) {
  if (!waiting_.empty()) {
    // The last one is the last that it could have seen.
    waiting_.back().effects.push_back(std::move(effect));
    return;
  }
  strand_.Post([effect = std::move(effect), status = failure_]() mutable {
    std::move(effect)(status);
  });
}

size_t Commit::pending_count() const { return waiting_.size(); }

size_t Commit::pending_bytes() const { return waiting_bytes_; }

bool Commit::failed() const { return !failure_.ok(); }

const Commit::Counters& Commit::counters() const { return counters_; }

void Commit::OnAppended(const Appended& appended) {
  counters_.batches += 1;
  counters_.transitions += appended.last - waiting_.front().number + 1;
  counters_.rows += appended.rows;
  counters_.bytes += appended.bytes;
  if (!appended.status.ok()) {
    Fail(appended.status);
    return;
  }
  std::vector<Effect> effects = TakeEffects(appended.last);
  // From here on nothing of the commit is touched: an effect may end it.
  for (Effect& effect : effects) std::move(effect)(absl::OkStatus());
}

std::vector<Effect> Commit::TakeEffects(uint64_t last) {
  std::vector<Effect> effects;
  while (!waiting_.empty() && waiting_.front().number <= last) {
    waiting_bytes_ -= waiting_.front().bytes;
    MoveAppend(std::move(waiting_.front().effects), effects);
    waiting_.pop_front();
  }
  return effects;
}

void Commit::Fail(const absl::Status& status) {
  const std::string cause(status.message());
  const absl::Status unknown = SetReason(
      absl::UnavailableError(absl::StrCat("outcome unknown: ", cause,
                                          "; send the same request again")),
      "outcome_unknown");
  failure_ = SetReason(
      absl::UnavailableError(absl::StrCat(
          "nothing was changed: the store failed and is being opened again: ",
          cause)),
      "read_only");
  // What was queued was never with the store, but a later attempt to read the
  // state may not tell the two apart, so all get the weaker promise.
  std::vector<Effect> effects = TakeEffects(last_number_);
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
