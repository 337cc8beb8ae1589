#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/up.h"
#include "client/connection.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/local_files.h"
#include "common/resources.h"
#include "common/size_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

// Numbers as typed; empty where they were not given.
struct UpFlags {
  UpOptions options;
  std::string workers;
  std::string num_gpus;
  std::string simulate_gpus;
  std::string port;
};

// InvalidArgument when the daemons could not read `text`.
template <typename Parse>
absl::Status Check(absl::string_view flag, const std::string& text,
                   Parse parse) {
  if (text.empty()) return absl::OkStatus();
  const absl::Status status = parse(text).status();
  if (status.ok()) return absl::OkStatus();
  return FlagError(flag, status);
}

// A cluster on one machine is for that machine.
absl::StatusOr<HostPort> ParseLoopback(absl::string_view text) {
  COHORT_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(text));
  if (address.IsLoopback()) return address;
  return absl::InvalidArgumentError(absl::StrCat(
      address.ToString(),
      ": without TLS `cohort up` listens on loopback only: give 127.0.0.1"));
}

absl::Status CheckTexts(const UpOptions& options) {
  COHORT_RETURN_IF_ERROR(Check("--num-cpus", options.num_cpus, &Amount::Parse));
  COHORT_RETURN_IF_ERROR(Check("--memory", options.memory, &ParseSize));
  COHORT_RETURN_IF_ERROR(
      Check("--resources", options.resources, &ParseResources));
  COHORT_RETURN_IF_ERROR(
      Check("--keep-results", options.keep_results, &ParseSize));
  COHORT_RETURN_IF_ERROR(
      Check("--http-address", options.http_address, &ParseLoopback));
  return Check("--node-timeout", options.node_timeout, &ParseDuration);
}

absl::StatusOr<UpOptions> ToOptions(const UpFlags& flags) {
  UpOptions options = flags.options;
  if (!flags.workers.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        options.workers, ParseInt("--workers", flags.workers,
                                  options.cluster_file.empty() ? 1 : 0, 1024));
  }
  if (!flags.port.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.port,
                            ParseInt("--port", flags.port, 0, 65535));
  }
  if (!flags.num_gpus.empty() && !flags.simulate_gpus.empty()) {
    return UsageError(
        "--num-gpus and --simulate-gpus exclude each other: simulated GPUs "
        "stand in place of real ones");
  }
  if (!flags.num_gpus.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.num_gpus,
                            ParseInt("--num-gpus", flags.num_gpus, 0, 1024));
  }
  if (!flags.simulate_gpus.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        options.simulate_gpus,
        ParseInt("--simulate-gpus", flags.simulate_gpus, 0, 1024));
  }
  COHORT_RETURN_IF_ERROR(CheckTexts(options));
  // As clients, which look for `address` and `credential` there.
  if (options.state_dir.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.state_dir, client::UpDirectory());
  }
  return options;
}

void AddWorkerFlags(CLI::App& up, UpFlags& flags) {
  UpOptions& options = flags.options;
  up.add_option("--workers", flags.workers, "Worker daemons (default: 2)")
      ->option_text("N");
  up.add_option("--num-cpus", options.num_cpus,
                "CPUs of each worker (default: the machine's, divided)")
      ->option_text("X");
  up.add_option("--num-gpus", flags.num_gpus,
                "Real GPUs of each worker, none shared (default: the "
                "machine's, divided)")
      ->option_text("N");
  up.add_option("--simulate-gpus", flags.simulate_gpus,
                "Simulated GPUs of each worker, instead of real ones")
      ->option_text("N");
  up.add_option("--memory", options.memory,
                "Memory of each worker, as 64GiB (default: the machine's, "
                "divided)")
      ->option_text("SIZE");
  up.add_option("--resources", options.resources,
                "Custom resources of each worker, as license=1,disk=2")
      ->option_text("k=v,...");
  up.add_option("--keep-results", options.keep_results,
                "Disk space for the results of jobs on each worker, as 200GiB "
                "(default: no limit)")
      ->option_text("SIZE");
}

void AddHeadFlags(CLI::App& up, UpFlags& flags) {
  UpOptions& options = flags.options;
  up.add_option("--port", flags.port,
                "The head's port on 127.0.0.1; 0: a free port (default: 7710)")
      ->option_text("P");
  up.add_option("--http-address", options.http_address,
                "Where the head serves /healthz, /readyz, /metrics and /v1; "
                "port 0: a free one (default: 127.0.0.1:7711, with --port 0 a "
                "free one)")
      ->option_text("HOST:PORT");
  up.add_option(
        "--state-dir", options.state_dir,
        absl::StrCat("Directory of the credential, the head's store and the "
                     "workers' state (default: ",
                     DefaultStateDirectoryText("up"), ")"))
      ->option_text("DIR");
  up.add_option("--ready-file", options.ready_file,
                "File to write the head's HOST:PORT to, once all workers have "
                "joined")
      ->option_text("F");
  up.add_option("--node-timeout", options.node_timeout,
                "Silence after which a node is dead (default: 10s)")
      ->option_text("T");
  up.add_option("--cluster-file", options.cluster_file,
                "Node types that may be launched as well, as YAML "
                "(docs/autoscaling.md); then --workers may be 0")
      ->option_text("F");
  up.add_flag("--volatile", options.is_volatile,
              "Allow a state directory in memory (tmpfs), which is lost when "
              "the machine stops");
}

}  // namespace

void AddUp(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<UpFlags>();
  CLI::App* up =
      cohort.add_subcommand("up", "Run a cluster on this machine until Ctrl-C");
  AddWorkerFlags(*up, *flags);
  AddHeadFlags(*up, *flags);
  up->add_flag("--detach", flags->options.detach,
               "Return when all workers have joined; `cohort down` ends it");
  up->footer(
      "Prints the COHORT_ADDRESS and COHORT_CREDENTIAL_FILE that other shells "
      "need when --state-dir is not the default.  Ctrl-C or SIGTERM ends "
      "ranks, workers and head; jobs stay recorded and go on with the next "
      "`cohort up` on that directory.");
  up->callback([&invocation, flags] {
    invocation.run = [flags]() -> absl::StatusOr<int> {
      COHORT_ASSIGN_OR_RETURN(const UpOptions options, ToOptions(*flags));
      return RunUp(options);
    };
  });
}

void AddDown(CLI::App& cohort, Invocation& invocation) {
  auto state_dir = std::make_shared<std::string>();
  CLI::App* down = cohort.add_subcommand(
      "down", "End the cluster that `cohort up` runs on this machine");
  down->add_option("--state-dir", *state_dir,
                   absl::StrCat("The state directory of `cohort up` (default: ",
                                DefaultStateDirectoryText("up"), ")"))
      ->option_text("DIR");
  down->callback([&invocation, state_dir] {
    invocation.run = [state_dir]() -> absl::StatusOr<int> {
      if (state_dir->empty()) {
        COHORT_ASSIGN_OR_RETURN(*state_dir, client::UpDirectory());
      }
      COHORT_RETURN_IF_ERROR(RunDown(*state_dir));
      return kExitOk;
    };
  });
}

}  // namespace cohort::cli
