#include "trainer/comm/nccl_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/dynamic_library.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace cohort::trainer::nccl {
namespace {

constexpr char kVariable[] = "COHORT_NCCL_LIBRARY";
constexpr char kPlainName[] = "libnccl.so.2";

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool IsInProcess() {
  void* const handle = dlopen(kPlainName, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  dlclose(handle);  // The reference, not the library.
  return true;
}

// Where PyPI's nvidia-nccl-cu* wheels put it: on no loader's path.
std::vector<std::string> WheelPaths() {
  std::vector<std::string> paths;
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string root = Environment(variable);
    if (root.empty()) continue;
    const std::string pattern = absl::StrCat(
        root, "/lib/python3*/site-packages/nvidia/nccl/lib/", kPlainName);
    glob_t found = {};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      paths.insert(paths.end(), found.gl_pathv,
                   found.gl_pathv + found.gl_pathc);
    }
    globfree(&found);
  }
  return paths;
}

NcclTable BindAll(const DynamicLibrary& library) {
  NcclTable t;
#define COHORT_BIND(name) library.Bind(#name, t.name)
  COHORT_BIND(ncclGetVersion);
  COHORT_BIND(ncclGetErrorString);
  COHORT_BIND(ncclGetLastError);
  COHORT_BIND(ncclGetUniqueId);
  COHORT_BIND(ncclCommInitRankConfig);
  COHORT_BIND(ncclCommGetAsyncError);
  COHORT_BIND(ncclCommFinalize);
  COHORT_BIND(ncclCommDestroy);
  COHORT_BIND(ncclCommAbort);
  COHORT_BIND(ncclAllReduce);
  COHORT_BIND(ncclBroadcast);
  COHORT_BIND(ncclGroupStart);
  COHORT_BIND(ncclGroupEnd);
  COHORT_BIND(ncclCommRevoke);
#undef COHORT_BIND
  return t;
}

// What every version has; ncclCommFinalize, the youngest, came with 2.14.
absl::Status CheckComplete(const NcclTable& t, absl::string_view path) {
  const std::pair<const char*, bool> needed[] = {
      {"ncclGetErrorString", !!t.ncclGetErrorString},
      {"ncclGetLastError", !!t.ncclGetLastError},
      {"ncclGetUniqueId", !!t.ncclGetUniqueId},
      {"ncclCommInitRankConfig", !!t.ncclCommInitRankConfig},
      {"ncclCommGetAsyncError", !!t.ncclCommGetAsyncError},
      {"ncclCommFinalize", !!t.ncclCommFinalize},
      {"ncclCommDestroy", !!t.ncclCommDestroy},
      {"ncclCommAbort", !!t.ncclCommAbort},
      {"ncclAllReduce", !!t.ncclAllReduce},
      {"ncclBroadcast", !!t.ncclBroadcast},
      {"ncclGroupStart", !!t.ncclGroupStart},
      {"ncclGroupEnd", !!t.ncclGroupEnd},
  };
  for (const auto& [name, is_there] : needed) {
    if (is_there) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL at ", path, " lacks ", name));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> LibraryCandidates(const std::string& wanted) {
  if (!wanted.empty()) return {wanted};
  const std::string named = Environment(kVariable);
  if (IsInProcess()) {
    if (!named.empty()) {
      COHORT_LOG(kInfo, "nccl_in_process", {"not_loaded", named},
                 {"why", "the process has an NCCL already"});
    }
    return {kPlainName};
  }
  if (!named.empty()) return {named};
  std::vector<std::string> candidates = {kPlainName};
  for (std::string& path : WheelPaths()) {
    candidates.push_back(std::move(path));
  }
  return candidates;
}

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".",
                      version % 100);
}

absl::StatusOr<std::shared_ptr<const Library>> MakeLibrary(
    NcclTable table, std::string path, cuda::BeforeCall before) {
  auto library = std::make_shared<Library>();
  if (!table.ncclGetVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL at ", path, " lacks ncclGetVersion"));
  }
  before("ncclGetVersion");
  const Result asked = table.ncclGetVersion(&library->version);
  if (asked != kSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL at ", path, ": ncclGetVersion answers ", asked));
  }
  // Before 2.9 versions were counted otherwise: 2804 is 2.8.4.
  if (library->version < kVersionMin) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL at ", path, " is ",
                     library->version < 10000 ? "older than 2.9"
                                              : VersionText(library->version),
                     ", at least ", VersionText(kVersionMin), " is needed"));
  }
  COHORT_RETURN_IF_ERROR(CheckComplete(table, path));
  if (library->version > kVersionKnownMax) {
    COHORT_LOG(kWarning, "nccl_untried",
               {"version", VersionText(library->version)},
               {"newest_known", VersionText(kVersionKnownMax)}, {"path", path});
  }
  if (library->version < kVersionRevoke) table.ncclCommRevoke = nullptr;
  library->table = std::move(table);
  library->path = std::move(path);
  return library;
}

absl::StatusOr<std::shared_ptr<const Library>> LoadLibrary(
    const std::string& wanted, cuda::BeforeCall before) {
  return LoadFirst(LibraryCandidates(wanted), before);
}

absl::StatusOr<std::shared_ptr<const Library>> LoadFirst(
    const std::vector<std::string>& candidates, cuda::BeforeCall before) {
  std::vector<std::string> reasons;
  for (const std::string& path : candidates) {
    before("dlopen of NCCL");
    const auto opened = DynamicLibrary::Open(path);
    if (!opened.ok()) {
      reasons.emplace_back(opened.status().message());
      continue;
    }
    auto library = MakeLibrary(BindAll(*opened), path, before);
    if (library.ok()) return library;
    reasons.emplace_back(library.status().message());
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no NCCL: ", absl::StrJoin(reasons, "; "),
                   "; install it or set ", kVariable));
}

absl::Status NcclStatus(const Library& library, Result result,
                        absl::string_view what, Communicator comm) {
  if (result == kSuccess) return absl::OkStatus();
  const char* const text = library.table.ncclGetErrorString(result);
  std::string message = absl::StrCat(
      what, ": ", text != nullptr ? text : "NCCL error", " (", result, ")");
  const char* const last = library.table.ncclGetLastError(comm);
  if (last != nullptr && *last != '\0') absl::StrAppend(&message, ": ", last);
  return absl::UnavailableError(message);
}

}  // namespace cohort::trainer::nccl
