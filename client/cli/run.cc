#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/interrupts.h"
#include "client/cli/job_files.h"
#include "client/cli/job_flags.h"
#include "client/cli/job_follow.h"
#include "client/cli/job_name.h"
#include "client/cli/job_text.h"
#include "client/cli/job_wait.h"
#include "client/cli/log_files.h"
#include "client/cli/script.h"
#include "client/cli/shell_environment.h"
#include "client/cli/torchrun_flags.h"
#include "client/connection.h"
#include "client/private_cluster.h"
#include "common/exit_code.h"
#include "common/gang_limits.h"
#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

struct RunFlags {
  TorchrunFlags torchrun;
  JobFlags job;  // those that are as of `submit`
};

// What was asked for, as far as it is known before there is a cluster.
struct RunPlan {
  JobSpec spec;
  int nodes = 1;
  int tee = 3;
  std::optional<std::set<int>> shown_ranks;
};

ScriptKind KindOf(const TorchrunFlags& flags) {
  if (flags.module) return ScriptKind::kModule;
  return flags.no_python ? ScriptKind::kProgram : ScriptKind::kByName;
}

absl::StatusOr<RunPlan> ToPlan(const Invocation& invocation,
                               const RunFlags& flags) {
  const TorchrunFlags& torchrun = flags.torchrun;
  if (!invocation.rest.has_value() || invocation.rest->empty()) {
    return UsageError(
        "there is no program: write it after the flags, as in `cohort run "
        "--nproc-per-node 2 train.py`");
  }
  if (torchrun.module && torchrun.no_python) {
    return UsageError("--module and --no-python exclude each other");
  }
  RunPlan plan;
  COHORT_ASSIGN_OR_RETURN(plan.nodes, NodesOf(torchrun));
  COHORT_ASSIGN_OR_RETURN(plan.tee, TeeOf(torchrun));
  COHORT_ASSIGN_OR_RETURN(plan.shown_ranks, ShownRanksOf(torchrun));
  COHORT_ASSIGN_OR_RETURN(std::vector<std::string> command,
                          CommandFor(*invocation.rest, KindOf(torchrun)));
  JobFlags job = flags.job;
  // Ranks of one machine share its cores, as under torchrun.
  if (job.cpus.empty()) job.cpus = "0";
  if (!torchrun.max_restarts.empty()) {
    COHORT_RETURN_IF_ERROR(
        ParseInt("--max-restarts", torchrun.max_restarts, 0, 1'000'000)
            .status());
    job.max_failures = torchrun.max_restarts;
  }
  job.working_directory = ".";
  const std::string name =
      std::filesystem::path(invocation.rest->front()).filename();
  if (CheckJobName(name).ok() && !NamesRecentJob(name)) {
    job.spec.run_config.name = name;
  }
  COHORT_ASSIGN_OR_RETURN(plan.spec, ToJobSpec(job, std::move(command)));
  return plan;
}

// Whether a cluster is named or runs already.
bool JoinsCluster(const Invocation& invocation, const RunFlags& flags) {
  if (flags.torchrun.standalone) return false;
  return client::HasCluster(invocation.address);
}

// ---- how many ----

// What each living node that has any of it has.
absl::StatusOr<std::set<int>> CountsOf(const std::vector<Node>& nodes,
                                       const char* resource) {
  std::set<int> counts;
  for (const Node& node : nodes) {
    if (node.state() == v1::NODE_STATE_DEAD) continue;
    COHORT_ASSIGN_OR_RETURN(const ResourceSet all,
                            rpc::FromWire(node.resources()));
    const int64_t count = all.Get(resource).WholeUnits();
    if (count > 0) counts.insert(static_cast<int>(count));
  }
  return counts;
}

absl::StatusOr<int> RanksPerNode(const std::string& text,
                                 const std::vector<Node>& nodes) {
  if (text.empty()) return 1;
  if (text != "gpu" && text != "cpu" && text != "auto") {
    return ParseInt("--nproc-per-node", text, 1, kRanksPerNodeMax);
  }
  COHORT_ASSIGN_OR_RETURN(std::set<int> counts, CountsOf(nodes, kGpu));
  if (text == "cpu" || (text == "auto" && counts.empty())) {
    COHORT_ASSIGN_OR_RETURN(counts, CountsOf(nodes, kCpu));
  }
  const auto refuse = [&text](absl::string_view why) {
    return UsageError(
        absl::StrCat("--nproc-per-node ", text, ": ", why, ": give a number"));
  };
  if (counts.empty()) return refuse("no node has any");
  if (counts.size() > 1) return refuse("nodes have different numbers");
  if (*counts.begin() <= kRanksPerNodeMax) return *counts.begin();
  return refuse(absl::StrCat("a node has ", *counts.begin(), ", and at most ",
                             kRanksPerNodeMax, " ranks of a job"));
}

// A GPU each where nodes have as many, else equal parts of those that there
// are: torchrun hides none from a rank, which then takes that of its local
// rank.
absl::StatusOr<Amount> GpusPerRank(const std::vector<Node>& nodes, int ranks) {
  COHORT_ASSIGN_OR_RETURN(const std::set<int> counts, CountsOf(nodes, kGpu));
  if (counts.empty()) return Amount();
  const int gpus = *counts.rbegin();
  const int share = (ranks + gpus - 1) / gpus;
  return Amount::FromTenThousandths(Amount::kScale / share);
}

absl::Status PutSize(const Cluster& cluster, const RunFlags& flags,
                     RunPlan& plan) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Node> nodes, cluster.Nodes());
  COHORT_ASSIGN_OR_RETURN(const int ranks,
                          RanksPerNode(flags.torchrun.nproc_per_node, nodes));
  COHORT_RETURN_IF_ERROR(CheckShownRanks(plan.shown_ranks, ranks));
  ScalingConfig& scaling = plan.spec.scaling_config;
  scaling.num_workers = plan.nodes * ranks;
  scaling.workers_per_node = ranks;
  if (flags.job.gpus.empty()) {
    COHORT_ASSIGN_OR_RETURN(const Amount gpus, GpusPerRank(nodes, ranks));
    scaling.resources_per_worker->Set(kGpu, gpus);
    scaling.use_gpu = !gpus.IsZero();
  }
  return ValidateJobSpec(plan.spec);
}

// ---- the run ----

// At once; they lead their process groups, and keepers end what they leave.
void KillRanks(const Cluster& cluster, const JobId& id) {
  const absl::StatusOr<Job> job = cluster.Get(id);
  if (!job.ok()) return;
  for (const v1::Rank& rank : job->ranks()) {
    if (rank.pid() > 0 && !rank.has_exit()) {
      kill(static_cast<pid_t>(-rank.pid()), SIGKILL);
    }
  }
}

void OnInterrupt(int count, Cluster& cluster, const JobId& id,
                 bool is_private) {
  if (count == 1) {
    const absl::Status stopped = cluster.Stop(id);
    if (stopped.ok()) return;
    Fail(stopped, /*json=*/false);
    // There is nothing to follow where nobody answers.
    if (!is_private) _exit(kExitFailure);
  } else if (is_private) {
    KillRanks(cluster, id);
  } else {
    // Its ranks have their grace; nobody has to watch.
    _exit(kExitStopped);
  }
}

absl::StatusOr<int> FollowToEnd(Cluster& cluster, const JobId& id,
                                const RunPlan& plan, const RunFlags& flags,
                                bool is_private) {
  const Interrupts interrupts([&, is_private](int count) {
    OnInterrupt(count, cluster, id, is_private);
  });
  const ScalingConfig& scaling = plan.spec.scaling_config;
  LogFiles files(flags.torchrun.log_dir, plan.tee);
  const auto take = [&](const LogChunk& chunk) -> absl::StatusOr<bool> {
    COHORT_RETURN_IF_ERROR(files.Add(id, chunk));
    return !plan.shown_ranks.has_value() ||
           plan.shown_ranks->contains(chunk.rank % scaling.workers_per_node);
  };
  COHORT_RETURN_IF_ERROR(FollowOutput(cluster, id, scaling.num_workers, take));
  Progress progress(Progress::Kind::kNone, STDERR_FILENO);
  COHORT_ASSIGN_OR_RETURN(
      const Job job,
      WaitForJob(cluster, id, absl::InfiniteDuration(), progress));
  if (is_private && plan.spec.run_config.storage_path.empty()) {
    SayWhatGoes(cluster, job);
  }
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    std::fprintf(stderr, "cohort: %s\n", OneLine(job.reason()).c_str());
    if (scaling.num_workers > 1) std::fputs(TailText(job).c_str(), stderr);
  }
  return ExitCodeOf(job);
}

absl::StatusOr<int> RunIn(Invocation invocation, const RunFlags& flags,
                          RunPlan plan) {
  std::unique_ptr<client::PrivateCluster> own;
  const bool is_private = !JoinsCluster(invocation, flags);
  if (is_private) {
    if (plan.nodes > 1) {
      return UsageError(absl::StrCat(
          "--nnodes ", plan.nodes,
          ": this machine is one node; name a cluster with --address or "
          "COHORT_ADDRESS, or start one with `cohort up`"));
    }
    COHORT_ASSIGN_OR_RETURN(own, client::PrivateCluster::Start());
    invocation.address = own->address();
    invocation.credential_file = own->CredentialFile();
  }
  // Its values may be anything, so they are kept as secrets are.
  if (!is_private) plan.spec.secrets = ShellEnvironment(environ);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_RETURN_IF_ERROR(PutSize(*cluster, flags, plan));
  COHORT_ASSIGN_OR_RETURN(const JobId id, cluster->Submit(plan.spec));
  if (is_private) {
    // No other node will join.
    if (const auto why = WhyItNeverFits(*cluster, id)) {
      return absl::FailedPreconditionError(
          absl::StrCat("it does not fit this machine: ", *why));
    }
  } else {
    RememberJob(*cluster, id);
    std::fprintf(stderr, "cohort: job %s of the cluster at %s\n",
                 id.ToText().c_str(), cluster->address().c_str());
    SayWhenItNeverFits(*cluster, id);
  }
  return FollowToEnd(*cluster, id, plan, flags, is_private);
}

void AddRunJobFlags(CLI::App& run, JobFlags& job) {
  run.add_option("--cpus", job.cpus, "CPUs per rank (default: 0, uncounted)")
      ->option_text("X");
  run.add_option("--gpus", job.gpus,
                 "GPUs per rank (default: 1, or a part of one where there are "
                 "more ranks than GPUs; 0 where there is none)")
      ->option_text("X");
  run.add_option("--grace", job.grace,
                 "Time between SIGTERM and SIGKILL on Ctrl-C (default: 10s)")
      ->option_text("T");
  run.add_option("--storage-path", job.storage_path,
                 "Directory for checkpoints (default: they are removed with "
                 "the private cluster)")
      ->option_text("DIR");
}

}  // namespace

void AddRun(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = AddCommand(
      cohort, "run", "Run a script or program here, and show its output",
      invocation, [&invocation, flags]() -> absl::StatusOr<int> {
        COHORT_ASSIGN_OR_RETURN(RunPlan plan, ToPlan(invocation, *flags));
        return RunIn(invocation, *flags, std::move(plan));
      });
  AddTorchrunFlags(*run, flags->torchrun);
  AddRunJobFlags(*run, flags->job);
  run->footer(
      "Runs in the current directory, with this shell's environment and "
      "Python, on a cluster of its own that ends with it; or on the cluster "
      "that --address or COHORT_ADDRESS names, or `cohort up` runs here, whose "
      "workers must have the directory.  Ranks get the environment that "
      "torchrun gives, whose other flags are refused with the reason.\n"
      " Ctrl-C ends it: SIGTERM, and SIGKILL after the grace; a second one at "
      "once.  The exit code is that of the rank that failed first (128+n where "
      "signal n ended it), 130 after Ctrl-C, 125 otherwise.\n"
      "\n"
      "  cohort run train.py --lr 0.1\n"
      "  cohort run --nproc-per-node 4 train.py");
}

}  // namespace cohort::cli
