#include "client/saved_clusters.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/file.h"
#include "common/local_files.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::client {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kFileBytesMax = 4096;
constexpr char kInUse[] = ".in-use";

absl::StatusOr<std::string> Directory() {
  const char* const told = std::getenv("COHORT_CONFIG_DIR");
  if (told != nullptr && *told != '\0') return std::string(told);
  return DefaultStateDirectory("clusters");
}

bool IsName(const std::string& name) {
  const auto is_good = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kNameBytesMax && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), is_good);
}

// Empty: there is no such file.
absl::StatusOr<std::string> ReadLine(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kFileBytesMax);
  if (absl::IsNotFound(text.status())) return "";
  COHORT_RETURN_IF_ERROR(text.status());
  return std::string(absl::StripAsciiWhitespace(*text));
}

absl::Status NoSuchCluster(const std::string& name) {
  std::vector<std::string> names;
  const absl::StatusOr<std::vector<SavedCluster>> saved = SavedClusters();
  if (saved.ok()) {
    for (const SavedCluster& each : *saved) names.push_back(each.name);
  }
  return SetReason(
      absl::NotFoundError(absl::StrCat(
          "no cluster ", Shown(name), " is saved (",
          names.empty() ? "" : absl::StrCat(absl::StrJoin(names, ", "), "; "),
          "`cohort login NAME` saves one)")),
      "unknown_cluster");
}

}  // namespace

absl::StatusOr<std::vector<SavedCluster>> SavedClusters() {
  COHORT_ASSIGN_OR_RETURN(const std::string directory, Directory());
  COHORT_ASSIGN_OR_RETURN(const std::string in_use,
                          ReadLine(absl::StrCat(directory, "/", kInUse)));
  std::vector<SavedCluster> clusters;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory, error)) {
    std::string name = entry.path().filename().string();
    if (!IsName(name)) continue;
    COHORT_ASSIGN_OR_RETURN(std::string address,
                            ReadLine(entry.path().string() + "/address"));
    const bool is_used = name == in_use;
    clusters.push_back({std::move(name), std::move(address), is_used});
  }
  std::sort(clusters.begin(), clusters.end(),
            [](const SavedCluster& a, const SavedCluster& b) {
              return a.name < b.name;
            });
  return clusters;
}

absl::Status SaveCluster(const std::string& name, const std::string& address,
                         const rpc::Credential& credential) {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster ", Shown(name), ": a name has letters, digits, `-`, `_` and ",
        "`.`, at most ", kNameBytesMax, ", and begins with none of the last"));
  }
  COHORT_ASSIGN_OR_RETURN(const std::string directory, Directory());
  const std::string own = absl::StrCat(directory, "/", name);
  COHORT_RETURN_IF_ERROR(MakeDirectories(own, 0700));
  COHORT_RETURN_IF_ERROR(credential.Save(own + "/credential"));
  COHORT_RETURN_IF_ERROR(
      WriteFileAtomically(own + "/address", address + "\n", 0600));
  return UseCluster(name);
}

absl::Status UseCluster(const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const std::string directory, Directory());
  std::error_code error;
  if (!IsName(name) ||
      !std::filesystem::exists(absl::StrCat(directory, "/", name), error)) {
    return NoSuchCluster(name);
  }
  return WriteFileAtomically(absl::StrCat(directory, "/", kInUse), name + "\n",
                             0600);
}

absl::Status ForgetCluster(const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const std::string directory, Directory());
  const std::string own = absl::StrCat(directory, "/", name);
  std::error_code error;
  if (!IsName(name) || !std::filesystem::exists(own, error)) {
    return NoSuchCluster(name);
  }
  return RemoveTree(own);
}

absl::StatusOr<std::string> DirectoryInUse() {
  COHORT_ASSIGN_OR_RETURN(const std::string directory, Directory());
  COHORT_ASSIGN_OR_RETURN(const std::string name,
                          ReadLine(absl::StrCat(directory, "/", kInUse)));
  const std::string own = absl::StrCat(directory, "/", name);
  std::error_code error;
  const bool is_there = IsName(name) && std::filesystem::exists(own, error);
  return is_there ? own : "";
}

}  // namespace cohort::client
