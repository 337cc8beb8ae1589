#include "worker/rank_environment.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/job_limits.h"
#include "common/resources.h"
#include "rpc/wire_values.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

using testing::Contains;
using testing::Not;
using testing::StartsWith;

class RankEnvironmentTest : public testing::Test {
 protected:
  RankEnvironmentTest() {
    place_.set_job_id(std::string(16, '\1'));
    place_.set_attempt_id(std::string(16, '\2'));
    place_.set_number(3);
    place_.set_epoch(3);
    place_.set_world_size(4);
    place_.set_local_world_size(2);
    place_.set_node_rank(1);
    place_.set_node_count(2);
    place_.set_max_failures(5);
    place_.set_master_address("10.0.0.7");
    place_.set_master_port(29511);
    for (int local = 0; local < 2; ++local) {
      v1::DesiredProcess* const process = place_.add_processes();
      process->set_slot(2 + local);
      process->set_incarnation(7);
      process->set_rank(2 + local);
      process->set_local_rank(local);
    }
    process_ = place_.processes(1);
  }

  // To the rank at `local`; the one that is made is local rank 1.
  void Grant(int local, const std::vector<std::string>& gpus) {
    place_.mutable_processes(local)->clear_gpu_ids();
    for (const std::string& gpu : gpus) {
      place_.mutable_processes(local)->add_gpu_ids(gpu);
    }
    process_ = place_.processes(1);
  }

  // GPUs of each rank, as the job asks for them.
  void Ask(double gpus) {
    ResourceSet each;
    each.Set(kGpu, *Amount::Parse(absl::StrCat(gpus)));
    *place_.mutable_resources_per_process() = rpc::ToWire(each);
  }

  std::vector<std::string> Make(const std::vector<std::string>& base) {
    return RankEnvironment(base, place_, process_,
                           {.head_address = "h:1",
                            .credential_file = "/c",
                            .worker_socket = "/w",
                            .error_file = "/e.json",
                            .work_dir = "/work/a"});
  }

  v1::DesiredPlace place_;
  v1::DesiredProcess process_;
};

TEST_F(RankEnvironmentTest, SaysWhatTorchrunSays) {
  const std::vector<std::string> env = Make({});
  for (const char* entry :
       {"RANK=3",
        "LOCAL_RANK=1",
        "WORLD_SIZE=4",
        "LOCAL_WORLD_SIZE=2",
        "GROUP_RANK=1",
        "GROUP_WORLD_SIZE=2",
        "ROLE_RANK=3",
        "ROLE_WORLD_SIZE=4",
        "ROLE_NAME=default",
        "MASTER_ADDR=10.0.0.7",
        "MASTER_PORT=29511",
        "TORCHELASTIC_RESTART_COUNT=2",
        "TORCHELASTIC_MAX_RESTARTS=5",
        "TORCHELASTIC_USE_AGENT_STORE=False",
        "TORCHELASTIC_RUN_ID=01010101010101010101010101010101",
        "TORCHELASTIC_ERROR_FILE=/e.json",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "OMP_NUM_THREADS=1",
        "USE_LIBUV=0",
        "COHORT_SLOT=3",
        "COHORT_INCARNATION=7",
        "COHORT_PACKAGE=",
        "COHORT_EPOCH=3"}) {
    EXPECT_THAT(env, Contains(entry));
  }
  EXPECT_TRUE(std::is_sorted(env.begin(), env.end()));
}

TEST_F(RankEnvironmentTest, RemovesWhatOuterLaunchersSay) {
  const std::vector<std::string> env = Make(
      {"SLURM_PROCID=9", "OMPI_COMM_WORLD_RANK=9", "PMI_RANK=9",
       "COHORT_ADDRESS=outer:1", "TORCHELASTIC_RUN_ID=outer", "PATH=/bin"});
  EXPECT_THAT(env, Contains("PATH=/bin"));
  EXPECT_THAT(env, Contains("COHORT_ADDRESS=h:1"));
  for (const char* prefix : {"SLURM_", "OMPI_", "PMI_"}) {
    EXPECT_THAT(env, Not(Contains(StartsWith(prefix))));
  }
}

TEST_F(RankEnvironmentTest, FindsTheNodesNcclUnlessTheJobNamesAnother) {
  const std::vector<std::string> base = {"COHORT_NCCL_LIBRARY=/node/libnccl"};
  EXPECT_THAT(Make(base), Contains("COHORT_NCCL_LIBRARY=/node/libnccl"));
  (*place_.mutable_launch()->mutable_environment())["COHORT_NCCL_LIBRARY"] =
      "/job/libnccl";
  EXPECT_THAT(Make(base), Contains("COHORT_NCCL_LIBRARY=/job/libnccl"));
}

TEST_F(RankEnvironmentTest, AJobOverrulesDefaultsButNotTheContract) {
  (*place_.mutable_launch()->mutable_environment())["OMP_NUM_THREADS"] = "8";
  (*place_.mutable_launch()->mutable_environment())["RANK"] = "77";
  (*place_.mutable_launch()->mutable_environment())["MINE"] = "a=b";
  const std::vector<std::string> env = Make({"MINE=base"});
  EXPECT_THAT(env, Contains("OMP_NUM_THREADS=8"));
  EXPECT_THAT(env, Contains("RANK=3"));
  EXPECT_THAT(env, Contains("MINE=a=b"));
}

TEST_F(RankEnvironmentTest, ExpandsWhatTheWorkerHasInTheJobsValues) {
  auto& job = *place_.mutable_launch()->mutable_environment();
  job["PATH"] = "/venv/bin:$PATH";
  job["DATA"] = "${HOME}/data:$HOME_2:${HOME:$";
  job["OTHER"] = "$DATA $RANK$";  // of the job, of the contract
  const std::vector<std::string> env = Make({"PATH=/bin", "HOME=/root"});
  EXPECT_THAT(env, Contains("PATH=/venv/bin:/bin"));
  EXPECT_THAT(env, Contains("DATA=/root/data:$HOME_2:${HOME:$"));
  EXPECT_THAT(env, Contains("OTHER=$DATA $RANK$"));
}

TEST_F(RankEnvironmentTest, SaysWhereTheRankIsAndNotWhereTheDaemonWas) {
  const std::vector<std::string> env =
      Make({"PWD=/daemon", "OLDPWD=/before", "PATH=/bin"});
  EXPECT_THAT(env, Contains("PWD=/work/a"));
  EXPECT_THAT(env, Not(Contains(StartsWith("OLDPWD="))));
}

TEST_F(RankEnvironmentTest, SaysWhichElementOfAnArrayItIs) {
  EXPECT_THAT(Make({"COHORT_ARRAY_INDEX=9"}),
              Not(Contains(StartsWith("COHORT_ARRAY_"))));
  const JobId array = *JobId::FromBytes(place_.job_id());
  place_.set_job_id(array.Element(7).bytes());
  const std::vector<std::string> env = Make({});
  EXPECT_THAT(env, Contains("COHORT_ARRAY_INDEX=7"));
  EXPECT_THAT(env, Contains("COHORT_ARRAY_ID=" + array.ToText()));
  EXPECT_THAT(env, Contains("COHORT_JOB_ID=" + array.ToText() + ".7"));
  for (const char* name : {"COHORT_ARRAY_INDEX", "COHORT_ARRAY_ID"}) {
    EXPECT_FALSE(CheckCommand({"true"}, {{name, "x"}}).ok()) << name;
  }
}

// What it sets whatever the job says, a job is not let say.
TEST_F(RankEnvironmentTest, JobsThatSetTheContractsNamesAreRefused) {
  for (const std::string& entry : Make({})) {
    const std::string name = entry.substr(0, entry.find('='));
    const bool is_default =
        name == "OMP_NUM_THREADS" || name == "PYTHONUNBUFFERED" ||
        name == "TORCH_NCCL_ASYNC_ERROR_HANDLING" || name == "USE_LIBUV";
    EXPECT_EQ(CheckCommand({"true"}, {{name, "x"}}).ok(), is_default) << name;
  }
  // And what its keeper does.
  for (const char* name : {keeper::kAttemptVariable, keeper::kProcessVariable,
                           keeper::kPlaceVariable}) {
    EXPECT_FALSE(CheckCommand({"true"}, {{name, "x"}}).ok()) << name;
  }
}

// RE-1
TEST_F(RankEnvironmentTest, ShowsExactlyTheGrantedDevices) {
  EXPECT_THAT(Make({"CUDA_VISIBLE_DEVICES=0,1,2"}),
              Contains("CUDA_VISIBLE_DEVICES="));
  EXPECT_THAT(Make({"COHORT_GPU_IDS=GPU-x"}), Contains("COHORT_GPU_IDS="));
  Grant(0, {"GPU-c", "GPU-d"});
  Grant(1, {"GPU-a", "GPU-b"});
  const std::vector<std::string> env = Make({"CUDA_VISIBLE_DEVICES=0,1,2"});
  EXPECT_THAT(env, Contains("CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"));
  EXPECT_THAT(env, Contains("COHORT_GPU_IDS=GPU-a,GPU-b"));
}

// RE-1: as torchrun's ranks, for scripts that take cuda:LOCAL_RANK.
TEST_F(RankEnvironmentTest, ShowsTheGpusOfAllLocalRanksByLocalRank) {
  Ask(1);
  Grant(0, {"GPU-b"});
  Grant(1, {"GPU-a"});
  const std::vector<std::string> env = Make({});
  EXPECT_THAT(env, Contains("CUDA_VISIBLE_DEVICES=GPU-b,GPU-a"));
  EXPECT_THAT(env, Contains("COHORT_GPU_IDS=GPU-a"));
  place_.set_isolate_gpus(true);
  EXPECT_THAT(Make({}), Contains("CUDA_VISIBLE_DEVICES=GPU-a"));
}

TEST_F(RankEnvironmentTest, ShowsASharedGpuAndAMigInstanceAlone) {
  Ask(0.5);
  Grant(0, {"GPU-a"});
  Grant(1, {"GPU-b"});
  EXPECT_THAT(Make({}), Contains("CUDA_VISIBLE_DEVICES=GPU-b"));
  Ask(1);
  Grant(0, {"MIG-a"});
  Grant(1, {"MIG-b"});
  EXPECT_THAT(Make({}), Contains("CUDA_VISIBLE_DEVICES=MIG-b"));
}

// Under restart policy ONE slots come and go.
TEST_F(RankEnvironmentTest, ShowsItsOwnGpuAtLocalRankOrAlone) {
  Ask(1);
  Grant(0, {});
  Grant(1, {"GPU-b"});
  EXPECT_THAT(Make({}), Contains("CUDA_VISIBLE_DEVICES=GPU-b"));
  Grant(0, {"GPU-a"});
  v1::DesiredProcess* const third = place_.add_processes();
  third->set_local_rank(3);  // nobody is 2
  third->add_gpu_ids("GPU-d");
  EXPECT_THAT(Make({}), Contains("CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"));
  Grant(0, {"GPU-b"});  // of one that is on its way out
  EXPECT_THAT(Make({}), Contains("CUDA_VISIBLE_DEVICES=GPU-b"));
}

}  // namespace
}  // namespace cohort::worker
