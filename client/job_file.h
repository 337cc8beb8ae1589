#pragma once

#include <string>
#include <vector>

#include "cohort/v1/domain.pb.h"

namespace cohort {

// A file of a job's run directory, COHORT_STORAGE_DIR, on one of its nodes.
struct JobFile {
  std::string node_id;
  std::string node_name;
  v1::RunFile file;
};

struct JobFiles {
  std::vector<JobFile> files;  // by path, then node
  // Those of checkpoints; what else these have is read by its path.
  std::vector<JobFile> manifests;
  // Nodes that may have some, or others, and did not answer.
  std::vector<std::string> nodes_away;
  // Nodes that have ended, and what they had of it with them.
  std::vector<std::string> nodes_gone;
  // All nodes have this one directory for them; empty: each has its own.
  std::string shared_directory;
};

// "node n1 has ended, and ...": what of `nodes_gone` cannot be had, and where
// it may be.  REQUIRES: there are some.
std::string GoneText(const JobFiles& files);

}  // namespace cohort
