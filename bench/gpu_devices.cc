// What it costs a worker to look at its GPUs once a second.  See README.md.

#include <time.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

#include "bench/report.h"
#include "trainer/comm/testing/gpu_machine.h"
#include "worker/nvml_devices.h"

namespace cohort::bench {
namespace {

// Seconds of this process's CPU, NVML's threads included.
double CpuSeconds() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) +
         static_cast<double>(used.tv_nsec) / 1e9;
}

int Main(int argc, char** argv) {
  const Flags flags = ParseFlags(argc, argv);
  const std::string& no_gpu = trainer::ThisGpuMachine().no_gpu;
  if (!no_gpu.empty()) {
    Report("gpu_devices", flags).Leave("look_at_1_hz", "% of a core", no_gpu);
    return Skip("gpu_devices", no_gpu);
  }
  worker::NvmlDevices source;
  const auto devices = source.List();
  if (!devices.ok() || devices->empty()) {
    std::fprintf(stderr, "bench_gpu_devices: %s\n",
                 devices.ok() ? "CUDA has GPUs, and NVML none"
                              : devices.status().ToString().c_str());
    return 125;
  }
  // A look as DeviceMonitor has it: samples, and who is there.
  const auto look = [&] {
    source.Sample();
    for (const worker::Device& device : *devices) source.Processes(device.id());
  };
  look();
  // The least that one can ask: one device's processes, nothing else.
  Samples looks;
  Samples floors;
  for (int run = 0; run < (flags.quick ? 10 : 60); ++run) {
    double begin = CpuSeconds();
    look();
    looks.values.push_back((CpuSeconds() - begin) * 100);
    begin = CpuSeconds();
    source.Processes(devices->front().id());
    floors.values.push_back((CpuSeconds() - begin) * 100);
  }
  Report("gpu_devices", flags)
      .Add({.name = absl::StrCat("look_at_1_hz/", devices->size(), "_gpus"),
            .samples = looks,
            .unit = "% of a core",
            .floor = floors.median()});
  return 0;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
