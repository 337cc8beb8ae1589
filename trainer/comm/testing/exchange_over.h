#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/status_macros.h"
#include "trainer/comm/comm.h"

namespace cohort::trainer {

// An exchange through a communicator that the ranks have already, which must
// outlive it: each rank broadcasts its blob.  INVALID_ARGUMENT for one of more
// than 4 KiB.
inline Exchange ExchangeOver(Comm& comm) {
  return [&comm](absl::string_view, std::string mine, absl::Duration deadline)
             -> absl::StatusOr<std::vector<std::string>> {
    // One buffer: the first word is the size of what follows.
    std::array<int64_t, 513> blob = {};
    constexpr size_t kBytesMax = sizeof(blob) - sizeof(blob[0]);
    if (mine.size() > kBytesMax) {
      return absl::InvalidArgumentError("a blob of more than 4 KiB");
    }
    std::vector<std::string> all;
    for (int root = 0; root < comm.world(); ++root) {
      if (root == comm.rank()) {
        blob[0] = static_cast<int64_t>(mine.size());
        std::memcpy(&blob[1], mine.data(), mine.size());
      }
      COHORT_RETURN_IF_ERROR(
          comm.Broadcast(Buffer::Of(std::span(blob)), root, deadline));
      all.emplace_back(reinterpret_cast<const char*>(&blob[1]), blob[0]);
    }
    return all;
  };
}

}  // namespace cohort::trainer
