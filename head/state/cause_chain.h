#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/strong_id.h"
#include "head/store/records.h"

// How an attempt's end came about, in words for people, the first cause first:
// "node n1 was silent for 10s", "rank 2 on n1 was lost", "attempt 1 ended; 3
// siblings were stopped".  Kept in the rows, so that they still tell it when
// the node is gone.  Pure.
namespace cohort::head {

// What a node is called.
using NodeNames = std::function<std::string(const NodeId&)>;

// Facts of one attempt, or of a chain of jobs; Shorten keeps to it.
inline constexpr size_t kCausesMax = 12;
inline constexpr size_t kCauseBytesMax = 1'024;

// "rank 3 exited with code 1: why"; with `node` not empty "rank 3 on n1 ...".
std::string DescribeExit(int rank, const std::string& node,
                         const ExitStatus& exit);

// "ranks 2, 3 on n1 were lost".  REQUIRES: there is one.
std::string DescribeLoss(const std::vector<int>& ranks,
                         const std::string& node);

// "attempt 1 ended; 3 siblings were stopped".  REQUIRES: all is over.
std::string DescribeEnd(const AttemptRecord& attempt);

// Adds facts behind (or before) those that are known.
void AddCauses(const std::vector<std::string>& facts, bool in_front,
               AttemptRecord& attempt);

// Keeps the first of more than kCausesMax causes and the last ones, and says
// between them how many are left out: "... 3 more".
void Shorten(std::vector<std::string>& causes);

}  // namespace cohort::head
