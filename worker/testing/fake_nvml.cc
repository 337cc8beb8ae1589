// A library that stands in for NVML: devices that are what the file
// which COHORT_FAKE_NVML names says, read again at each call.
//
//   GPU KEY VALUE      uuid, name, pci, peer (bus id), memory, used,
//                      numa (of the host, near it), own_numa (where it is one),
//                      reserved (then the second version of the memory's
//                      call is there, and the first counts it as used),
//                      utilization, power, temperature, ecc_volatile,
//                      ecc_aggregate, remapped, remap_pending, remap_failed,
//                      p2p (a GPU that it reaches by NVLink),
//                      mig (instances), pid (PID:BYTES, may come again),
//                      lost (text does not matter), error (an NVML code)
//   xid GPU CODE       told once, in the order of the lines
//   hang FIFO          all calls wait until somebody writes to it
//   init CODE          nvmlInit fails

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "worker/nvml_api.h"

namespace nvml = cohort::worker::nvml;

namespace {

constexpr int kGpusMax = 16;
constexpr int kInstancesMax = 8;

// What handles point to.
struct Place {
  int gpu = 0;
  int instance = -1;  // none: the GPU itself
};
using Places = std::array<std::array<Place, kInstancesMax + 1>, kGpusMax>;
Places places = [] {
  Places made;
  for (int gpu = 0; gpu < kGpusMax; ++gpu) {
    for (int instance = -1; instance < kInstancesMax; ++instance) {
      made[gpu][instance + 1] = {gpu, instance};
    }
  }
  return made;
}();
std::atomic<size_t> xids_told = 0;

struct Script {
  std::map<int, std::multimap<std::string, std::string>> gpus;
  std::vector<std::pair<int, unsigned>> xids;
  int init = 0;
  std::string hang;
};

Script Read() {
  Script script;
  const char* const path = std::getenv("COHORT_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    words >> first >> second;
    if (first.empty() || first[0] == '#') continue;
    if (first == "hang") {
      script.hang = second;
    } else if (first == "init") {
      script.init = std::stoi(second);
    } else if (first == "xid") {
      unsigned code = 0;
      words >> code;
      script.xids.emplace_back(std::stoi(second), code);
    } else {
      std::string value;
      std::getline(words >> std::ws, value);
      script.gpus[std::stoi(first)].emplace(second, value);
    }
  }
  return script;
}

Script Enter() {
  Script script = Read();
  if (!script.hang.empty()) {
    const int fd = open(script.hang.c_str(), O_RDONLY);
    char byte = 0;
    [[maybe_unused]] const ssize_t n = read(fd, &byte, 1);
    close(fd);
  }
  return script;
}

const Place& PlaceOf(nvml::Handle handle) {
  return *reinterpret_cast<const Place*>(handle);
}
nvml::Handle HandleOf(int gpu, int instance) {
  return reinterpret_cast<nvml::Handle>(&places[gpu][instance + 1]);
}

// One device, as the script is now.
class Gpu {
 public:
  explicit Gpu(nvml::Handle handle)
      : place_(PlaceOf(handle)), keys_(Enter().gpus[place_.gpu]) {}

  // What every call but those that name the device begins with.
  nvml::Return Fault() const {
    if (keys_.contains("lost")) return nvml::kGpuIsLost;
    const auto error = keys_.find("error");
    return error == keys_.end() ? nvml::kSuccess : std::stoi(error->second);
  }
  bool Has(const char* key) const { return keys_.contains(key); }
  std::string Text(const char* key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? "" : found->second;
  }
  std::vector<std::string> All(const char* key) const {
    std::vector<std::string> all;
    const auto [begin, end] = keys_.equal_range(key);
    for (auto at = begin; at != end; ++at) all.push_back(at->second);
    return all;
  }
  // NotSupported where the script does not say.
  template <typename Number>
  nvml::Return Give(const char* key, Number* out) const {
    if (const nvml::Return fault = Fault(); fault != nvml::kSuccess) {
      return fault;
    }
    if (!Has(key)) return nvml::kNotSupported;
    *out = static_cast<Number>(std::stoll(Text(key)));
    return nvml::kSuccess;
  }
  int instance() const { return place_.instance; }

 private:
  const Place place_;
  const std::multimap<std::string, std::string> keys_;
};

nvml::Return Copy(const std::string& text, char* out, unsigned size) {
  std::snprintf(out, size, "%s", text.c_str());
  return nvml::kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return Enter().init; }
int nvmlShutdown() { return nvml::kSuccess; }
const char* nvmlErrorString(int code) {
  if (code == nvml::kGpuIsLost) return "GPU is lost";
  if (code == nvml::kResetRequired) return "GPU requires a reset";
  return code == 9 ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Enter().gpus.size());
  return nvml::kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml::Handle* out) {
  *out = HandleOf(static_cast<int>(index), -1);
  return Gpu(*out).Has("no_handle") ? nvml::kGpuIsLost : nvml::kSuccess;
}
int nvmlDeviceGetName(nvml::Handle handle, char* out, unsigned size) {
  const Gpu gpu(handle);
  return Copy(gpu.Text("name") + (gpu.instance() < 0 ? "" : " MIG 1g.5gb"), out,
              size);
}
int nvmlDeviceGetUUID(nvml::Handle handle, char* out, unsigned size) {
  const Gpu gpu(handle);
  const std::string uuid = gpu.Text("uuid");
  return Copy(gpu.instance() < 0
                  ? "GPU-" + uuid
                  : "MIG-" + uuid + "-" + std::to_string(gpu.instance()),
              out, size);
}
int nvmlDeviceGetMemoryInfo(nvml::Handle handle, nvml::Memory* out) {
  const Gpu gpu(handle);
  *out = {};
  nvml::U64 reserved = 0;
  gpu.Give("used", &out->used);
  gpu.Give("reserved", &reserved);
  out->used += reserved;
  return gpu.Give("memory", &out->total);
}
int nvmlDeviceGetMemoryInfo_v2(nvml::Handle handle, nvml::MemoryV2* out) {
  const Gpu gpu(handle);
  if (out->version != nvml::kMemoryV2) return nvml::kVersionMismatch;
  gpu.Give("used", &out->used);
  gpu.Give("memory", &out->total);
  return gpu.Give("reserved", &out->reserved);
}
int nvmlDeviceGetPciInfo_v3(nvml::Handle handle, nvml::PciInfo* out) {
  const Gpu gpu(handle);
  if (!gpu.Has("pci")) return nvml::kNotSupported;
  return Copy(gpu.Text("pci"), out->bus_id, sizeof(out->bus_id));
}
int nvmlDeviceGetNumaNodeId(nvml::Handle handle, unsigned* out) {
  return Gpu(handle).Give("own_numa", out);
}
int nvmlDeviceGetMemoryAffinity(nvml::Handle handle, unsigned words,
                                nvml::Word* out, int scope) {
  constexpr unsigned kWordBits = 64;
  constexpr int kInvalidArgument = 2;
  unsigned node = 0;
  const nvml::Return given = Gpu(handle).Give("numa", &node);
  if (given != nvml::kSuccess) return given;
  if (scope != nvml::kNodeScope || node / kWordBits >= words) {
    return kInvalidArgument;
  }
  std::fill(out, out + words, 0);
  out[node / kWordBits] = nvml::Word{1} << (node % kWordBits);
  return nvml::kSuccess;
}
int nvmlDeviceGetNvLinkState(nvml::Handle handle, unsigned link, int* out) {
  *out = link < Gpu(handle).All("peer").size() ? 1 : 0;
  return nvml::kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml::Handle handle, unsigned link,
                                        nvml::PciInfo* out) {
  const std::vector<std::string> peers = Gpu(handle).All("peer");
  if (link >= peers.size()) return nvml::kNotSupported;
  return Copy(peers[link], out->bus_id, sizeof(out->bus_id));
}
int nvmlDeviceGetP2PStatus(nvml::Handle a, nvml::Handle b, int capability,
                           int* out) {
  constexpr int kNotSupportedByChipset = 1;
  const std::vector<std::string> reached = Gpu(a).All("p2p");
  const bool reaches =
      std::find(reached.begin(), reached.end(),
                std::to_string(PlaceOf(b).gpu)) != reached.end();
  *out = capability == nvml::kP2pNvlink && reaches ? nvml::kP2pOk
                                                   : kNotSupportedByChipset;
  return reached.empty() ? nvml::kNotSupported : nvml::kSuccess;
}
int nvmlDeviceGetMigMode(nvml::Handle handle, unsigned* current,
                         unsigned* pending) {
  const Gpu gpu(handle);
  if (gpu.Has("no_mig")) return nvml::kNotSupported;
  *current = *pending = gpu.Has("mig") ? 1 : 0;
  return nvml::kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(nvml::Handle, unsigned* out) {
  *out = kInstancesMax;
  return nvml::kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(nvml::Handle handle, unsigned index,
                                        nvml::Handle* out) {
  constexpr int kNotFound = 6;
  unsigned count = 0;
  if (Gpu(handle).Give("mig", &count) != nvml::kSuccess || index >= count ||
      index >= kInstancesMax) {
    return kNotFound;
  }
  *out = HandleOf(PlaceOf(handle).gpu, static_cast<int>(index));
  return nvml::kSuccess;
}
int nvmlDeviceGetUtilizationRates(nvml::Handle handle, nvml::Utilization* out) {
  return Gpu(handle).Give("utilization", &out->gpu);
}
int nvmlDeviceGetPowerUsage(nvml::Handle handle, unsigned* out) {
  return Gpu(handle).Give("power", out);
}
int nvmlDeviceGetTemperature(nvml::Handle handle, int, unsigned* out) {
  return Gpu(handle).Give("temperature", out);
}
int nvmlDeviceGetTotalEccErrors(nvml::Handle handle, int, int counter,
                                nvml::U64* out) {
  return Gpu(handle).Give(
      counter == nvml::kVolatile ? "ecc_volatile" : "ecc_aggregate", out);
}
int nvmlDeviceGetRemappedRows(nvml::Handle handle, unsigned* corrected,
                              unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  const Gpu gpu(handle);
  *corrected = *pending = *failed = 0;
  gpu.Give("remap_pending", pending);
  gpu.Give("remap_failed", failed);
  return gpu.Give("remapped", uncorrected);
}
int nvmlDeviceGetComputeRunningProcesses_v3(nvml::Handle handle,
                                            unsigned* count,
                                            nvml::ProcessInfo* out) {
  const Gpu gpu(handle);
  if (gpu.Fault() != nvml::kSuccess) return gpu.Fault();
  const std::vector<std::string> pids = gpu.All("pid");
  const unsigned room = *count;
  *count = static_cast<unsigned>(pids.size());
  if (room < pids.size()) return nvml::kInsufficientSize;
  for (size_t i = 0; i < pids.size(); ++i) {
    const size_t colon = pids[i].find(':');
    out[i] = {};
    out[i].pid = static_cast<unsigned>(std::stoul(pids[i].substr(0, colon)));
    out[i].used_bytes = colon == std::string::npos
                            ? nvml::kUnknownBytes
                            : std::stoull(pids[i].substr(colon + 1));
  }
  return nvml::kSuccess;
}
int nvmlEventSetCreate(nvml::EventSet* out) {
  *out = reinterpret_cast<nvml::EventSet>(&xids_told);
  return nvml::kSuccess;
}
int nvmlEventSetFree(nvml::EventSet) { return nvml::kSuccess; }
int nvmlDeviceRegisterEvents(nvml::Handle, nvml::U64, nvml::EventSet) {
  return nvml::kSuccess;
}
int nvmlEventSetWait_v2(nvml::EventSet, nvml::EventData* out,
                        unsigned milliseconds) {
  constexpr unsigned kSlice = 10;
  for (unsigned waited = 0;; waited += kSlice) {
    const Script script = Enter();
    if (xids_told < script.xids.size()) {
      const auto [gpu, code] = script.xids[xids_told++];
      *out = {};
      out->device = HandleOf(gpu, -1);
      out->type = nvml::kXidEvent;
      out->data = code;
      return nvml::kSuccess;
    }
    if (waited >= milliseconds) return nvml::kTimeout;
    poll(nullptr, 0, kSlice);
  }
}

}  // extern "C"
