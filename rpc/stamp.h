#pragma once

#include <cstdint>
#include <string>

namespace cohort::rpc {

// Which head spoke: every answer carries it.  A value.
struct Stamp {
  // The cluster id's bytes.
  std::string cluster_id;
  uint64_t term = 0;

  friend bool operator==(const Stamp&, const Stamp&) = default;
};

}  // namespace cohort::rpc
