#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/store/memory_store.h"
#include "rpc/credential.h"
#include "rpc/router.h"
#include "rpc/testing/loopback.h"
#include "tests/sim/sim_counters.h"
#include "tests/sim/sim_machine.h"
#include "tests/sim/sim_process.h"
#include "tests/sim/sim_store.h"
#include "worker/head_link.h"
#include "worker/node_readiness.h"
#include "worker/node_state.h"
#include "worker/run_service.h"

namespace cohort::sim {

// What all simulated processes share.
struct World {
  Executor& executor;
  const Clock& clock;
  Random& random;
  rpc::LoopbackNetwork& network;
  const rpc::Credential& credential;
  Counters& counters;
  // The head's.  Others only look, at what they were told to be durable.
  head::MemoryDisk& disk;
  // Off where a test breaks durability and wants others to notice.
  bool checks_durability = true;
  // Attempts that the store had before it was restored: those it lacks now were
  // durable once.
  const std::set<AttemptId>& before_restore;
  // What the head's store does wrong on purpose, and who hears of it.
  StoreFlaw store_flaw = StoreFlaw::kNone;
  SimStore::Violate violate = nullptr;
};

// What a node says of itself when it registers.
struct NodeKind {
  std::string name;
  std::string host;
  // The only version that it speaks; 0: those of this build.
  uint32_t protocol = 0;
  ResourceSet resources;
  std::vector<std::string> gpus;  // ids
  std::string gpu_model;
  std::map<std::string, std::string> labels;
  std::string taint;  // empty: none
};

// One life of a worker daemon on a machine: the binary's own HeadLink,
// NodeState, NodeReadiness and RunService over a host that acts on the
// simulated machine.
//
// Destroying it is kill -9.
class WorkerDaemon {
 public:
  // Restores what the machine's disk has and joins the head at "head".
  WorkerDaemon(World world, Machine& machine, const NodeId& node,
               const NodeKind& kind);
  ~WorkerDaemon();

  void Stop() { process_.Stop(); }
  void Continue() { process_.Continue(); }
  bool stopped() const { return process_.stopped(); }
  bool joined() const { return link_->joined(); }
  // One of its devices, if it has any, has a fault for so long, or may have one
  // (`suspect`).  False when it has none.
  bool SickenADevice(bool suspect, absl::Duration time);

 private:
  class Host;
  class Binding;

  void MakeLink(const NodeId& node, const NodeKind& kind);
  void MakeRunService();
  void Restore();
  void OnJoined();
  void OnReadiness(const std::string& not_ready);
  void SetDevice(size_t index, v1::DeviceState state);

  World world_;
  Machine& machine_;
  ProcessExecutor process_;
  std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Binding> binding_;
  std::optional<worker::NodeState> node_;
  std::optional<worker::NodeReadiness> readiness_;
  std::optional<worker::HeadLink> link_;
  rpc::Router router_;
  std::optional<worker::RunService> run_service_;
  std::vector<v1::DeviceStatus> devices_;
};

}  // namespace cohort::sim
