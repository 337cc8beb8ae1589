#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/v1/node.pb.h"
#include "common/strong_id.h"
#include "head/state/desired.h"

namespace cohort::head {

// What ranks of running attempts gave each other, of each attempt in its
// present epoch.
//
// Kept in memory only: workers repeat all that their ranks gave after each
// registration, so a new head puts it together again.  Thread-compatible;
// belongs to ClusterState.
class ExchangeTable {
 public:
  // Of one attempt.  A tag is used by one phase of a run (transport addresses,
  // file names) and goes down in one message, so all of them stay below the
  // largest (8 MiB): 1,000 ranks with 6 KiB each.
  static constexpr size_t kTagsMax = 256;
  static constexpr size_t kTagBytesMax = 64;
  static constexpr size_t kBlobBytesMax = 64 << 10;
  static constexpr size_t kAttemptBytesMax = 6 << 20;

  using Given = google::protobuf::RepeatedPtrField<v1::PendingExchange>;

  // Takes what the ranks of one node gave in an attempt of `world_size` ranks
  // and in this epoch, with which what was given in others goes;
  // others than `local_ranks` are not heard, nor what is beyond the bounds. The
  // first blob of a rank under a tag stays.  Gives the tags that became
  // complete.
  std::vector<SharedExchange> Give(const AttemptId& attempt, int64_t epoch,
                                   int world_size,
                                   const std::set<int>& local_ranks,
                                   const Given& given);

  // The complete ones, in the order in which their tags were first given.
  std::vector<SharedExchange> CompleteOf(const AttemptId& attempt) const;

  // The ranks, of at most `kMissingMax`, that have not given under the tag that
  // was first mentioned last, which others gave under; empty when all did.
  static constexpr size_t kMissingMax = 8;
  std::vector<int> MissingOf(const AttemptId& attempt) const;

  void Drop(const AttemptId& attempt);
  size_t size() const { return attempts_.size(); }

 private:
  struct Tag {
    std::vector<std::optional<std::string>> blobs;  // by rank, until complete
    size_t given = 0;
    SharedExchange complete;
  };
  struct Attempt {
    int64_t epoch = 0;
    std::map<std::string, Tag> tags;
    std::vector<std::string> order;  // of first mention
    size_t bytes = 0;
  };

  std::map<AttemptId, Attempt> attempts_;
};

}  // namespace cohort::head
