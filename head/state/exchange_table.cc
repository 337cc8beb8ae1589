#include "head/state/exchange_table.h"

#include <memory>
#include <utility>

#include "common/log.h"

namespace cohort::head {

std::vector<SharedExchange> ExchangeTable::Give(
    const AttemptId& id, int64_t epoch, int world_size,
    const std::set<int>& local_ranks, const Given& given) {
  std::vector<SharedExchange> completed;
  if (given.empty()) return completed;
  Attempt& attempt = attempts_[id];
  if (attempt.epoch != epoch) attempt = {.epoch = epoch};
  const size_t world = static_cast<size_t>(world_size);
  for (const v1::PendingExchange& exchange : given) {
    if (!local_ranks.contains(exchange.rank()) ||
        exchange.rank() >= world_size || exchange.tag().size() > kTagBytesMax ||
        exchange.blob().size() > kBlobBytesMax) {
      continue;
    }
    const size_t rank = static_cast<size_t>(exchange.rank());
    const auto known = attempt.tags.find(exchange.tag());
    if (known != attempt.tags.end() &&
        (known->second.complete != nullptr ||
         known->second.blobs[rank].has_value())) {
      continue;
    }
    if (attempt.bytes + exchange.blob().size() > kAttemptBytesMax ||
        (known == attempt.tags.end() && attempt.tags.size() >= kTagsMax)) {
      COHORT_LOG(kWarning, "exchange_not_taken", {"attempt", id},
                 {"rank", exchange.rank()}, {"kept_bytes", attempt.bytes});
      continue;
    }
    Tag& tag = attempt.tags[exchange.tag()];
    if (tag.blobs.empty()) {
      tag.blobs.resize(world);
      attempt.order.push_back(exchange.tag());
    }
    tag.blobs[rank] = exchange.blob();
    attempt.bytes += exchange.blob().size();
    if (++tag.given < world) continue;
    v1::Exchange whole;
    whole.set_attempt_id(std::string(id.bytes()));
    whole.set_epoch(epoch);
    whole.set_tag(exchange.tag());
    for (std::optional<std::string>& blob : tag.blobs) {
      whole.add_blobs(*std::move(blob));
    }
    tag.blobs.clear();
    tag.complete = std::make_shared<const v1::Exchange>(std::move(whole));
    completed.push_back(tag.complete);
  }
  return completed;
}

std::vector<SharedExchange> ExchangeTable::CompleteOf(
    const AttemptId& id) const {
  std::vector<SharedExchange> complete;
  const auto attempt = attempts_.find(id);
  if (attempt == attempts_.end()) return complete;
  for (const std::string& name : attempt->second.order) {
    const Tag& tag = attempt->second.tags.at(name);
    if (tag.complete != nullptr) complete.push_back(tag.complete);
  }
  return complete;
}

std::vector<int> ExchangeTable::MissingOf(const AttemptId& id) const {
  std::vector<int> missing;
  const auto attempt = attempts_.find(id);
  if (attempt == attempts_.end() || attempt->second.order.empty()) {
    return missing;
  }
  const Tag& last = attempt->second.tags.at(attempt->second.order.back());
  for (size_t rank = 0; rank < last.blobs.size(); ++rank) {
    if (missing.size() == kMissingMax) break;
    if (!last.blobs[rank].has_value())
      missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

void ExchangeTable::Drop(const AttemptId& id) { attempts_.erase(id); }

}  // namespace cohort::head
