#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/placement/gang_request.h"
#include "head/placement/node_form.h"
#include "head/store/records.h"

// Which nodes a cluster is to have: a pure function of what waits, what is
// there and what may be launched, by the planner that places gangs (PlaceGang).
//
//   SC-2: of no type are there more than `max`, nor more than `max_nodes` in
//         all, by what the plan launches.
//   SC-3: an ask has nodes launched for it only if the planner would place it
//         whole on what is there and what is launched.
//   SC-4: a plan for what a former plan has launched launches nothing.
//   SC-10: no node is launched for an ask that has room as soon without it, by
//         the time limits of what runs.
//   SC-5: nothing that waits, no request for capacity and no type's `min` needs
//         a node that is to go.
namespace cohort::head {

// One ask in line, in the order of the line.
struct ScaleAsk {
  JobId job;
  int first = -1;                              // of its slots, as AskId
  std::shared_ptr<const GangRequest> request;  // shared by equal ones
};

// What somebody wants to have room for, whether it is used or not.
struct WantedRoom {
  std::string name;
  ResourceSet bundle;
  int64_t count = 1;
};

struct ScaleType {
  const v1::NodeType* type = nullptr;
  // Not tried now, as launches of it failed.
  bool backs_off = false;
  size_t ending = 0;  // instances that are on their way out, which count
};

// A node that is there, or on its way.
struct ScaleNode {
  std::shared_ptr<const NodeSnapshot> node;  // one on its way as it will be
  std::string type;                          // empty: no provider launched it
  bool is_launching = false;
  // It was idle for long enough; of one on its way: nobody was asked for it
  // yet.
  bool may_go = false;
  // What a job there frees by its time limit, and when at the latest; not above
  // zero: it should have been by now.
  struct Release {
    absl::Duration in;
    std::string job;  // its name
    ResourceSet resources;
    std::map<std::string, Amount> devices;
  };
  std::vector<Release> releases;
};

struct ScaleInput {
  std::vector<ScaleNode> nodes;
  std::vector<ScaleType> types;
  std::vector<ScaleAsk> asks;
  std::vector<WantedRoom> wanted;
  size_t max_nodes = 0;
  // As many may be on their way, if one ask does not need more.
  size_t launching_max = 0;
  // How long a launch usually takes; zero: it is not known.
  absl::Duration launch_time;
};

struct ScalePlan {
  struct Launch {
    std::string type;
    JobId job;        // nil: for none
    int first = -1;   // as of the ask
    std::string why;  // of a job what it asks for: "2 x {CPU 4}"
  };
  struct Unserved {
    JobId job;         // nil: wanted room
    std::string name;  // of that
    std::string why;
  };
  std::vector<Launch> launches;  // those of one ask side by side
  std::vector<NodeId> ending;
  std::vector<Unserved> unserved;
  // Of each ask that is placed with the help of nodes on their way: how many of
  // which type.
  std::map<JobId, std::map<std::string, int>> served;
  // Of each ask that is placed with room that time limits free sooner than a
  // launch would: the last such room.
  struct Awaited {
    absl::Duration in;
    std::string job;   // which frees it
    std::string node;  // by its name
  };
  std::map<JobId, Awaited> awaited;
};

// For an ask that has no room: the cheapest nodes of one type with which it
// fits, else of several; at equal cost the fewest, then the smallest.  An ask
// without GPUs has nodes with GPUs launched only when no other type holds it.
//
// Takes time linear in the asks times the forms of nodes; nodes that are tried
// for asks without room are at most some ten thousands, and what comes after
// that is looked at by the next plan.
ScalePlan PlanScale(const ScaleInput& input);

// How a node of the type will look.
NodeSnapshot NodeOfType(const v1::NodeType& type, const NodeId& id);

}  // namespace cohort::head
