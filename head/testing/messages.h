#pragma once

#include <string>

#include "head/store/records.h"

// Messages with some fields set, for tests.
namespace cohort::head {

struct ExitFields {
  int code = 0;
  int signal = 0;
  bool oom_killed = false;
  std::string detail = {};
};
inline ExitStatus ExitOf(const ExitFields& fields) {
  ExitStatus exit;
  exit.set_code(fields.code);
  exit.set_signal(fields.signal);
  exit.set_oom_killed(fields.oom_killed);
  exit.set_detail(fields.detail);
  return exit;
}

inline Checkpoint CheckpointOf(const std::string& path, int64_t step,
                               int64_t epoch) {
  Checkpoint checkpoint;
  checkpoint.set_path(path);
  checkpoint.set_step(step);
  checkpoint.set_epoch(epoch);
  return checkpoint;
}

inline v1::PreflightReport PreflightOf(PreflightVerdict verdict,
                                       const std::string& summary,
                                       const std::string& json) {
  v1::PreflightReport report;
  report.set_verdict(verdict);
  report.set_summary(summary);
  report.set_json(json);
  return report;
}

}  // namespace cohort::head
