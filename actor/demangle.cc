#include "actor/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/escaping.h"

namespace cohort::actor {
namespace {

// The demangler recurses: names of a peer are looked at up to here only.  A
// method's with a dozen parameters of the standard library stays below.
constexpr size_t kNameMax = 4096;

}  // namespace

std::string Demangle(const std::string& mangled) {
  if (mangled.size() <= kNameMax) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
        std::free);
    if (status == 0 && name != nullptr) return name.get();
  }
  return absl::CHexEscape(mangled.substr(0, 200));
}

}  // namespace cohort::actor
