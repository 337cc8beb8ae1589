#include "worker/run_as.h"

#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::worker {
namespace {

constexpr char kAllOthers[] = "*";
constexpr size_t kEntryBytes = 16 << 10;
// What tells of the daemon's user, and not of theirs.
constexpr const char* kOfAUser[] = {"HOME",      "USER", "LOGNAME",
                                    "MAIL",      "PWD",  "XDG_RUNTIME_DIR",
                                    "SUDO_USER", "SHELL"};

absl::Status Wrong(const std::string& entry, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--run-as ", Shown(entry), ": ", why));
}

std::vector<gid_t> GroupsOf(const std::string& name, gid_t gid) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  if (getgrouplist(name.c_str(), gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<size_t>(count));
    getgrouplist(name.c_str(), gid, groups.data(), &count);
  }
  groups.resize(static_cast<size_t>(count));
  return groups;
}

absl::StatusOr<OsAccount> Look(const std::string& entry,
                               const std::string& account) {
  char text[kEntryBytes];
  passwd found;
  passwd* there = nullptr;
  uid_t number = 0;
  const bool is_number = absl::SimpleAtoi(account, &number);
  if (is_number) {
    getpwuid_r(number, &found, text, sizeof(text), &there);
  } else {
    getpwnam_r(account.c_str(), &found, text, sizeof(text), &there);
  }
  if (there == nullptr && !is_number) {
    return Wrong(entry, absl::StrCat("this machine has no user ", account,
                                     " (getent passwd lists them)"));
  }
  // One that no database knows has a group of its own number.
  OsAccount known = {.uid = number, .gid = number, .groups = {number}};
  if (there != nullptr) {
    known = {.uid = there->pw_uid,
             .gid = there->pw_gid,
             .groups = GroupsOf(there->pw_name, there->pw_gid),
             .name = there->pw_name,
             .home = there->pw_dir};
  }
  // The last number stands for none.
  if (known.uid == static_cast<uid_t>(-1) ||
      known.gid == static_cast<gid_t>(-1)) {
    return Wrong(entry, "no account has that number");
  }
  if (known.uid == 0) {
    return Wrong(entry, "ranks run as root only without --run-as");
  }
  return known;
}

// The thread's alone: the library's functions change those of all threads.
void SetOwnGroups(const std::vector<gid_t>& groups) {
  const auto failed = syscall(SYS_setgroups, groups.size(), groups.data());
  COHORT_CHECK(failed == 0) << "no right to change groups: errno " << errno;
}

}  // namespace

absl::StatusOr<RunAs> RunAs::Parse(const std::vector<std::string>& entries) {
  RunAs parsed;
  for (const std::string& entry : entries) {
    const size_t equals = entry.rfind('=');
    if (equals == std::string::npos || equals == 0 ||
        equals + 1 == entry.size()) {
      return Wrong(entry, "write WHO=ACCOUNT, as ann=ann or '*=nobody'");
    }
    std::string who = entry.substr(0, equals);
    const bool is_principal =
        who == kAllOthers || who == "cluster" || absl::StartsWith(who, "user/");
    if (!is_principal) who = absl::StrCat("user/", who);
    COHORT_ASSIGN_OR_RETURN(OsAccount account,
                            Look(entry, entry.substr(equals + 1)));
    if (!parsed.accounts_.insert({std::move(who), std::move(account)}).second) {
      return Wrong(entry, "this user is named twice");
    }
  }
  return parsed;
}

absl::StatusOr<std::optional<OsAccount>> RunAs::AccountOf(
    absl::string_view principal) const {
  if (!is_on()) return std::nullopt;
  auto found = accounts_.find(std::string(principal));
  if (found == accounts_.end()) found = accounts_.find(kAllOthers);
  if (found != accounts_.end()) return found->second;
  absl::string_view who = principal;
  if (absl::StartsWith(who, "user/")) who.remove_prefix(5);
  return absl::PermissionDeniedError(absl::StrCat(
      "this worker runs nothing for ", principal.empty() ? "nobody" : principal,
      ": no account here is theirs (start it with --run-as ",
      who.empty() ? kAllOthers : who, "=ACCOUNT)"));
}

std::vector<OsAccount> RunAs::accounts() const {
  std::vector<OsAccount> all;
  for (const auto& [who, account] : accounts_) all.push_back(account);
  return all;
}

std::optional<OsAccount> OwnerOf(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || info.st_uid == 0) return std::nullopt;
  return OsAccount{
      .uid = info.st_uid, .gid = info.st_gid, .groups = {info.st_gid}};
}

ActingAs::ActingAs(const std::optional<OsAccount>& account)
    : is_other_(account.has_value() && account->uid != geteuid()) {
  if (!is_other_) return;
  const int had = getgroups(0, nullptr);
  groups_.resize(static_cast<size_t>(std::max(had, 0)));
  getgroups(had, groups_.data());
  SetOwnGroups(account->groups);
  setfsgid(account->gid);
  setfsuid(account->uid);
  // It says nothing when it fails; a second call tells what there is.
  COHORT_CHECK(static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) ==
               account->uid)
      << "no right to act as user " << account->uid;
}

ActingAs::~ActingAs() {
  if (!is_other_) return;
  setfsuid(geteuid());
  setfsgid(getegid());
  SetOwnGroups(groups_);
}

absl::Status GiveTo(const OsAccount& account, const std::string& path) {
  if (lchown(path.c_str(), account.uid, account.gid) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno,
                     absl::StrCat("give ", path, " to user ", account.uid));
}

std::vector<std::string> EnvironmentOf(const OsAccount& account,
                                       std::vector<std::string> base) {
  std::erase_if(base, [](const std::string& entry) {
    return std::any_of(
        std::begin(kOfAUser), std::end(kOfAUser), [&entry](const char* name) {
          return absl::StartsWith(entry, absl::StrCat(name, "="));
        });
  });
  const std::string name =
      account.name.empty() ? absl::StrCat(account.uid) : account.name;
  base.push_back(
      absl::StrCat("HOME=", account.home.empty() ? "/" : account.home));
  base.push_back(absl::StrCat("USER=", name));
  base.push_back(absl::StrCat("LOGNAME=", name));
  return base;
}

}  // namespace cohort::worker
