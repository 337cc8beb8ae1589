#include "worker/rank_environment.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "common/job_id.h"
#include "common/resources.h"
#include "rpc/wire_values.h"

namespace cohort::worker {
namespace {

// An outer launcher's word about ranks, or an outer shell's about places;
// scripts and Lightning believe it before ours.
bool Confuses(absl::string_view name) {
  if (name == "OLDPWD") return true;  // the daemon's; a rank has been nowhere
  // Not of an outer job, but of the machine: where it has NCCL.
  if (name == "COHORT_NCCL_LIBRARY") return false;
  for (const char* prefix :
       {"SLURM_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_", "COHORT_"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

// What CUDA shows to the rank.  A stock script takes cuda:LOCAL_RANK, since
// torchrun's ranks see every GPU of their node.  So where each has one whole
// GPU, all see those of all, by local rank, up to the first that is not known:
// under restart policy ONE a sibling may have none at the moment.  Elsewhere no
// order would serve such a script: where ranks share GPUs, have several, or
// have MIG instances, of which CUDA takes one a process.
std::vector<std::string> VisibleGpus(const v1::DesiredPlace& place,
                                     const v1::DesiredProcess& process) {
  std::vector<std::string> own(process.gpu_ids().begin(),
                               process.gpu_ids().end());
  const absl::StatusOr<ResourceSet> each_has =
      rpc::FromWire(place.resources_per_process());
  const bool has_one_gpu = own.size() == 1 &&
                           !absl::StartsWith(own[0], "MIG-") && each_has.ok() &&
                           each_has->Get(kGpu) == Amount::FromUnits(1);
  if (place.isolate_gpus() || !has_one_gpu) return own;
  std::map<int, std::string> by_local_rank;
  for (const v1::DesiredProcess& each : place.processes()) {
    if (each.gpu_ids_size() != 1) continue;
    by_local_rank[each.local_rank()] = each.gpu_ids(0);
  }
  by_local_rank[process.local_rank()] = own[0];
  std::vector<std::string> all;
  for (int i = 0; by_local_rank.contains(i); ++i) {
    all.push_back(by_local_rank[i]);
  }
  // CUDA shows none at all when one is named twice.
  const std::set<std::string> distinct(all.begin(), all.end());
  const bool serves = process.local_rank() < static_cast<int>(all.size()) &&
                      distinct.size() == all.size();
  return serves ? all : own;
}

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// `value` with $NAME and ${NAME} replaced where `base` has the name.
std::string Expand(absl::string_view value,
                   const std::map<std::string, std::string>& base) {
  std::string expanded;
  while (!value.empty()) {
    const size_t dollar = std::min(value.find('$'), value.size());
    absl::StrAppend(&expanded, value.substr(0, dollar));
    value.remove_prefix(dollar);
    if (value.empty()) break;
    const bool braced = absl::StartsWith(value, "${");
    const size_t begin = braced ? 2 : 1;
    size_t end = begin;
    while (end < value.size() && IsNameCharacter(value[end])) ++end;
    const auto found = base.find(std::string(value.substr(begin, end - begin)));
    const bool closed = !braced || absl::StartsWith(value.substr(end), "}");
    if (found != base.end() && closed) {
      absl::StrAppend(&expanded, found->second);
      value.remove_prefix(end + (braced ? 1 : 0));
    } else {
      expanded += '$';
      value.remove_prefix(1);
    }
  }
  return expanded;
}

}  // namespace

std::vector<std::string> RankEnvironment(const std::vector<std::string>& base,
                                         const v1::DesiredPlace& place,
                                         const v1::DesiredProcess& process,
                                         const RankSurroundings& surroundings) {
  std::map<std::string, std::string> env;
  for (const std::string& entry : base) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    if (!Confuses(name)) env[name] = entry.substr(equals + 1);
  }
  const std::map<std::string, std::string> inherited = env;
  // Defaults that a job may overrule.  One thread a rank, as torchrun: ranks
  // that each take all cores slow one another down.  Unbuffered, so that a log
  // shows a line when it was printed.
  env.insert({"OMP_NUM_THREADS", "1"});
  env.insert({"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"});
  env.insert({"PYTHONUNBUFFERED", "1"});
  // The store that rank 0 serves: torch asks for libuv's unless told otherwise,
  // and Debian 13's is built without it and fails.
  env.insert({"USE_LIBUV", "0"});
  for (const auto& [name, value] : place.launch().environment()) {
    env[name] = Expand(value, inherited);
  }
  for (const auto& [name, value] : place.launch().secrets()) env[name] = value;

  // torchrun's contract.
  const std::string run_id = JobIdText(place.job_id());
  env["RANK"] = env["ROLE_RANK"] = absl::StrCat(process.rank());
  env["WORLD_SIZE"] = env["ROLE_WORLD_SIZE"] = absl::StrCat(place.world_size());
  env["LOCAL_RANK"] = absl::StrCat(process.local_rank());
  env["LOCAL_WORLD_SIZE"] = absl::StrCat(place.local_world_size());
  env["GROUP_RANK"] = absl::StrCat(place.node_rank());
  env["GROUP_WORLD_SIZE"] = absl::StrCat(place.node_count());
  env["ROLE_NAME"] = "default";
  env["MASTER_ADDR"] = place.master_address();
  env["MASTER_PORT"] = absl::StrCat(place.master_port());
  env["TORCHELASTIC_RUN_ID"] = run_id;
  env["TORCHELASTIC_MAX_RESTARTS"] = absl::StrCat(place.max_failures());
  env["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(place.number() - 1);
  // Rank 0 serves the store; torch asks for exactly this spelling.
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  env["TORCHELASTIC_ERROR_FILE"] = surroundings.error_file;
  env["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

  env["CUDA_VISIBLE_DEVICES"] = absl::StrJoin(VisibleGpus(place, process), ",");
  env["COHORT_GPU_IDS"] = absl::StrJoin(process.gpu_ids(), ",");

  env["PWD"] = surroundings.work_dir;
  env["COHORT_STORAGE_DIR"] = surroundings.storage_dir;
  env["COHORT_ADDRESS"] = surroundings.head_address;
  env["COHORT_CREDENTIAL_FILE"] = surroundings.credential_file;
  env["COHORT_WORKER_SOCKET"] = surroundings.worker_socket;
  env["COHORT_JOB_ID"] = run_id;
  env["COHORT_PACKAGE"] = absl::BytesToHexString(place.launch().package_hash());
  const absl::StatusOr<JobId> job = JobId::FromBytes(place.job_id());
  if (job.ok() && job->IsElement()) {
    env["COHORT_ARRAY_ID"] = job->array().ToText();
    env["COHORT_ARRAY_INDEX"] = absl::StrCat(job->index());
  }
  env["COHORT_JOB_NAME"] = place.job_name();
  // Then cohort::Init() serves (actor/runtime.h).
  if (place.launch().has_actor()) env["COHORT_ACTOR"] = "1";
  env["COHORT_ATTEMPT_ID"] = absl::BytesToHexString(place.attempt_id());
  env["COHORT_ATTEMPT"] = absl::StrCat(place.number());
  env["COHORT_EPOCH"] = absl::StrCat(place.epoch());
  env["COHORT_SLOT"] = absl::StrCat(process.slot());
  env["COHORT_INCARNATION"] = absl::StrCat(process.incarnation());

  std::vector<std::string> entries;
  entries.reserve(env.size());
  for (const auto& [name, value] : env) {
    entries.push_back(absl::StrCat(name, "=", value));
  }
  return entries;
}

}  // namespace cohort::worker
