#include "client/log_merge.h"

#include <algorithm>
#include <utility>

namespace cohort::client {

void LogMerge::Add(size_t source, Piece piece) {
  Queue& queue = queues_[source];
  queue.last_at = std::max(queue.last_at, piece.chunk.at);
  piece.order_at = queue.last_at;
  queue.bytes += piece.data.size();
  queue.pieces.push_back(std::move(piece));
}

std::optional<LogMerge::Piece> LogMerge::Next(absl::Duration now) {
  Queue* first = nullptr;
  absl::Time first_at;
  for (Queue& queue : queues_) {
    if (queue.pieces.empty()) continue;
    const absl::Time at = queue.pieces.front().order_at;
    if (first == nullptr || at < first_at) {
      first = &queue;
      first_at = at;
    }
  }
  if (first == nullptr || !MayGo(*first, now)) return std::nullopt;
  Piece piece = std::move(first->pieces.front());
  first->pieces.pop_front();
  first->bytes -= piece.data.size();
  return piece;
}

bool LogMerge::MayGo(const Queue& first, absl::Duration now) const {
  if (first.pieces.front().order_at == absl::InfinitePast()) return true;
  bool all_gave = true;
  for (const Queue& queue : queues_) {
    all_gave = all_gave && (queue.ended || !queue.pieces.empty());
    // One that has waited, or cannot, takes those before it along.
    if (!queue.pieces.empty() && queue.pieces.front().came + hold_ <= now) {
      return true;
    }
    if (queue.bytes > kBytesMax && hold_ < absl::InfiniteDuration()) {
      return true;
    }
  }
  return all_gave;
}

absl::Duration LogMerge::due() const {
  absl::Duration due = absl::InfiniteDuration();
  for (const Queue& queue : queues_) {
    if (queue.pieces.empty()) continue;
    due = std::min(due, queue.pieces.front().came + hold_);
  }
  return due;
}

}  // namespace cohort::client
