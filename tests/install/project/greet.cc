// A program of somebody else's: it needs nothing but find_package(cohort).  It
// asks a cluster that is not there, with a credential that it makes up.

#include <sys/stat.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "cohort/client/cluster.h"
#include "cohort/common/build_info.h"

namespace {

constexpr char kCredential[] = "greet.credential";

bool Says(const absl::Status& status, absl::StatusCode code) {
  std::cout << status << "\n";
  return status.code() == code;
}

}  // namespace

int main() {
  std::cout << "cohort " << cohort::GetBuildInfo().version << "\n";
  const absl::StatusOr<std::unique_ptr<cohort::Cluster>> nowhere =
      cohort::Cluster::Connect(
          {.address = "127.0.0.1:1", .credential_file = "no such file"});
  if (!Says(nowhere.status(), absl::StatusCode::kNotFound)) return 1;

  std::ofstream(kCredential) << "secret " << std::string(64, 'a') << "\n";
  if (chmod(kCredential, 0600) != 0) return 1;
  const absl::StatusOr<std::unique_ptr<cohort::Cluster>> cluster =
      cohort::Cluster::Connect(
          {.address = "127.0.0.1:1", .credential_file = kCredential});
  if (!cluster.ok()) {
    std::cerr << cluster.status() << "\n";
    return 1;
  }
  const absl::Status asked =
      (*cluster)->Nodes(absl::Milliseconds(100)).status();
  return Says(asked, absl::StatusCode::kUnavailable) ? 0 : 1;
}
