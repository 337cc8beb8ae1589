#include "client/connection.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "client/saved_clusters.h"
#include "common/file.h"
#include "common/host_port.h"
#include "common/local_files.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::client {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct OwnCluster {
  std::string address;
  std::string credential_file;
};

Mutex own_mutex;
std::optional<OwnCluster> own_cluster ABSL_GUARDED_BY(own_mutex);

// The own cluster, for a program that names no other.
std::optional<OwnCluster> MeantOwnCluster() {
  if (!Environment("COHORT_ADDRESS").empty()) return std::nullopt;
  MutexLock lock(own_mutex);
  return own_cluster;
}

// Where the files are of the cluster that nothing names: the one in use, else
// that of `cohort up`.
absl::StatusOr<std::string> MeantDirectory() {
  COHORT_ASSIGN_OR_RETURN(std::string in_use, DirectoryInUse());
  return in_use.empty() ? UpDirectory() : in_use;
}

absl::StatusOr<std::string> CheckedAddress(const std::string& text,
                                           absl::string_view source) {
  absl::StatusOr<HostPort> address = ParseHostPort(text);
  if (!address.ok()) return Annotate(address.status(), source);
  if (address->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", text,
                     " has port 0; give the port that the head listens on"));
  }
  return address->ToString();
}

absl::Status NoCluster(absl::string_view why) {
  return SetReason(
      absl::NotFoundError(absl::StrCat(
          "no cluster is named: start one with `cohort up`, or name one with "
          "--address HOST:PORT, COHORT_ADDRESS or `cohort login` (",
          why, ")")),
      "no_address");
}

}  // namespace

void SetOwnCluster(std::string address, std::string credential_file) {
  MutexLock lock(own_mutex);
  own_cluster = {std::move(address), std::move(credential_file)};
}

void ClearOwnCluster() {
  MutexLock lock(own_mutex);
  own_cluster.reset();
}

bool HasOwnCluster() { return MeantOwnCluster().has_value(); }

absl::StatusOr<std::string> UpDirectory() {
  return DefaultStateDirectory("up");
}

absl::StatusOr<bool> UpRunsIn(const std::string& state_dir) {
  const absl::Status free = FileLock::Share(state_dir).status();
  if (GetReason(free) == "locked") return true;
  if (!free.ok()) return free;
  return false;
}

bool HasCluster(const std::string& given) {
  if (!given.empty() || !Environment("COHORT_ADDRESS").empty() ||
      HasOwnCluster()) {
    return true;
  }
  if (!DirectoryInUse().value_or("").empty()) return true;
  const absl::StatusOr<std::string> directory = UpDirectory();
  return directory.ok() && UpRunsIn(*directory).value_or(false);
}

absl::StatusOr<std::string> FindAddress(const std::string& given) {
  if (!given.empty()) return CheckedAddress(given, "the head's address");
  const std::string variable = Environment("COHORT_ADDRESS");
  if (!variable.empty()) return CheckedAddress(variable, "COHORT_ADDRESS");
  if (const auto own = MeantOwnCluster()) return own->address;
  const absl::StatusOr<std::string> directory = MeantDirectory();
  if (!directory.ok()) return NoCluster("this user has no home directory");
  const std::string path = *directory + "/address";
  const absl::StatusOr<std::string> text = ReadFile(path, 4096);
  if (text.ok()) {
    return CheckedAddress(std::string(absl::StripAsciiWhitespace(*text)), path);
  }
  if (!absl::IsNotFound(text.status())) return text.status();
  return NoCluster(absl::StrCat("there is no ", path));
}

absl::StatusOr<rpc::Credential> FindCredential(const std::string& given) {
  std::string path = given;
  if (path.empty()) {
    if (const auto own = MeantOwnCluster()) path = own->credential_file;
  }
  if (path.empty()) path = Environment("COHORT_CREDENTIAL_FILE");
  const bool named = !path.empty();
  if (!named) {
    COHORT_ASSIGN_OR_RETURN(const std::string directory, MeantDirectory());
    path = directory + "/credential";
  }
  absl::StatusOr<rpc::Credential> credential = rpc::Credential::Load(path);
  if (credential.ok()) return credential;
  if (!absl::IsNotFound(credential.status())) {
    if (!named) return credential;
    return SetReason(
        absl::InvalidArgumentError(absl::StrCat(
            given.empty() ? "COHORT_CREDENTIAL_FILE" : "the credential's file",
            ": ", credential.status().message())),
        "bad_credential");
  }
  return SetReason(
      absl::NotFoundError(absl::StrCat(
          "there is no credential ", path,
          ": name the head's `<state-dir>/credential` with --credential-file "
          "or COHORT_CREDENTIAL_FILE")),
      "no_credential");
}

}  // namespace cohort::client
