#include "common/file_limit.h"

#include <algorithm>
#include <optional>

namespace cohort {
namespace {

// A store's tables, packages, logs and HTTP need less.
constexpr rlim_t kKeptFreeMax = 512;

std::optional<rlimit> inherited;

rlimit Current() {
  rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

}  // namespace

void RaiseFileLimit() {
  inherited = Current();
  const rlimit raised = {inherited->rlim_max, inherited->rlim_max};
  // Cannot fail: anybody may go up to the hard limit.
  setrlimit(RLIMIT_NOFILE, &raised);
}

rlimit InheritedFileLimit() { return inherited.value_or(Current()); }

int FilesKeptFree() {
  return static_cast<int>(std::min(Current().rlim_cur / 4, kKeptFreeMax));
}

}  // namespace cohort
