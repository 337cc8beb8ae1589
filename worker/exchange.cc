#include "worker/exchange.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// A tag is a name, a blob is an address: 64 tags of 64 KiB are far more than
// any communicator asks for.
constexpr int kTagsPerRankMax = 64;

}  // namespace

absl::StatusOr<bool> Exchange::Give(int rank, const std::string& tag,
                                    const std::string& blob,
                                    v1::ObservedPlace& observed) {
  int given = 0;
  size_t bytes = tag.size() + blob.size();
  for (const v1::PendingExchange& old : observed.exchanges()) {
    bytes += old.tag().size() + old.blob().size();
    if (old.rank() != rank) continue;
    ++given;
    if (old.tag() != tag) continue;
    if (old.blob() == blob) return false;
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", rank, " gave another blob under tag ", tag));
  }
  if (given >= kTagsPerRankMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "rank ", rank, " has used all ", kTagsPerRankMax, " tags"));
  }
  if (bytes > kAttemptBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ranks of this node gave ", bytes, " bytes, at most ",
                     kAttemptBytesMax, " are possible in an attempt"));
  }
  v1::PendingExchange* added = observed.add_exchanges();
  added->set_tag(tag);
  added->set_rank(rank);
  added->set_blob(blob);
  return true;
}

void Exchange::Wait(const ProcessId& process, const std::string& tag,
                    Done done) {
  const auto complete = complete_.find(tag);
  if (complete != complete_.end()) return std::move(done)(complete->second);
  waiters_.push_back({process, tag, std::move(done)});
}

template <typename Which>
std::vector<Exchange::Waiter> Exchange::Take(Which which) {
  const auto rest = std::stable_partition(
      waiters_.begin(), waiters_.end(),
      [&](const Waiter& waiter) { return !which(waiter); });
  std::vector<Waiter> taken(std::make_move_iterator(rest),
                            std::make_move_iterator(waiters_.end()));
  waiters_.erase(rest, waiters_.end());
  return taken;
}

void Exchange::Complete(const v1::Exchange& exchange) {
  const auto [complete, is_new] = complete_.try_emplace(
      exchange.tag(), exchange.blobs().begin(), exchange.blobs().end());
  if (!is_new) return;
  for (Waiter& waiter :
       Take([&](const Waiter& each) { return each.tag == exchange.tag(); })) {
    std::move(waiter.done)(complete->second);
  }
}

void Exchange::Abort(const ProcessId& process, const absl::Status& status) {
  for (Waiter& waiter :
       Take([&](const Waiter& each) { return each.process == process; })) {
    std::move(waiter.done)(status);
  }
}

void Exchange::Reset(const absl::Status& status) {
  complete_.clear();
  for (Waiter& waiter : std::exchange(waiters_, {})) {
    std::move(waiter.done)(status);
  }
}

}  // namespace cohort::worker
