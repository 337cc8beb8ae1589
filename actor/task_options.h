#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actor/codec.h"
#include "actor/options.h"

namespace cohort {

template <>
struct Codec<Quantity> {
  static void Encode(Quantity quantity, Encoder& encoder) {
    encoder.Write(quantity.units());
  }
  static bool Decode(Decoder& decoder, Quantity& quantity) {
    double units = 0;
    if (!decoder.Read(units)) return false;
    quantity = units;
    return true;
  }
};

// What Run does when max_waiting_tasks wait already.
enum class WhenFull : uint8_t {
  kWait,      // waits until one less does
  kDontWait,  // the future ends as RESOURCE_EXHAUSTED, kReasonQueueFull
};

// What a task needs and how it is treated; names and defaults are Ray's.
// Those of one task, in this order:
//   runtime.Run<&CountWords>({.num_cpus = 2}, text)
//
// A task that waits for the future of another, by Future::Get, WaitAll or
// WaitAny on its own thread, lets others run in its process and in its place,
// up to 512 in a process; where that many wait a further Get ends as
// RESOURCE_EXHAUSTED.  One that waits in another way keeps its place, which
// those it waits for may need.
struct TaskOptions {
  // Cores that are set aside for it while it runs.
  Quantity num_cpus = 1;
  // Devices, whole or a part of one, as 0.25.
  Quantity num_gpus = 0;
  // Bytes that are set aside for it.
  int64_t memory = 0;
  // Custom resources, by name.
  std::map<std::string, Quantity> resources;
  // Expressions over node labels (common/label_selector.h); all must hold.
  std::vector<std::string> label_selector;
  // A GPU model; empty: any.
  std::string accelerator_type;

  // How often it is run again after the process that ran it ended: the function
  // may then run more than once.  -1: without limit.
  int max_retries = 3;
  // Whether it is run again, as often, when the function throws.
  bool retry_exceptions = false;

  WhenFull when_full = WhenFull::kWait;

  COHORT_FIELDS(num_cpus, num_gpus, memory, resources, label_selector,
                accelerator_type, max_retries, retry_exceptions, when_full)
};

}  // namespace cohort
