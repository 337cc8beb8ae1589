#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace cohort::sim {

// How often each fault, state edge and refusal happened.  Those that a run of
// all seeds never saw are named by MissingFrom: a simulation that never tried
// something has not tested it.
class Counters {
 public:
  void Count(const std::string& name, int64_t times = 1) {
    if (times > 0) counts_[name] += times;
  }
  void Add(const Counters& other) {
    for (const auto& [name, times] : other.counts_) counts_[name] += times;
  }
  int64_t Of(const std::string& name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }
  const std::map<std::string, int64_t>& all() const { return counts_; }

 private:
  std::map<std::string, int64_t> counts_;
};

}  // namespace cohort::sim
