#pragma once

#include <string>
#include <vector>

#include "client/cli/table.h"
#include "client/node.h"

// Devices for people.
namespace cohort::cli {

// "GPU-5ee1, NVIDIA H100, FENCED since T: why; held by JOB (name) ranks 0,1".
std::string DeviceLine(const v1::Device& device);

// One line each, those of all nodes.
std::string GpusTable(const std::vector<Node>& nodes, const TableView& view);

// "key: value" lines of device `index`, then who holds it.
std::string GpuText(const Node& node, int index);

}  // namespace cohort::cli
