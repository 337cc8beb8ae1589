#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/device_source.h"
#include "worker/nvml_api.h"

namespace cohort::worker {

// The machine's NVIDIA GPUs, asked of the driver's management library, which is
// opened at run time: neither building nor running needs CUDA.
//
// Ids are uuids ("GPU-...", of MIG instances "MIG-..."), which
// CUDA_VISIBLE_DEVICES takes and which do not change when a device falls out of
// the numbering.  Where a GPU is divided by MIG its instances are the devices.
//
//   DV-1: a device that cannot be asked says so in its sample, and is absent
//         in List when it does not even say which it is; the others go on.
class NvmlDevices final : public DeviceSource {
 public:
  // `library`: "libnvidia-ml.so.1", or a test's own.
  explicit NvmlDevices(std::string library = "libnvidia-ml.so.1")
      : library_(std::move(library)) {}
  // An API that is loaded already.
  explicit NvmlDevices(const nvml::Api& api) : api_(api) {}
  ~NvmlDevices() override;

  NvmlDevices(const NvmlDevices&) = delete;
  NvmlDevices& operator=(const NvmlDevices&) = delete;

  // Empty when there is no library of that name: a machine without a driver.
  // NotFound when there is none at that path.
  absl::StatusOr<std::vector<Device>> List() override;
  std::vector<DeviceAnswer> Sample() override;
  std::optional<std::vector<DeviceProcess>> Processes(
      const std::string& id) override;
  std::optional<Xid> WaitXid(absl::Duration timeout, bool* supported) override;

 private:
  struct Entry {
    std::string id;
    nvml::Handle handle = nullptr;
    nvml::Handle gpu = nullptr;  // the physical one
  };

  absl::Status Start();
  absl::Status Check(nvml::Return result, const char* what) const;
  std::string ErrorText(nvml::Return result) const;
  void Describe(unsigned index, std::vector<Device>& devices);
  void DescribeInstances(const Device& gpu, nvml::Handle handle,
                         std::vector<Device>& devices);
  bool IsDivided(nvml::Handle gpu) const;
  std::optional<std::string> UuidOf(nvml::Handle handle, std::string otherwise);
  std::string NameOf(nvml::Handle handle);
  int64_t MemoryOf(nvml::Handle handle);
  std::string BusIdOf(nvml::Handle handle) const;
  std::optional<int> NumaNodeOf(nvml::Handle handle,
                                const std::string& bus_id) const;
  void ConnectPeers(std::vector<Device>& devices) const;
  // Addresses of what is at the far ends of its links.
  std::vector<std::string> LinkedTo(nvml::Handle gpu) const;
  bool IsReachedByNvlink(nvml::Handle from, nvml::Handle to) const;
  void RegisterForXids();
  DeviceAnswer AnswerOf(const Entry& entry) const;
  // Null for one that List did not give.
  const Entry* Find(const std::string& id) const;

  const std::string library_;
  std::optional<nvml::Api> api_;
  bool started_ = false;
  std::vector<Entry> entries_;
  nvml::EventSet events_ = nullptr;
};

}  // namespace cohort::worker
