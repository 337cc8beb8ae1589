#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"
#include "trainer/comm/gather.h"

namespace cohort::trainer {

// An exchange, of blobs of up to 4 KiB, through a communicator that the ranks
// have already, which must outlive it.
inline Exchange ExchangeOver(Comm& comm) {
  return [&comm](absl::string_view, std::string mine, absl::Duration deadline) {
    return GatherBlobs(comm, mine, /*bytes_max=*/4096, deadline);
  };
}

}  // namespace cohort::trainer
