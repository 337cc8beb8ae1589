#pragma once

#include "absl/strings/string_view.h"

namespace cohort {

// Tells the service manager that started this process how it does, by
// systemd's protocol: `state` is "READY=1" or "STOPPING=1".  Nothing happens
// where nobody asked for it (NOTIFY_SOCKET).  Thread-compatible.
void NotifyServiceManager(absl::string_view state);

}  // namespace cohort
