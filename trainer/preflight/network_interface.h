#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace cohort::trainer {

// A network interface of this machine.
struct NetworkInterface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.1"
  // As its driver says; none for loopback, and where nobody says.
  std::optional<int64_t> megabits_per_second;
};

// The interface that has the address which `host`, a name or an address of this
// machine, stands for; nothing when none has it.
std::optional<NetworkInterface> InterfaceOf(absl::string_view host);

}  // namespace cohort::trainer
