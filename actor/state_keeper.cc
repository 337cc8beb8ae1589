#include "actor/state_keeper.h"

#include <sys/types.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "actor/call_failure.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;

constexpr char kClaim[] = "claim";

// Incarnations of that slot.
struct Files {
  std::set<uint64_t> saved;
  std::set<uint64_t> claims;
};

// What one that was killed had begun to write goes.
Files FilesOf(const std::string& directory, int slot) {
  Files files;
  std::error_code error;
  for (std::filesystem::directory_iterator each(directory, error);
       !error && each != std::filesystem::directory_iterator();
       each.increment(error)) {
    const std::vector<std::string> parts =
        absl::StrSplit(each->path().filename().string(), '.');
    int of_slot = 0;
    uint64_t incarnation = 0;
    if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &of_slot) ||
        of_slot != slot || !absl::SimpleAtoi(parts[1], &incarnation)) {
      continue;
    }
    if (parts.size() == 2) {
      files.saved.insert(incarnation);
    } else if (parts.size() == 3 && parts[2] == kClaim) {
      files.claims.insert(incarnation);
    } else {
      remove(each->path().c_str());
    }
  }
  return files;
}

}  // namespace

StateKeeper::StateKeeper(Instance& instance, std::string directory, int slot,
                         uint64_t incarnation)
    : instance_(instance),
      directory_(std::move(directory)),
      slot_(slot),
      incarnation_(incarnation) {}

std::string StateKeeper::Path(uint64_t incarnation) const {
  return absl::StrCat(directory_, "/", slot_, ".", incarnation);
}

std::string StateKeeper::ClaimPath(uint64_t incarnation) const {
  return absl::StrCat(Path(incarnation), ".", kClaim);
}

absl::Status StateKeeper::Restore() {
  auto [saved, claims] = FilesOf(directory_, slot_);
  if (!claims.empty()) {
    // Those that were saved after another had begun.
    const auto valid = saved.lower_bound(*claims.rbegin());
    for (auto it = saved.begin(); it != valid; it = saved.erase(it)) {
      remove(Path(*it).c_str());
    }
  }
  if (saved.empty()) {
    COHORT_RETURN_IF_ERROR(Claim());
  } else {
    COHORT_RETURN_IF_ERROR(TakeOver(saved));
  }
  for (const uint64_t older : claims) {
    if (older < incarnation_) remove(ClaimPath(older).c_str());
  }
  if (saved.empty()) return absl::OkStatus();
  const std::string own = Path(incarnation_);
  COHORT_ASSIGN_OR_RETURN(const std::string state, ReadFile(own, kBytesMax));
  return Annotate(instance_.Restore(state), own);
}

absl::Status StateKeeper::Claim() {
  COHORT_RETURN_IF_ERROR(MakeDirectories(directory_, kDirectoryMode));
  return WriteFileAtomically(ClaimPath(incarnation_), "", kFileMode);
}

absl::Status StateKeeper::TakeOver(std::set<uint64_t> saved) {
  const std::string newest = Path(*saved.rbegin());
  const std::string own = Path(incarnation_);
  if (rename(newest.c_str(), own.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot take over ", newest));
  }
  COHORT_RETURN_IF_ERROR(SyncDirectory(directory_));
  saved.erase(incarnation_);
  for (const uint64_t older : saved) remove(Path(older).c_str());
  return absl::OkStatus();
}

absl::Status StateKeeper::Save() {
  MutexLock lock(saving_);
  COHORT_ASSIGN_OR_RETURN(const std::string state, instance_.Save());
  if (state.size() > kBytesMax) {
    return TooLarge("the state is", state.size(), kBytesMax);
  }
  COHORT_RETURN_IF_ERROR(MakeDirectories(directory_, kDirectoryMode));
  return WriteFileAtomically(Path(incarnation_), state, kFileMode);
}

}  // namespace cohort::actor
