#pragma once

#include <string>

#include "absl/status/statusor.h"

// The part of NVML's C interface that we use, by its ABI: no header of NVIDIA's
// is needed to build, no library to link.  Only nvml_devices and its tests see
// it.
namespace cohort::worker::nvml {

using Return = int;
inline constexpr Return kSuccess = 0;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNoPermission = 4;
inline constexpr Return kInsufficientSize = 7;
inline constexpr Return kTimeout = 10;
inline constexpr Return kFunctionNotFound = 13;
inline constexpr Return kGpuIsLost = 15;
inline constexpr Return kResetRequired = 16;
inline constexpr Return kVersionMismatch = 25;

using Handle = struct DeviceOpaque*;
using EventSet = struct EventSetOpaque*;
// NVML's own words for 32 and 64 bits.
using U32 = unsigned int;
using U64 = unsigned long long;  // NOLINT(google-runtime-int)
using Word = unsigned long;      // NOLINT(google-runtime-int)

inline constexpr U32 kTextBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

struct Memory {  // nvmlMemory_t, version 1
  U64 total;
  U64 free;
  U64 used;
};

struct MemoryV2 {  // nvmlMemory_v2_t
  U32 version;     // kMemoryV2
  U64 total;
  U64 reserved;  // the driver's own: neither used nor free
  U64 free;
  U64 used;
};
inline constexpr U32 kMemoryV2 = sizeof(MemoryV2) | (2U << 24);

struct PciInfo {           // nvmlPciInfo_t, version 3
  char bus_id_legacy[16];  // all that version 1 and 2 begin alike with
  U32 domain;
  U32 bus;
  U32 device;
  U32 pci_device_id;
  U32 pci_subsystem_id;
  char bus_id[32];
  U32 reserved[4];  // of version 2
};

struct Utilization {
  U32 gpu;
  U32 memory;
};

struct ProcessInfoV1 {
  U32 pid;
  U64 used_bytes;
};
struct ProcessInfo {  // versions 2 and 3
  U32 pid;
  U64 used_bytes;  // all ones: not known
  U32 gpu_instance;
  U32 compute_instance;
};

struct EventData {  // version 2; version 1 is its beginning
  Handle device;
  U64 type;
  U64 data;  // of kXidEvent: the Xid
  U32 gpu_instance;
  U32 compute_instance;
};

inline constexpr U64 kXidEvent = 0x8;
inline constexpr int kNodeScope = 0;  // NVML_AFFINITY_SCOPE_NODE
inline constexpr int kP2pNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
inline constexpr int kP2pOk = 0;      // NVML_P2P_STATUS_OK
inline constexpr U64 kUnknownBytes = ~U64{0};
inline constexpr U32 kLinksMax = 18;       // NVML_NVLINK_MAX_LINKS
inline constexpr int kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU
inline constexpr int kUncorrected = 1;     // NVML_MEMORY_ERROR_TYPE_*
inline constexpr int kVolatile = 0;        // NVML_*_ECC
inline constexpr int kAggregate = 1;

// The functions.  Those after `memory` are null where the library lacks them.
struct Api {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  Return (*count)(U32*) = nullptr;
  Return (*handle)(U32, Handle*) = nullptr;
  Return (*name)(Handle, char*, U32) = nullptr;
  Return (*memory)(Handle, Memory*) = nullptr;

  const char* (*error_string)(Return) = nullptr;
  Return (*memory_v2)(Handle, MemoryV2*) = nullptr;
  Return (*uuid)(Handle, char*, U32) = nullptr;
  Return (*pci_info)(Handle, PciInfo*) = nullptr;      // version 3
  Return (*pci_info_old)(Handle, PciInfo*) = nullptr;  // up to `bus_id`
  Return (*memory_affinity)(Handle, U32 words, Word* nodes,
                            int scope) = nullptr;
  Return (*link_state)(Handle, U32, int*) = nullptr;
  Return (*link_peer)(Handle, U32, PciInfo*) = nullptr;
  Return (*p2p_status)(Handle, Handle, int capability, int* status) = nullptr;
  Return (*mig_mode)(Handle, U32* current, U32* pending) = nullptr;
  Return (*mig_count_max)(Handle, U32*) = nullptr;
  Return (*mig_handle)(Handle, U32, Handle*) = nullptr;
  Return (*utilization)(Handle, Utilization*) = nullptr;
  Return (*power)(Handle, U32* milliwatts) = nullptr;
  Return (*temperature)(Handle, int sensor, U32* celsius) = nullptr;
  Return (*ecc_errors)(Handle, int type, int counter, U64*) = nullptr;
  Return (*remapped_rows)(Handle, U32* corrected, U32* uncorrected,
                          U32* pending, U32* failed) = nullptr;
  Return (*processes)(Handle, U32* count, ProcessInfo*) = nullptr;
  Return (*processes_v1)(Handle, U32* count, ProcessInfoV1*) = nullptr;
  Return (*event_set_create)(EventSet*) = nullptr;
  Return (*event_set_free)(EventSet) = nullptr;
  Return (*register_events)(Handle, U64 types, EventSet) = nullptr;
  Return (*event_set_wait)(EventSet, EventData*, U32 milliseconds) = nullptr;
};

// NotFound: there is no such library; Unavailable, naming the symbol: it lacks
// one that is needed.  It stays open until the process ends: its threads may
// run in it.
absl::StatusOr<Api> LoadApi(const std::string& library);

}  // namespace cohort::worker::nvml
