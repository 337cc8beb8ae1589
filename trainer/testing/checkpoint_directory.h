#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/status_macros.h"
#include "trainer/checkpoint_writer.h"
#include "trainer/local_comm.h"

namespace cohort::trainer {

// The names in it, sorted.
inline std::vector<std::string> List(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory, error)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void Overwrite(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// A checkpoint of one rank, from beginning to end.
inline absl::StatusOr<std::string> WriteCheckpoint(
    absl::string_view root, const CheckpointManifest& manifest,
    const std::vector<CheckpointFile>& files) {
  LocalComm comm;
  CheckpointWriter writer(comm, std::string(root));
  COHORT_RETURN_IF_ERROR(writer.Begin(manifest, files, nullptr));
  return writer.Finish(absl::InfiniteDuration());
}

}  // namespace cohort::trainer
