#pragma once

#include <cstddef>
#include <cstdint>

#include "head/state/node_table.h"
#include "head/store/records.h"

// The lives of heads on one store (HD-1): each has a nonce, so that a head on a
// copy of the store is told from the one that went on with the store itself,
// also when both take the same term.  A node follows only a head whose store
// knows the life that it followed last.
namespace cohort::head {

// Of a store.  24 bytes each in the row of the cluster, which is written with
// nearly every change.  One that a node registered with last goes after all
// others, so that a head which starts over and over again forgets none of them.
inline constexpr int kHeadLivesMax = 64;

// Begins the life of `cluster.term`, and forgets one where there are too many:
// the oldest that no node registered with last, else the oldest.
void BeginLife(uint64_t nonce, const NodeTable& nodes, ClusterRecord& cluster);

// Whether a node that followed this life may follow the head.
bool KnowsLife(const ClusterRecord& cluster, uint64_t term, uint64_t nonce);

// Of the life now; 0 before the first one.
inline uint64_t NonceOf(const ClusterRecord& cluster) {
  return cluster.lives().empty() ? 0 : cluster.lives().rbegin()->nonce();
}

}  // namespace cohort::head
