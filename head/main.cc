#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"

#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/file_limit.h"
#include "common/local_files.h"
#include "common/log.h"
#include "common/options/daemon_options.h"
#include "common/service_notify.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/stop_signal.h"
#include "head/archive/offline.h"
#include "head/head.h"
#include "head/options.h"
#include "head/state/history_limits.h"

namespace cohort::head {
namespace {

// The command line as it was typed.
struct Flags {
  std::string address = "127.0.0.1:7710";
  std::string http_address;
  std::string state_dir;
  std::string ready_file;
  std::string node_timeout = "10s";
  int64_t keep_jobs = HistoryLimits().jobs.count_max;
  std::string keep_for = "30d";
  bool is_volatile = false;
  bool new_credential = false;
  bool insecure = false;
  std::string cluster_file;
  bool autoscaler_dry_run = false;
};

void Define(CLI::App& app, Flags& flags) {
  app.add_option("--address", flags.address,
                 "Where to listen: HOST:PORT, port 0 for a free one")
      ->capture_default_str();
  app.add_option("--http-address", flags.http_address,
                 "Where to serve /healthz, /readyz, /metrics and /v1 "
                 "(default: 127.0.0.1:7711; a free port where --address asks "
                 "for one)");
  app.add_option("--state-dir", flags.state_dir,
                 "The control store, packages and the credential (default: " +
                     DefaultStateDirectoryText("head") + ")");
  app.add_option("--ready-file", flags.ready_file,
                 "Written, with the address, once the head serves");
  app.add_option("--node-timeout", flags.node_timeout,
                 "Silence after which a node is dead")
      ->capture_default_str();
  app.add_option("--keep-jobs", flags.keep_jobs,
                 "How many ended jobs and arrays are remembered")
      ->capture_default_str();
  app.add_option("--keep-for", flags.keep_for,
                 "How long ended jobs, events and dead nodes are remembered; "
                 "less if there is no room")
      ->capture_default_str();
  app.add_flag("--volatile", flags.is_volatile,
               "Allow a state directory on a tmpfs, lost with the machine");
  app.add_flag("--new-credential", flags.new_credential,
               "Make a new credential and a new certificate authority where "
               "this cluster's are lost: every worker and client then needs "
               "the new credential");
  app.add_option("--cluster-file", flags.cluster_file,
                 "What nodes may be launched, as YAML (docs/autoscaling.md); "
                 "applied at the start, as by `cohort autoscaler apply`");
  app.add_flag("--autoscaler-dry-run", flags.autoscaler_dry_run,
               "Launch and end no nodes, only say which in `cohort autoscaler "
               "status`");
  app.add_flag("--insecure", flags.insecure,
               "Plaintext in place of TLS, on loopback only, for a new state "
               "directory: another program that takes the port while the head "
               "is down gets the secret");
  app.footer(
      "cohort head backup DIR                   backs up the store of a head "
      "that runs\n"
      "cohort head restore DIR --state-dir NEW  makes a state directory of a "
      "backup\n"
      "cohort head inspect [TABLE]              prints the records of a store\n"
      "cohort head check                        verifies all of a store\n"
      "cohort head check-cluster-file FILE      reads a cluster file\n"
      "Each has --help.");
}

absl::StatusOr<HeadOptions> ToOptions(const Flags& flags) {
  HeadOptions options;
  COHORT_ASSIGN_OR_RETURN(options.address,
                          Of("--address", ParseHostPort(flags.address)));
  if (!flags.http_address.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        options.http_address,
        Of("--http-address", ParseHostPort(flags.http_address)));
  }
  options.state_dir = flags.state_dir;
  if (options.state_dir.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.state_dir, DefaultStateDirectory("head"));
  }
  options.ready_file = flags.ready_file;
  COHORT_ASSIGN_OR_RETURN(
      options.node_timeout,
      Of("--node-timeout", ParseDuration(flags.node_timeout)));
  options.keep_jobs = flags.keep_jobs;
  COHORT_ASSIGN_OR_RETURN(options.keep_for,
                          Of("--keep-for", ParseDuration(flags.keep_for)));
  options.is_volatile = flags.is_volatile;
  options.new_credential = flags.new_credential;
  options.insecure = flags.insecure;
  options.cluster_file = flags.cluster_file;
  options.autoscaler_dry_run = flags.autoscaler_dry_run;
  COHORT_RETURN_IF_ERROR(options.Validate());
  return options;
}

// Its memory has the keys of the cluster; whoever wants one raises the limit of
// the running process (prlimit).
void KeepOutOfCoreDumps() {
  rlimit limit = {};
  getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = 0;
  setrlimit(RLIMIT_CORE, &limit);
}

int Main(int argc, char** argv) {
  if (const auto ended = RunOffline(argc, argv)) return *ended;
  StopSignal stop;
  RaiseFileLimit();
  SetLogProgram("head");
  CLI::App app("The head daemon: keeps the cluster's state and places work.",
               "cohort-head");
  Flags flags;
  Define(app, flags);
  if (const auto ended = ParseDaemonOptions(app, argc, argv)) return *ended;
  const absl::StatusOr<HeadOptions> options = ToOptions(flags);
  if (!options.ok()) return FailToStart(app, options.status());

  KeepOutOfCoreDumps();
  std::atomic<bool> fatal = false;
  const auto head = Head::Start(*options, [&](const absl::Status& status) {
    COHORT_LOG(kError, "head_ends", {"why", status.message()});
    fatal = true;
    stop.Raise();
  });
  if (!head.ok()) return FailToStart(app, head.status());
  NotifyServiceManager("READY=1");
  stop.Wait();
  NotifyServiceManager("STOPPING=1");
  return fatal ? kExitFailure : kExitOk;
}

}  // namespace
}  // namespace cohort::head

int main(int argc, char** argv) { return cohort::head::Main(argc, argv); }
