// Actors with a GPU each: which one, they say themselves.
//
//   cohort up --detach && ./gpu_actor && cohort down
#include <cstdlib>
#include <iostream>
#include <string>

#include "actor/actor.h"

class Device {
 public:
  // CUDA sees this GPU and no other, as device 0.
  std::string Name() const {
    const std::vector<std::string> ids = cohort::GetGpuIds();
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (ids.size() != 1 || visible == nullptr || ids[0] != visible) {
      return "not one GPU";
    }
    return ids[0];
  }
};

int main(int argc, char** argv) {
  cohort::Runtime runtime = cohort::Init(argc, argv);
  const int count = argc > 1 ? std::atoi(argv[1]) : 1;
  std::vector<cohort::Handle<Device>> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back(runtime.Create<Device>({.num_gpus = 1}));
  }
  // An actor for which no GPU is free waits: `cohort explain` says so.
  for (const cohort::Handle<Device>& device : devices) {
    const absl::StatusOr<std::string> name = device.Call<&Device::Name>().Get();
    if (!name.ok()) {
      std::cerr << name.status().message() << "\n";
      return 1;
    }
    std::cout << *name << "\n";
  }
}
