#include "worker/nvml_devices.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/file.h"
#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::worker {
namespace {

using nvml::Handle;
using nvml::Return;
using nvml::U32;
using nvml::U64;

// More than any machine has, so that a library that lies costs no memory.
constexpr U32 kGpusMax = 256;
constexpr U32 kProcessesMax = 4'096;

// Empty where it cannot be shown: the head refuses a node that says such.
std::string Text(const char* text, size_t size) {
  std::string read(text, strnlen(text, size));
  return IsPrintableUtf8(read) ? read : "";
}

// A driver that answers so does not tell it here, however often it is asked:
// not for this GPU, this caller or this library.  That is not a fault.
bool IsNotTold(Return result) {
  return result == nvml::kNotSupported || result == nvml::kNoPermission ||
         result == nvml::kFunctionNotFound || result == nvml::kVersionMismatch;
}

// Nothing for what no memory can be, such as all ones: it is not known.
std::optional<int64_t> Bytes(U64 bytes) {
  constexpr U64 kMax = U64{1} << 50;  // a pebibyte
  if (bytes > kMax) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

bool IsBusId(absl::string_view text) {
  return text.find_first_not_of("0123456789abcdef:.") ==
         absl::string_view::npos;
}

// sysfs has four digits of the domain, NVML eight.
std::string SysfsName(const std::string& bus_id) {
  std::string name = absl::AsciiStrToLower(bus_id);
  if (name.size() > 12) name = name.substr(name.size() - 12);
  return name;
}

// The same however a library writes its domain and its letters.
bool IsSameBusId(const std::string& a, const std::string& b) {
  return !a.empty() && SysfsName(a) == SysfsName(b);
}

}  // namespace

NvmlDevices::~NvmlDevices() {
  if (events_ != nullptr && api_->event_set_free != nullptr) {
    api_->event_set_free(events_);
  }
  if (started_) api_->shutdown();
}

std::string NvmlDevices::ErrorText(Return result) const {
  if (api_->error_string == nullptr) return absl::StrCat("error ", result);
  const char* const text = api_->error_string(result);
  return text == nullptr ? absl::StrCat("error ", result) : Shown(text);
}

absl::Status NvmlDevices::Check(Return result, const char* what) const {
  if (result == nvml::kSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("NVML: ", what, ": ", ErrorText(result),
                   "; mend the driver, or do without GPUs: --num-gpus 0"));
}

absl::Status NvmlDevices::Start() {
  if (!api_.has_value()) {
    COHORT_ASSIGN_OR_RETURN(api_, nvml::LoadApi(library_));
  }
  COHORT_RETURN_IF_ERROR(Check(api_->init(), "start"));
  started_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Device>> NvmlDevices::List() {
  if (!started_) {
    const absl::Status started = Start();
    // A path was meant to be there; a name is looked for.
    if (absl::IsNotFound(started) && !absl::StrContains(library_, '/')) {
      COHORT_LOG(kDebug, "no_nvml", {"why", started.message()});
      return std::vector<Device>();
    }
    COHORT_RETURN_IF_ERROR(started);
  }
  U32 count = 0;
  COHORT_RETURN_IF_ERROR(Check(api_->count(&count), "device count"));
  entries_.clear();
  std::vector<Device> devices;
  for (U32 index = 0; index < std::min(count, kGpusMax); ++index) {
    Describe(index, devices);
  }
  ConnectPeers(devices);
  if (events_ == nullptr) RegisterForXids();
  return devices;
}

void NvmlDevices::Describe(U32 index, std::vector<Device>& devices) {
  Handle handle = nullptr;
  const Return found = api_->handle(index, &handle);
  std::optional<std::string> uuid;
  if (found == nvml::kSuccess) uuid = UuidOf(handle, absl::StrCat(index));
  if (!uuid.has_value() || Find(*uuid) != nullptr) {
    // Which one it is cannot be told: nobody is given it (DV-1).
    Device& absent = devices.emplace_back();
    if (found != nvml::kSuccess) {
      absent.set_reason(ErrorText(found));
    } else if (!uuid.has_value()) {
      absent.set_reason("it does not say which it is");
    } else {
      absent.set_reason(absl::StrCat("another is ", *uuid, " as well"));
    }
    COHORT_LOG(kError, "gpu_left_out", {"index", index},
               {"why", absent.reason()});
    return;
  }
  Device device;
  device.set_id(*uuid);
  device.set_kind("gpu");
  device.set_model(NameOf(handle));
  device.set_memory_bytes(MemoryOf(handle));
  device.set_pci_bus_id(BusIdOf(handle));
  if (const auto node = NumaNodeOf(handle, device.pci_bus_id())) {
    device.set_numa_node(*node);
  }
  if (IsDivided(handle)) return DescribeInstances(device, handle, devices);
  entries_.push_back({.id = device.id(), .handle = handle, .gpu = handle});
  devices.push_back(std::move(device));
}

void NvmlDevices::DescribeInstances(const Device& gpu, Handle handle,
                                    std::vector<Device>& devices) {
  U32 most = 0;
  if (api_->mig_count_max == nullptr || api_->mig_handle == nullptr ||
      api_->mig_count_max(handle, &most) != nvml::kSuccess) {
    most = 0;
  }
  const size_t before = devices.size();
  for (U32 index = 0; index < std::min(most, kGpusMax); ++index) {
    Handle instance = nullptr;
    if (api_->mig_handle(handle, index, &instance) != nvml::kSuccess) continue;
    std::optional<std::string> uuid =
        UuidOf(instance, absl::StrCat(gpu.id(), ":", index));
    if (!uuid.has_value() || Find(*uuid) != nullptr) continue;
    Device device = gpu;
    device.set_id(*std::move(uuid));
    device.set_parent(gpu.id());
    if (std::string name = NameOf(instance); !name.empty()) {
      device.set_model(std::move(name));
    }
    device.set_memory_bytes(MemoryOf(instance));
    entries_.push_back({.id = device.id(), .handle = instance, .gpu = handle});
    devices.push_back(std::move(device));
  }
  if (devices.size() == before) {
    COHORT_LOG(
        kWarning, "gpu_without_instances", {"gpu", gpu.id()},
        {"meaning", "MIG is on and no instance is there: none is given"});
  }
}

bool NvmlDevices::IsDivided(Handle gpu) const {
  U32 current = 0;
  U32 pending = 0;
  return api_->mig_mode != nullptr &&
         api_->mig_mode(gpu, &current, &pending) == nvml::kSuccess &&
         current == 1;
}

std::optional<std::string> NvmlDevices::UuidOf(Handle handle,
                                               std::string otherwise) {
  if (api_->uuid == nullptr) return otherwise;
  char uuid[nvml::kTextBytes] = {};
  if (api_->uuid(handle, uuid, sizeof(uuid)) != nvml::kSuccess) {
    return std::nullopt;
  }
  std::string text = Text(uuid, sizeof(uuid));
  if (text.empty()) return std::nullopt;
  return text;
}

std::string NvmlDevices::NameOf(Handle handle) {
  char name[nvml::kTextBytes] = {};
  if (api_->name(handle, name, sizeof(name)) != nvml::kSuccess) return "";
  return Text(name, sizeof(name));
}

int64_t NvmlDevices::MemoryOf(Handle handle) {
  nvml::Memory memory = {};
  return api_->memory(handle, &memory) == nvml::kSuccess
             ? Bytes(memory.total).value_or(0)
             : 0;
}

std::string NvmlDevices::BusIdOf(Handle handle) const {
  nvml::PciInfo info = {};
  const bool is_old = api_->pci_info == nullptr;
  const auto function = is_old ? api_->pci_info_old : api_->pci_info;
  if (function == nullptr || function(handle, &info) != nvml::kSuccess) {
    return "";
  }
  // Before version 3 there is only the short one, and anything after it.
  std::string bus_id = is_old ? "" : Text(info.bus_id, sizeof(info.bus_id));
  if (bus_id.empty()) {
    bus_id = Text(info.bus_id_legacy, sizeof(info.bus_id_legacy));
  }
  absl::AsciiStrToLower(&bus_id);
  return IsBusId(bus_id) ? bus_id : "";
}

std::optional<int> NvmlDevices::NumaNodeOf(Handle handle,
                                           const std::string& bus_id) const {
  // nvmlDeviceGetNumaNodeId tells another one: that of a GPU which is a node
  // itself, without CPUs.
  constexpr int kWordBits = 64;
  nvml::Word nodes[16] = {};
  if (api_->memory_affinity != nullptr &&
      api_->memory_affinity(handle, std::size(nodes), nodes,
                            nvml::kNodeScope) == nvml::kSuccess) {
    for (int word = 0; word < static_cast<int>(std::size(nodes)); ++word) {
      if (nodes[word] == 0) continue;
      return word * kWordBits + std::countr_zero(nodes[word]);
    }
  }
  if (bus_id.empty()) return std::nullopt;
  const absl::StatusOr<std::string> text = ReadFile(
      absl::StrCat("/sys/bus/pci/devices/", SysfsName(bus_id), "/numa_node"));
  int sysfs_node = -1;
  if (!text.ok() ||
      !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &sysfs_node) ||
      sysfs_node < 0) {
    return std::nullopt;
  }
  return sysfs_node;
}

void NvmlDevices::ConnectPeers(std::vector<Device>& devices) const {
  for (Device& device : devices) {
    const Entry* const entry = Find(device.id());
    if (entry == nullptr || !device.parent().empty()) continue;
    const std::vector<std::string> linked = LinkedTo(entry->handle);
    for (const Device& peer : devices) {
      const Entry* const far = Find(peer.id());
      if (far == nullptr || far == entry || !peer.parent().empty()) continue;
      const bool is_linked = std::any_of(
          linked.begin(), linked.end(), [&peer](const std::string& bus_id) {
            return IsSameBusId(peer.pci_bus_id(), bus_id);
          });
      if (is_linked || IsReachedByNvlink(entry->handle, far->handle)) {
        device.add_nvlink_peers(peer.id());
      }
    }
    std::sort(device.mutable_nvlink_peers()->begin(),
              device.mutable_nvlink_peers()->end());
  }
}

std::vector<std::string> NvmlDevices::LinkedTo(Handle gpu) const {
  std::vector<std::string> linked;
  if (api_->link_state == nullptr || api_->link_peer == nullptr) return linked;
  for (U32 link = 0; link < nvml::kLinksMax; ++link) {
    int is_active = 0;
    nvml::PciInfo far = {};
    if (api_->link_state(gpu, link, &is_active) == nvml::kSuccess &&
        is_active != 0 && api_->link_peer(gpu, link, &far) == nvml::kSuccess) {
      linked.push_back(Text(far.bus_id, sizeof(far.bus_id)));
    }
  }
  return linked;
}

// Behind an NVSwitch the links of a GPU end at the switch, which is none of the
// devices: then only this tells.
bool NvmlDevices::IsReachedByNvlink(Handle from, Handle to) const {
  int status = 0;
  return api_->p2p_status != nullptr &&
         api_->p2p_status(from, to, nvml::kP2pNvlink, &status) ==
             nvml::kSuccess &&
         status == nvml::kP2pOk;
}

const NvmlDevices::Entry* NvmlDevices::Find(const std::string& id) const {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& each) { return each.id == id; });
  return entry == entries_.end() ? nullptr : &*entry;
}

// ---- samples ----

std::vector<DeviceAnswer> NvmlDevices::Sample() {
  std::vector<DeviceAnswer> answers;
  answers.reserve(entries_.size());
  for (const Entry& entry : entries_) answers.push_back(AnswerOf(entry));
  return answers;
}

DeviceAnswer NvmlDevices::AnswerOf(const Entry& entry) const {
  DeviceAnswer answer;
  answer.id = entry.id;
  v1::DeviceSample& sample = answer.sample;
  // Whether it gave an answer; what it does not know stays unknown.
  const auto ask = [&](const char* what, const auto& function,
                       auto... arguments) {
    if (function == nullptr || !answer.lost.empty()) return false;
    const Return result = function(arguments...);
    if (result == nvml::kSuccess) return true;
    if (result == nvml::kGpuIsLost || result == nvml::kResetRequired) {
      answer.lost = ErrorText(result);
    } else if (!IsNotTold(result) && answer.error.empty()) {
      answer.error = absl::StrCat(what, ": ", ErrorText(result));
    }
    return false;
  };
  // What the driver keeps for itself is used by nobody; version 1 counts it.
  nvml::MemoryV2 memory_v2 = {};
  memory_v2.version = nvml::kMemoryV2;
  nvml::Memory memory = {};
  std::optional<int64_t> used;
  if (ask("memory", api_->memory_v2, entry.handle, &memory_v2)) {
    used = Bytes(memory_v2.used);
    const std::optional<int64_t> reserved = Bytes(memory_v2.reserved);
    if (reserved.has_value()) sample.set_memory_reserved_bytes(*reserved);
  } else if (ask("memory", api_->memory, entry.handle, &memory)) {
    used = Bytes(memory.used);
  }
  if (used.has_value()) sample.set_memory_used_bytes(*used);
  nvml::Utilization utilization = {};
  if (ask("utilization", api_->utilization, entry.handle, &utilization)) {
    sample.set_utilization_percent(utilization.gpu);
  }
  U32 number = 0;
  if (ask("power", api_->power, entry.gpu, &number)) {
    sample.set_power_milliwatts(number);
  }
  if (ask("temperature", api_->temperature, entry.gpu, nvml::kTemperatureGpu,
          &number)) {
    sample.set_temperature_celsius(number);
  }
  U64 errors = 0;
  if (ask("ECC", api_->ecc_errors, entry.gpu, nvml::kUncorrected,
          nvml::kVolatile, &errors)) {
    sample.set_ecc_volatile(static_cast<int64_t>(errors));
  }
  if (ask("ECC", api_->ecc_errors, entry.gpu, nvml::kUncorrected,
          nvml::kAggregate, &errors)) {
    sample.set_ecc_aggregate(static_cast<int64_t>(errors));
  }
  U32 corrected = 0;
  U32 uncorrected = 0;
  U32 pending = 0;
  U32 failed = 0;
  if (ask("row remaps", api_->remapped_rows, entry.gpu, &corrected,
          &uncorrected, &pending, &failed)) {
    sample.set_remapped_rows(uncorrected);
    sample.set_remap_pending(pending != 0);
    sample.set_remap_failed(failed != 0);
  }
  return answer;
}

// ---- processes ----

namespace {

// `function` is one of NVML's, `Info` what it fills in.
template <typename Info, typename Function>
std::optional<std::vector<DeviceProcess>> ReadProcesses(
    const Function& function, Handle handle) {
  std::vector<Info> infos(64);
  auto count = static_cast<U32>(infos.size());
  Return result = function(handle, &count, infos.data());
  while (result == nvml::kInsufficientSize && infos.size() < kProcessesMax) {
    infos.resize(2 * infos.size());
    count = static_cast<U32>(infos.size());
    result = function(handle, &count, infos.data());
  }
  std::vector<DeviceProcess> processes;
  if (IsNotTold(result)) return processes;
  if (result != nvml::kSuccess) return std::nullopt;
  infos.resize(std::min<size_t>(count, infos.size()));
  for (const Info& each : infos) {
    DeviceProcess& process = processes.emplace_back();
    process.pid = each.pid;
    process.bytes = Bytes(each.used_bytes);
  }
  return processes;
}

}  // namespace

std::optional<std::vector<DeviceProcess>> NvmlDevices::Processes(
    const std::string& id) {
  const Entry* const entry = Find(id);
  if (entry == nullptr) return std::nullopt;
  if (api_->processes != nullptr) {
    return ReadProcesses<nvml::ProcessInfo>(api_->processes, entry->handle);
  }
  if (api_->processes_v1 != nullptr) {
    return ReadProcesses<nvml::ProcessInfoV1>(api_->processes_v1,
                                              entry->handle);
  }
  return std::vector<DeviceProcess>();
}

// ---- Xids ----

void NvmlDevices::RegisterForXids() {
  if (api_->event_set_create == nullptr || api_->register_events == nullptr ||
      api_->event_set_wait == nullptr ||
      api_->event_set_create(&events_) != nvml::kSuccess) {
    events_ = nullptr;
    return;
  }
  for (const Entry& entry : entries_) {
    const Return result =
        api_->register_events(entry.gpu, nvml::kXidEvent, events_);
    if (result == nvml::kSuccess) continue;
    COHORT_LOG(kInfo, "xids_not_told", {"gpu", entry.id},
               {"why", ErrorText(result)});
  }
}

std::optional<Xid> NvmlDevices::WaitXid(absl::Duration timeout,
                                        bool* supported) {
  *supported = events_ != nullptr && !entries_.empty();
  if (!*supported) return std::nullopt;
  nvml::EventData data = {};
  const Return result = api_->event_set_wait(
      events_, &data, static_cast<U32>(absl::ToInt64Milliseconds(timeout)));
  if (result == nvml::kNotSupported) *supported = false;
  if (result != nvml::kSuccess || data.type != nvml::kXidEvent) {
    return std::nullopt;
  }
  Xid xid{.ids = {}, .code = data.data};
  for (const Entry& entry : entries_) {
    if (entry.gpu == data.device) xid.ids.push_back(entry.id);
  }
  return xid;
}

}  // namespace cohort::worker
