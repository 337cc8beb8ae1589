#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/mutex.h"
#include "trainer/comm/comm.h"

namespace cohort::trainer {

// Runs `body(rank)` for every rank of a world, each on a thread of its own.
inline void RunRanks(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

// What ranks that are threads pass each other: all blobs of a tag, when all are
// there.  Thread-safe; must outlive the exchanges it gives out.
class MemoryExchange {
 public:
  explicit MemoryExchange(int world) : world_(world) {}

  Exchange For(int rank) {
    return [this, rank](absl::string_view tag, std::string mine,
                        absl::Duration deadline) {
      return Meet(rank, std::string(tag), std::move(mine), deadline);
    };
  }

 private:
  absl::StatusOr<std::vector<std::string>> Meet(int rank,
                                                const std::string& tag,
                                                std::string mine,
                                                absl::Duration deadline) {
    MutexLock lock(mutex_);
    Board& board = boards_[tag];
    board.blobs.resize(world_);
    board.blobs[rank] = std::move(mine);
    if (++board.present == world_) changed_.SignalAll();
    while (board.present < world_) {
      if (!changed_.WaitFor(mutex_, deadline)) {
        return absl::DeadlineExceededError(
            absl::StrCat("exchange of ", tag, ": not all ranks came"));
      }
    }
    return board.blobs;
  }

  struct Board {
    std::vector<std::string> blobs;
    int present = 0;
  };

  const int world_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Board> boards_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::trainer
