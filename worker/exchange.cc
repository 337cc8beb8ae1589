#include "worker/exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// A tag is a name, a blob is an address: 64 tags of 64 KiB are far more than
// any communicator asks for, and bound what an observed set can weigh.
constexpr int kTagsPerRankMax = 64;

}  // namespace

absl::StatusOr<bool> Exchange::Give(int rank, const std::string& tag,
                                    const std::string& blob,
                                    v1::ObservedAttempt& observed) {
  int given = 0;
  for (const v1::PendingExchange& old : observed.exchanges()) {
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
  v1::PendingExchange* added = observed.add_exchanges();
  added->set_tag(tag);
  added->set_rank(rank);
  added->set_blob(blob);
  return true;
}

void Exchange::Wait(std::string tag, Done done) {
  waiters_.push_back({std::move(tag), std::move(done)});
}

void Exchange::Answer(const v1::DesiredAttempt& desired) {
  for (const v1::Exchange& exchange : desired.exchanges()) {
    if (exchange.blobs_size() != desired.world_size()) continue;
    for (Waiter& waiter : waiters_) {
      if (!waiter.done || waiter.tag != exchange.tag()) continue;
      std::exchange(waiter.done, nullptr)(std::vector<std::string>(
          exchange.blobs().begin(), exchange.blobs().end()));
    }
  }
  std::erase_if(waiters_, [](const Waiter& waiter) { return !waiter.done; });
}

void Exchange::Abort(const absl::Status& status) {
  for (Waiter& waiter : std::exchange(waiters_, {})) {
    std::move(waiter.done)(status);
  }
}

}  // namespace cohort::worker
