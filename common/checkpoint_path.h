#pragma once

namespace cohort {

// What a worker puts in front of the path of a checkpoint's file, which does
// not lie in the job's run directory, where it lists and reads files of a job:
// ".checkpoints/attempt-1.1/step-5/manifest.json".
inline constexpr char kCheckpointsPrefix[] = ".checkpoints/";

}  // namespace cohort
