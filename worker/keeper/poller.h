#pragma once

#include <cstdint>
#include <vector>

#include "worker/keeper/files.h"

namespace cohort::keeper {

// What a descriptor in the loop is.
enum class Source : uint32_t {
  kSignals,
  kListener,
  kConnection,
  kStdout,
  kStderr,
  kFailure,
};

struct Ready {
  Source source = Source::kSignals;
  uint32_t index = 0;  // which of its kind
};

// epoll with names.  Thread-compatible.
class Poller {
 public:
  Poller();

  // `writable`: also report when it takes bytes.
  void Watch(int fd, Source source, uint32_t index, bool writable = false);
  // Before the descriptor is closed.
  void Forget(int fd);
  // Waits at most `timeout_ms` (-1: for ever).
  std::vector<Ready> Wait(int timeout_ms);

 private:
  UniqueFd epoll_;
};

}  // namespace cohort::keeper
