#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"

// Labels of nodes, as a worker is given them and as the head hears of them.
namespace cohort {

// The level that every node has, itself, and the label that says its name.  Any
// other level is a label.
inline constexpr char kHostLevel[] = "host";

// Of a node that the autoscaler launched: its kind, and which launch it came
// of.
inline constexpr char kNodeTypeLabel[] = "node-type";
inline constexpr char kInstanceLabel[] = "instance";

// At most 256; keys of 1 to 64 bytes (IsNameText), none of them kHostLevel;
// printable values of up to 256 bytes.  InvalidArgument, naming the label.
absl::Status CheckNodeLabels(const std::map<std::string, std::string>& labels);

}  // namespace cohort
