#pragma once

#include <string>
#include <vector>

#include "client/cli/table.h"
#include "client/node.h"

// Nodes as people read them.
namespace cohort::cli {

// A line a node.
std::string NodesTable(const std::vector<Node>& nodes, const TableView& view);

// "key: value" lines, then what the node has and what happened to it.
std::string NodeText(const NodeDetails& details, const TableView& view);

}  // namespace cohort::cli
