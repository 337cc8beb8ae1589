#pragma once

#include <string>

namespace cohort::actor {

// What `mangled`, as typeid gives it, is called in the source; itself, cut and
// with odd bytes escaped, when it is not such a name: it may come from a peer.
std::string Demangle(const std::string& mangled);

}  // namespace cohort::actor
