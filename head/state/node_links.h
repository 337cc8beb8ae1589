#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/desired.h"

namespace cohort::head {

// What the head has dealt with: the worker may drop it.
struct Acknowledged {
  AttemptId attempt;
  std::vector<std::string> paths;  // of checkpoint records
  Incarnations words;              // processes whose last words are recorded
};

// The ways to the nodes: node_service, or a test.
//
// Called by effects only, so after the commit (CM-1).  `incarnation` names the
// registration that the message was computed for; for any other one, or with no
// stream, the message is dropped: the next registration gets the whole set
// (RC-2).  Strand-bound; outlives every ClusterState.
class NodeLinks {
 public:
  virtual ~NodeLinks() = default;

  virtual void SendDesired(const NodeId& node, uint64_t incarnation,
                           const std::vector<v1::DesiredPlace>& places) = 0;
  // After the attempts that they are of.
  virtual void SendExchanges(const NodeId& node, uint64_t incarnation,
                             const std::vector<SharedExchange>& exchanges) = 0;
  virtual void SendAcknowledge(
      const NodeId& node, uint64_t incarnation,
      const std::vector<Acknowledged>& acknowledged) = 0;
  // Ends the stream, so that the node registers again.
  virtual void Disconnect(const NodeId& node, uint64_t incarnation,
                          const absl::Status& reason) = 0;
};

// Who waits for jobs: cluster_service, or a test.  As NodeLinks.
class JobWatchers {
 public:
  virtual ~JobWatchers() = default;

  // The job ended, or an attempt of it began, ran or ended.
  virtual void JobChanged(const JobId& job) = 0;
};

}  // namespace cohort::head
