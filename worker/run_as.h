#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::worker {

// A user of this machine, as whom ranks run.  A value.
struct OsAccount {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups = {};
  // Of the user database; empty where that has none.
  std::string name = {};
  std::string home = {};
};

// As whom the ranks of which user run: what --run-as says.  Immutable value.
class RunAs {
 public:
  // Nobody: ranks run as the worker.
  RunAs() = default;

  // Of WHO=ACCOUNT, each.  WHO is a user of the cluster, "cluster" for who
  // holds the head's credential, or "*" for all others; ACCOUNT a name of the
  // user database or a number.  InvalidArgument, naming the entry: no such
  // account, root, or a WHO that comes twice.
  static absl::StatusOr<RunAs> Parse(const std::vector<std::string>& entries);

  bool is_on() const { return !accounts_.empty(); }
  // Nothing when it is off.  PermissionDenied for a principal that no entry
  // names.
  absl::StatusOr<std::optional<OsAccount>> AccountOf(
      absl::string_view principal) const;
  std::vector<OsAccount> accounts() const;

 private:
  std::map<std::string, OsAccount> accounts_;  // by principal, or "*"
};

// Whose `path` is, by itself and not what it may link to.  Nothing when it is
// root's, or is not there.
std::optional<OsAccount> OwnerOf(const std::string& path);

// While it lives, this thread touches files with that account's rights and no
// other's, and what it makes is that account's: no link that a user has laid
// leads it anywhere that the user may not go.  Without an account it does
// nothing.  One at a time on a thread, which starts no others meanwhile: they
// would have the same rights for good.
class ActingAs {
 public:
  // REQUIRES: `account` is nothing, or this process is root's.
  explicit ActingAs(const std::optional<OsAccount>& account);
  ~ActingAs();

  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;

 private:
  const bool is_other_;
  std::vector<gid_t> groups_;  // that it had
};

// Gives `path`, which may be a link, to the account.
absl::Status GiveTo(const OsAccount& account, const std::string& path);

// `base`, the daemon's environment, as that user would have it.
std::vector<std::string> EnvironmentOf(const OsAccount& account,
                                       std::vector<std::string> base);

}  // namespace cohort::worker
