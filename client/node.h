#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/resources.h"
#include "common/strong_id.h"

// What users are told about the cluster.  Plain values.
namespace cohort {

struct Device {
  std::string id;
  std::string kind;  // "gpu"
  std::string model;
  int64_t memory_bytes = 0;
  bool simulated = false;
};

struct Node {
  NodeId id;
  std::string name;
  std::string state;  // "ALIVE", "DEAD"
  uint64_t incarnation = 0;
  int64_t pid = 0;  // of its worker daemon
  ResourceSet resources;
  ResourceSet available;
  std::map<std::string, std::string> labels;
  std::vector<Device> devices;
};

// Of the nodes that are alive.
struct ClusterResources {
  ResourceSet total;
  ResourceSet available;
};

struct ClusterStatus {
  ClusterId cluster_id;
  std::string address;
  std::string http_address;  // empty: it serves no HTTP
  int64_t head_pid = 0;
  uint64_t term = 0;
  std::map<std::string, int64_t> nodes_by_state;
  std::map<std::string, int64_t> jobs_by_state;
  // The head's store refuses writes for now.
  bool read_only = false;
};

// What a backup of the head's store has.
struct BackupSummary {
  int64_t files = 0;
  int64_t size_bytes = 0;
  // Hex hashes of packages that jobs need and that could not be read.
  std::vector<std::string> missing_packages;
};

}  // namespace cohort
