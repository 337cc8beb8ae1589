#include "trainer/train/backend.h"

namespace cohort::train {
namespace {

Backend* program_backend = nullptr;

}  // namespace

Backend* ProgramBackend() { return program_backend; }

bool SetProgramBackend(Backend* backend) {
  program_backend = backend;
  return true;
}

}  // namespace cohort::train
