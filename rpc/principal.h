#pragma once

#include <string>

#include "common/strong_id.h"

namespace cohort::rpc {

// Who is calling, as handlers, records and log lines carry it.  A value.
struct Principal {
  enum class Kind {
    kCluster,  // Holds the cluster's credential: people, daemons.
    kRank,     // Holds a credential limited to one attempt.
  };

  Kind kind = Kind::kRank;
  // "cluster", or "rank/<attempt>".
  std::string name;
  // Nil unless kRank.
  AttemptId attempt;
};

}  // namespace cohort::rpc
