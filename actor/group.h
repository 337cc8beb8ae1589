#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/call_target.h"
#include "actor/future.h"
#include "actor/grid.h"
#include "actor/group_target.h"
#include "actor/handle.h"
#include "actor/method.h"
#include "actor/method_traits.h"
#include "actor/reducer.h"
#include "common/job_id.h"

namespace cohort {
namespace actor {

// What the future of a call to all of a slice is of.
template <typename R>
struct GatheredOf {
  using Type = std::vector<R>;
};
template <>
struct GatheredOf<void> {
  using Type = void;
};
template <typename R>
using Gathered = typename GatheredOf<R>::Type;

// The values of a slice's ranks, of its bytes.
template <typename R>
FutureResult<Gathered<R>> GatherValues(absl::StatusOr<std::string> bytes) {
  if (!bytes.ok()) return std::move(bytes).status();
  if constexpr (std::is_void_v<R>) {
    return absl::OkStatus();
  } else {
    const auto parts = DecodeValue<std::vector<std::string>>(*bytes);
    if (!parts.ok()) return BadResult();
    std::vector<R> values;
    values.reserve(parts->size());
    for (const std::string& part : *parts) {
      absl::StatusOr<R> value = DecodeValue<R>(part);
      if (!value.ok()) return BadResult();
      values.push_back(*std::move(value));
    }
    return values;
  }
}

// As CallTyped, for a target that is a slice.
template <typename R>
Future<Gathered<R>> CallGathered(const std::shared_ptr<CallTarget>& target,
                                 const char* method,
                                 absl::StatusOr<std::string> arguments) {
  if (!arguments.ok()) return std::move(arguments).status();
  Promise<Gathered<R>> promise;
  Future<Gathered<R>> future = promise.future();
  const uint64_t call = target->Call(
      method, *std::move(arguments),
      [promise =
           std::move(promise)](absl::StatusOr<std::string> bytes) mutable {
        std::move(promise).Complete(GatherValues<R>(std::move(bytes)));
      });
  FutureAccess::State(future)->CancelsCall(target, call);
  return future;
}

}  // namespace actor

// A group of actors of class T that are created, placed and restarted together,
// or a slice of it: ranks in named dimensions.  Copies are handles of the same
// group.  A value; thread-safe as long as nobody assigns to it.
//
//   auto group = runtime.CreateGroup<Worker>(
//       {.num_cpus = 1}, {{"hosts", 2}, {"gpus", 4}}, arguments...);
//   cohort::Future<std::vector<double>> losses =
//   group.Call<&Worker::Loss>(batch); cohort::Future<double> sum =
//   group.Reduce<&Worker::Loss, cohort::Sum>(batch); group.Slice("hosts",
//   0).Slice("gpus", 1, 3).Call<&Worker::Reset>();
//
// A call to it is as calls to each of its ranks, made at once: those of one
// thread to one rank begin in their order, by whichever slice or handle they
// are made.  An error is that of the first rank that failed, and begins with
// "rank N: ", N counted in the whole group; the others run to their ends.
template <typename T>
class Group {
 public:
  // Names no group: calls end as FAILED_PRECONDITION.
  Group() : error_(actor::NoActor()) {}
  Group(std::shared_ptr<actor::GroupTarget> target, const JobId& id,
        actor::Grid grid)
      : target_(std::move(target)),
        id_(id),
        grid_(std::move(grid)),
        ranks_(grid_.Ranks()) {}
  // Calls end with `why`.
  explicit Group(absl::Status why) : error_(std::move(why)) {}

  // A group is a job: its id.
  const JobId& id() const { return id_; }
  // Ranks of this slice, and which of the group they are, ascending.
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }
  bool is_whole() const { return size() == grid_.size(); }
  // Of the whole group.
  const std::vector<Dimension>& dimensions() const {
    return grid_.dimensions();
  }

  // Of this slice the ranks with begin <= place < end in that dimension, places
  // counted in this slice.  Calls of one that cannot be end as
  // INVALID_ARGUMENT, which says what can.
  Group Slice(absl::string_view dimension, int begin, int end) const {
    if (target_ == nullptr) return *this;
    absl::StatusOr<actor::Grid> grid = grid_.Slice(dimension, begin, end);
    if (!grid.ok()) return Group(grid.status());
    return Group(target_, id_, *std::move(grid));
  }
  Group Slice(absl::string_view dimension, int place) const {
    return Slice(dimension, place, place + 1);
  }

  // One of this slice's ranks, the first being 0.  Names no actor when there is
  // no such rank.
  Handle<T> at(int index) const {
    if (index < 0 || index >= size()) return Handle<T>();
    return Handle<T>(target_->Rank(ranks_[static_cast<size_t>(index)]), id_);
  }

  // Calls method M of each rank, with the same arguments: as Handle::Call, and
  // the future is of the results in the order of ranks, or void.
  template <auto M, typename... Args>
  Future<actor::Gathered<actor::MethodResult<M>>> Call(Args&&... args) const {
    using R = actor::MethodResult<M>;
    if constexpr (actor::CheckCall<T, M, Args&&...>()) {
      if (target_ == nullptr) return error_;
      return actor::CallGathered<R>(target_->Slice(ranks_, ""), Name<M>(),
                                    Encode<M>(std::forward<Args>(args)...));
    } else {
      return Future<actor::Gathered<R>>();
    }
  }

  // As Call, and the future is of what Reducer makes of the results:
  // cohort::Sum, Min, Max, Concatenate, or one of your own (actor/reducer.h).
  template <auto M, typename Reducer, typename... Args>
  Future<actor::MethodResult<M>> Reduce(Args&&... args) const {
    using R = actor::MethodResult<M>;
    if constexpr (actor::CheckCall<T, M, Args&&...>()) {
      if constexpr (actor::CheckReducer<Reducer, R>()) {
        using Auto = actor::AutoReducer<Reducer, R>;
        (void)&Auto::kRegistered;
        if (target_ == nullptr) return error_;
        return actor::CallTyped<R>(target_->Slice(ranks_, Auto::Name()),
                                   Name<M>(),
                                   Encode<M>(std::forward<Args>(args)...));
      }
    }
    return Future<R>();
  }

  // As Call, but a future of each rank, in their order: what becomes of one is
  // nothing to the others.
  template <auto M, typename... Args>
  std::vector<Future<actor::MethodResult<M>>> CallEach(Args&&... args) const {
    using R = actor::MethodResult<M>;
    std::vector<Future<R>> futures;
    if constexpr (actor::CheckCall<T, M, Args&&...>()) {
      const absl::StatusOr<std::string> arguments =
          Encode<M>(std::forward<Args>(args)...);
      for (const int rank : ranks_) {
        futures.push_back(
            actor::CallTyped<R>(target_->Rank(rank), Name<M>(), arguments));
      }
      if (target_ == nullptr) futures.push_back(error_);
    }
    return futures;
  }

 private:
  template <auto M>
  static const char* Name() {
    using Method = actor::AutoMethod<T, M>;
    (void)&Method::kRegistered;
    return Method::Name();
  }
  template <auto M, typename... Args>
  static absl::StatusOr<std::string> Encode(Args&&... args) {
    using Parameters = typename actor::TraitsOf<M>::Parameters;
    return actor::EncodeArguments(Parameters(), std::forward<Args>(args)...);
  }

  // Shared: with other handles, and with the futures of calls under way.
  std::shared_ptr<actor::GroupTarget> target_;  // null: error_ says why
  absl::Status error_;
  JobId id_;
  actor::Grid grid_;
  std::vector<int> ranks_;
};

}  // namespace cohort
