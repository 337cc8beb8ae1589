#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "head/state/node_links.h"

namespace cohort::head {

// Nobody hears what a ClusterState tells; who wants to hear some of it
// overrides that.
class NoLinks : public NodeLinks, public JobWatchers {
 public:
  void SendDesired(const NodeId&, uint64_t,
                   const std::vector<v1::DesiredPlace>&) override {}
  void SendExchanges(const NodeId&, uint64_t,
                     const std::vector<SharedExchange>&) override {}
  void SendAcknowledge(const NodeId&, uint64_t,
                       const std::vector<Acknowledged>&) override {}
  void Disconnect(const NodeId&, uint64_t, const absl::Status&) override {}
  void JobChanged(const JobId&) override {}
};

}  // namespace cohort::head
