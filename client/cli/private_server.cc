#include "client/cli/private_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "client/cli/errors.h"
#include "client/cli/kept_results.h"
#include "client/cli/local_cluster.h"
#include "client/private_cluster.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::cli {
namespace {

void Tell(int fd, char kind, absl::string_view text) {
  const std::string all = absl::StrCat(std::string(1, kind), text);
  // A reader that is gone waits for no cluster: the death signal came, too.
  const ssize_t ignored = write(fd, all.data(), all.size());
  static_cast<void>(ignored);
}

absl::Status Link(const std::string& target, const std::string& link) {
  if (symlink(target.c_str(), link.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("link ", link));
}

// What may grow without end lies in `large`: what ranks and packages fill, and
// the daemons' logs.  All else in `small`, where nothing waits for a disk.
absl::Status PutLargeElsewhere(const std::string& small,
                               const std::string& large) {
  const std::string worker = small + "/worker-0";
  COHORT_RETURN_IF_ERROR(MakeDirectories(worker, 0700));
  for (const char* name : {"logs", "packages", "results", "work"}) {
    const std::string target = absl::StrCat(large, "/", name);
    COHORT_RETURN_IF_ERROR(MakeDirectories(target, 0700));
    COHORT_RETURN_IF_ERROR(Link(target, absl::StrCat(worker, "/", name)));
  }
  for (const char* log : {"head.log", "worker-0.log"}) {
    COHORT_RETURN_IF_ERROR(
        Link(absl::StrCat(large, "/", log), absl::StrCat(small, "/", log)));
  }
  return absl::OkStatus();
}

int Serve(const UpOptions& options, UniqueFd told) {
  LocalCluster cluster(options);
  const absl::Status status = cluster.Start();
  if (!status.ok()) {
    Tell(told.get(), client::kPrivateFailed, status.message());
  } else {
    Tell(told.get(), client::kPrivateServes, cluster.address());
    told.Reset();
    cluster.Serve();
  }
  cluster.End();
  return status.ok() ? kExitOk : kExitFailure;
}

}  // namespace

int ServePrivateCluster(const std::vector<std::string>& arguments) {
  pid_t parent = 0;
  if (arguments.size() < 3 || arguments.size() > 4 ||
      !absl::SimpleAtoi(arguments[2], &parent)) {
    std::fprintf(stderr, "cohort: %s is for programs: use `cohort up`\n",
                 client::kPrivateCommand);
    return kExitUsage;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) kill(getpid(), SIGTERM);  // it died before prctl
  std::signal(SIGPIPE, SIG_IGN);
  fcntl(client::kPrivateToldFd, F_SETFD, FD_CLOEXEC);
  const std::string& large = arguments[0];
  const std::string& small = arguments[1];
  UpOptions options;
  options.workers = 1;
  options.port = 0;
  options.state_dir = small;
  options.is_volatile = true;
  options.is_temporary = true;
  UniqueFd told(client::kPrivateToldFd);
  const absl::Status split = PutLargeElsewhere(small, large);
  if (!split.ok()) Tell(told.get(), client::kPrivateFailed, split.message());
  int code = split.ok() ? Serve(options, std::move(told)) : kExitFailure;
  if (arguments.size() == 4) {
    const absl::Status kept = KeepResults(large + "/results", arguments[3]);
    if (!kept.ok()) code = Fail(kept, /*json=*/false);
  }
  for (const std::string& directory : {small, large}) {
    const absl::Status removed = RemoveTree(directory);
    if (!removed.ok()) code = Fail(removed, /*json=*/false);
  }
  return code;
}

}  // namespace cohort::cli
