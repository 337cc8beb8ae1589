#pragma once

#include <string>
#include <vector>

namespace cohort::cli {

// What `cohort` does for a PrivateCluster (client/private_cluster.h): runs a
// head and a worker until the program that started it ends it or dies.  Gives
// the exit code.
int ServePrivateCluster(const std::vector<std::string>& arguments);

}  // namespace cohort::cli
