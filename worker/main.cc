#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/file_limit.h"
#include "common/key_values.h"
#include "common/local_files.h"
#include "common/log.h"
#include "common/options/daemon_options.h"
#include "common/printable_text.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/stop_signal.h"
#include "rpc/certificate.h"
#include "rpc/join_token.h"
#include "worker/join.h"
#include "worker/options.h"
#include "worker/worker.h"

namespace cohort::worker {
namespace {

// The command line as it was typed.
struct Flags {
  std::string address;
  std::string credential_file;
  std::string join;
  std::string name;
  std::string state_dir;
  std::string ready_file;
  std::string host;
  std::string num_cpus;
  std::string memory;
  std::string resources;
  std::string labels;
  std::vector<std::string> taints;
  std::optional<int> num_gpus;
  std::string share = "0/1";
  std::optional<int> simulate_gpus;
  std::string nvml_library = WorkerOptions().nvml_library;
  std::string keep_results;
  std::string keep_logs;
  std::string drain_on_sigterm;
  std::vector<std::string> run_as;
  bool no_pinning = false;
  bool end_ranks = false;
};

const char* Environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

void Define(CLI::App& app, Flags& flags) {
  app.add_option("--address", flags.address,
                 "The head: HOST:PORT (default: COHORT_ADDRESS)");
  app.add_option("--credential-file", flags.credential_file,
                 "The cluster's credential (default: COHORT_CREDENTIAL_FILE)");
  app.add_option("--join", flags.join,
                 "A token of `cohort token create`, with which this node gets "
                 "its own credential, once; COHORT_JOIN_TOKEN keeps it out of "
                 "the list of processes")
      ->option_text("TOKEN");
  app.add_option("--name", flags.name,
                 "Name shown to people (default: the host's name)");
  app.add_option("--state-dir", flags.state_dir,
                 "Node id, journal, logs, results (default: " +
                     DefaultStateDirectoryText("worker") + ")");
  app.add_option("--ready-file", flags.ready_file,
                 "Written, with the head's address, once this node has joined");
  app.add_option("--host", flags.host,
                 "Address at which other nodes reach the ranks here (default: "
                 "that of the interface towards the head)");
  app.add_option("--num-cpus", flags.num_cpus,
                 "CPUs to offer (default: the machine's)");
  app.add_option("--num-gpus", flags.num_gpus,
                 "Offer the first N real GPUs (default: all)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--share", flags.share,
                 "I/N: several workers divide this machine; this one takes "
                 "share I (from 0) of N of what is not given by a flag");
  app.add_option("--simulate-gpus", flags.simulate_gpus,
                 "Offer N simulated GPUs in place of real ones")
      ->check(CLI::Range(0, 1024));
  app.add_option("--nvml-library", flags.nvml_library,
                 "NVIDIA's management library, by which GPUs are found and "
                 "watched: a name or a path")
      ->capture_default_str();
  app.add_flag("--no-numa-pinning", flags.no_pinning,
               "Let ranks with GPUs run on all CPUs, not only on those of "
               "their GPUs' NUMA nodes");
  app.add_option("--memory", flags.memory,
                 "Memory to offer, as 64GiB (default: the machine's)");
  app.add_option("--resources", flags.resources,
                 "Custom resources: name=amount,...");
  app.add_option("--labels", flags.labels, "Labels: name=value,...");
  app.add_option("--taint", flags.taints,
                 "Jobs that do not tolerate this taint stay off this node (may "
                 "be given again)")
      ->option_text("K[=V]")
      ->type_size(1)
      ->allow_extra_args(false);
  app.add_option("--run-as", flags.run_as,
                 "Ranks of the user WHO run as this machine's user ACCOUNT: "
                 "ann=ann, cluster=ops (who holds the head's credential), "
                 "'*=nobody' (all others). Others are refused here. For a "
                 "worker that runs as root; may be given again")
      ->option_text("WHO=ACCOUNT")
      ->type_size(1)
      ->allow_extra_args(false);
  app.add_option("--keep-results", flags.keep_results,
                 "Disk space for the results of jobs, as 200GiB: of what an "
                 "attempt leaves beyond it, the newest files that fit are kept "
                 "and the others named (default: no limit)");
  app.add_option("--keep-logs", flags.keep_logs,
                 "Disk space for the logs of ranks, as 20GiB: beyond it the "
                 "oldest are removed, and all after 30 days (default: a tenth "
                 "of their disk)");
  app.add_option("--drain-on-sigterm", flags.drain_on_sigterm,
                 "On SIGTERM drain this node, with that deadline, and end once "
                 "nothing is left here, or after the deadline; a second "
                 "SIGTERM ends at once")
      ->option_text("DURATION");
  app.add_flag("--end-ranks", flags.end_ranks,
               "On SIGTERM end the ranks too; without it they go on and the "
               "next daemon on this state directory takes them over");
}

// Of one machine; as many as `cohort up` starts.
constexpr int kShareMax = 1'024;

absl::Status ParseShare(const std::string& text, InventoryOptions& inventory) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() != 2 ||
      !absl::SimpleAtoi(parts[0], &inventory.share_index) ||
      !absl::SimpleAtoi(parts[1], &inventory.share_count) ||
      inventory.share_index < 0 ||
      inventory.share_index >= inventory.share_count ||
      inventory.share_count > kShareMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--share ", Shown(text),
                     ": write I/N with 0 <= I < N and N "
                     "at most ",
                     kShareMax));
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerOptions> ToOptions(const Flags& flags) {
  WorkerOptions options;
  const std::string address =
      flags.address.empty() ? Environment("COHORT_ADDRESS", "") : flags.address;
  if (address.empty()) {
    return absl::InvalidArgumentError(
        "no head: give --address HOST:PORT or set COHORT_ADDRESS");
  }
  COHORT_ASSIGN_OR_RETURN(
      options.head, Of(flags.address.empty() ? "COHORT_ADDRESS" : "--address",
                       ParseHostPort(address)));
  options.credential_file = flags.credential_file;
  options.join = flags.join;
  if (options.credential_file.empty() && options.join.empty()) {
    options.join = Environment("COHORT_JOIN_TOKEN", "");
  }
  options.name = flags.name;
  std::string state_dir = flags.state_dir;
  if (state_dir.empty()) {
    COHORT_ASSIGN_OR_RETURN(state_dir, DefaultStateDirectory("worker"));
  }
  // Absolute: keepers and ranks run in other directories.
  std::error_code no_directory;
  options.state_dir =
      CleanPath(std::filesystem::absolute(state_dir, no_directory).string());
  if (options.credential_file.empty() && options.join.empty() &&
      access(NodeCredentialFile(options.state_dir).c_str(), F_OK) != 0) {
    options.credential_file = Environment("COHORT_CREDENTIAL_FILE", "");
  }
  options.ready_file = flags.ready_file;
  options.host = flags.host;
  if (!flags.num_cpus.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.inventory.cpus,
                            Of("--num-cpus", Amount::Parse(flags.num_cpus)));
  }
  if (!flags.memory.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.inventory.memory_bytes,
                            Of("--memory", ParseSize(flags.memory)));
    ResourceSet memory;
    memory.Set(kMemory, Amount::FromUnits(*options.inventory.memory_bytes));
    COHORT_RETURN_IF_ERROR(Annotate(
        memory.Validate(), absl::StrCat("--memory ", Shown(flags.memory))));
  }
  options.inventory.gpus = flags.num_gpus;
  COHORT_RETURN_IF_ERROR(ParseShare(flags.share, options.inventory));
  COHORT_ASSIGN_OR_RETURN(options.inventory.custom,
                          Of("--resources", ParseResources(flags.resources)));
  COHORT_ASSIGN_OR_RETURN(options.labels,
                          Of("--labels", ParseKeyValues(flags.labels)));
  COHORT_ASSIGN_OR_RETURN(options.taints,
                          Of("--taint", ParseTaints(flags.taints)));
  COHORT_ASSIGN_OR_RETURN(options.run_as, RunAs::Parse(flags.run_as));
  if (options.run_as.is_on() && geteuid() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--run-as: this worker is user ", geteuid(),
                     ", and only root's can run ranks as others (start it as "
                     "root, or leave it out)"));
  }
  if (!flags.keep_results.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        options.keep_results_bytes,
        Of("--keep-results", ParseSize(flags.keep_results)));
  }
  if (!flags.keep_logs.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.keep_logs_bytes,
                            Of("--keep-logs", ParseSize(flags.keep_logs)));
  }
  if (!flags.drain_on_sigterm.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        options.drain_on_sigterm,
        Of("--drain-on-sigterm", ParseDuration(flags.drain_on_sigterm)));
  }
  options.simulated_gpus = flags.simulate_gpus;
  options.nvml_library = flags.nvml_library;
  options.pin_ranks = !flags.no_pinning;
  options.end_ranks = flags.end_ranks;
  COHORT_RETURN_IF_ERROR(options.Validate());
  return options;
}

// Others see a process's command line: a token goes from it once it is read.
void HideTokens(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* const token = std::strstr(argv[i], rpc::JoinToken::kPrefix);
    if (token != nullptr) std::memset(token, 'x', std::strlen(token));
  }
}

int Main(int argc, char** argv) {
  // Its memory has the node's secret: no core dumps of it, and no debugger of a
  // rank with the same account.  What it executes is free again.
  prctl(PR_SET_DUMPABLE, 0);
  StopSignal stop;
  RaiseFileLimit();
  SetLogProgram("worker");
  CLI::App app("The worker daemon: offers this node's devices and runs ranks.",
               "cohort-worker");
  Flags flags;
  Define(app, flags);
  if (const auto ended = ParseDaemonOptions(app, argc, argv)) return *ended;
  HideTokens(argc, argv);
  const absl::StatusOr<WorkerOptions> options = ToOptions(flags);
  if (!options.ok()) return FailToStart(app, options.status());

  rpc::RequireTls13();
  std::atomic<bool> fatal = false;
  const auto worker = Worker::Start(*options, [&](const absl::Status& status) {
    COHORT_LOG(kError, "worker_ends", {"why", status.message()});
    fatal = true;
    stop.Raise();
  });
  if (!worker.ok()) return FailToStart(app, worker.status());
  const int signal = stop.Wait();
  std::thread told_again([&] {
    stop.Wait();
    (*worker)->Hurry();
  });
  if (signal == SIGTERM && !fatal && options->drain_on_sigterm.has_value()) {
    (*worker)->Drain(*options->drain_on_sigterm);
  }
  (*worker)->Shutdown();
  stop.Raise();
  told_again.join();
  return fatal ? kExitFailure : kExitOk;
}

}  // namespace
}  // namespace cohort::worker

int main(int argc, char** argv) { return cohort::worker::Main(argc, argv); }
