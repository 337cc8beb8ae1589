#pragma once

#include <string>
#include <vector>

#include "cohort/v1/node.pb.h"

namespace cohort::worker {

// What a process's environment says beyond its place.
struct RankSurroundings {
  std::string head_address;  // COHORT_ADDRESS
  std::string
      credential_file;        // COHORT_CREDENTIAL_FILE, limited to the process
  std::string worker_socket;  // COHORT_WORKER_SOCKET
  std::string error_file;     // TORCHELASTIC_ERROR_FILE
  std::string work_dir;       // PWD
  std::string storage_dir;    // COHORT_STORAGE_DIR
};

// The environment of one process, as NAME=VALUE sorted by name.  Pure.
//
// From weak to strong: `base` (the daemon's own, without what confuses scripts:
// SLURM_*, OMPI_*, PMI_*, PMIX_*, torchrun's and our variables of an outer
// job, OLDPWD; COHORT_NCCL_LIBRARY stays), the job's, then the contract: what
// torchrun sets (docs/operations/reference.md lists them), COHORT_* and PWD.
// In the job's values $NAME and ${NAME} stand for what `base` has, as in
// PATH=/opt/venv/bin:$PATH; a name that it does not have stays as it is
// written, and there is no escape.
// A job cannot set the contract's names, and CheckCommand (common/job_limits.h)
// refuses one that would; it can set OMP_NUM_THREADS and PYTHONUNBUFFERED,
// which are only defaults.
//
// RE-1: COHORT_GPU_IDS is exactly what was granted, empty when nothing was.
//       CUDA_VISIBLE_DEVICES is that too where the place isolates its GPUs, and
//       where ranks have a part of one, several or MIG instances.  Where each
//       has one whole GPU it is those of all ranks of the place, so that its
//       own is at LOCAL_RANK; or its own, where that of a lower local rank is
//       not known.
std::vector<std::string> RankEnvironment(const std::vector<std::string>& base,
                                         const v1::DesiredPlace& place,
                                         const v1::DesiredProcess& process,
                                         const RankSurroundings& surroundings);

}  // namespace cohort::worker
