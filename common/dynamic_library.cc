#include "common/dynamic_library.h"

#include <dlfcn.h>

#include "absl/status/status.h"

namespace cohort {

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return DynamicLibrary(handle);
  const char* const why = dlerror();
  return absl::NotFoundError(why == nullptr ? path : why);
}

void* DynamicLibrary::Find(const char* symbol) const {
  return dlsym(handle_, symbol);
}

}  // namespace cohort
