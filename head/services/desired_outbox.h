#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "cohort/v1/node.pb.h"
#include "head/state/desired.h"

namespace cohort::head {

// What a node is still to be told of its desired set: what its stream has no
// room for yet.
//
// Of each attempt only the newest word is kept, at the place of the oldest,
// with the processes that earlier ones told to forget: so a slow node costs
// what it has, however often that changes. The launch of a place is sent once.
// Thread-compatible; belongs to one stream.
class DesiredOutbox {
 public:
  // More attempts and exchanges than a node can have: beyond it the stream is
  // to begin again.
  static constexpr size_t kAttemptsMax = 32'768;
  static constexpr size_t kExchangesMax = 4'096;

  // The full set, which may be empty: it is told all the same.
  void BeginFull() { full_ = true; }
  // ResourceExhausted: it does not read.
  absl::Status Add(const std::vector<v1::DesiredPlace>& places);
  // Told after all attempts.
  absl::Status AddExchanges(const std::vector<SharedExchange>& exchanges);

  bool empty() const { return !full_ && order_.empty() && exchanges_.empty(); }
  // The next message: what fits in `bytes_max`, and one attempt at least, or
  // one exchange.
  v1::Desired Next(size_t bytes_max);

 private:
  std::deque<std::string> order_;  // attempt ids
  std::map<std::string, v1::DesiredPlace> newest_;
  std::set<std::string> launched_;  // attempts whose launch was sent
  std::deque<SharedExchange> exchanges_;
  bool full_ = false;  // the full set is sent first
  uint64_t version_ = 0;
};

}  // namespace cohort::head
