#include "trainer/train/loop.h"

#include <map>

#include "absl/strings/str_cat.h"

#include "actor/demangle.h"

namespace cohort::train {
namespace {

// Made by the first who registers: the order of files is nobody's.
std::map<std::string, LoopEntry>& Loops() {
  static auto& loops = *new std::map<std::string, LoopEntry>();
  return loops;
}

}  // namespace

bool RegisterLoop(const char* name, LoopEntry loop) {
  return Loops().emplace(name, loop).second;
}

absl::StatusOr<LoopEntry> FindLoop(const std::string& name) {
  const auto found = Loops().find(name);
  if (found != Loops().end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("this program has no training loop ", actor::Demangle(name),
                   " (the driver was another program)"));
}

}  // namespace cohort::train
