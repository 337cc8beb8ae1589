#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "client/cluster.h"

namespace cohort::client {

// Puts what several sources give into the order in which it was written, by the
// times that came with it.
//
// A piece waits until each other source that goes on has given a later one, but
// no longer than `hold`, and not while its source holds kBytesMax.  What has no
// time goes first; the times of one source never go back.  Thread-compatible.
class LogMerge {
 public:
  struct Piece {
    LogChunk chunk;  // without data
    std::string data;
    absl::Duration came;                         // monotonic
    absl::Time order_at = absl::InfinitePast();  // set by Add
  };

  static constexpr size_t kBytesMax = 256 << 10;

  LogMerge(size_t sources, absl::Duration hold)
      : hold_(hold), queues_(sources) {}

  void Add(size_t source, Piece piece);
  // Nothing more comes from it.
  void End(size_t source) { queues_[source].ended = true; }
  // The next one, if it need not wait.
  std::optional<Piece> Next(absl::Duration now);
  // When there is one though nothing else comes.
  absl::Duration due() const;
  size_t bytes(size_t source) const { return queues_[source].bytes; }

 private:
  struct Queue {
    std::deque<Piece> pieces;
    size_t bytes = 0;
    absl::Time last_at = absl::InfinitePast();  // of what came
    bool ended = false;
  };

  bool MayGo(const Queue& first, absl::Duration now) const;

  const absl::Duration hold_;
  std::vector<Queue> queues_;
};

}  // namespace cohort::client
