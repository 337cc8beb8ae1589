#pragma once

#include <string>

#include "common/process_id.h"

namespace cohort::rpc {

// Who is calling, as handlers, records and log lines carry it.  A value.
struct Principal {
  enum class Kind {
    kCluster,  // Holds the cluster's credential: people, daemons.
    kRank,     // Holds a credential limited to one process.
  };

  Kind kind = Kind::kRank;
  // "cluster", or "rank/<process>".
  std::string name;
  // Nil unless kRank.
  ProcessId process;
};

}  // namespace cohort::rpc
