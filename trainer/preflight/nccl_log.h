#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::trainer {

// What NCCL says of its ways in its log, at NCCL_DEBUG=INFO: there is no call
// that tells.  What is not recognised is left out.
struct NcclWays {
  std::string network;  // "Socket", "IB"; empty: not said
  // "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0"; each once, sorted, the
  // first few.
  std::vector<std::string> transports;
};

// Reads the lines "... NCCL INFO Using network Socket" and "... NCCL INFO
// Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0", as NCCL 2.18 to 2.32
// write them (src/init.cc, src/transport/*.cc).  Pure.
NcclWays ParseNcclLog(absl::string_view text);

}  // namespace cohort::trainer
