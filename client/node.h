#pragma once

#include <cstddef>
#include <cstdint>

#include "cohort/v1/actor.pb.h"
#include "cohort/v1/autoscaler.pb.h"
#include "cohort/v1/cluster.pb.h"
#include "cohort/v1/security.pb.h"

// Nodes, devices, drivers and the cluster as the head describes them.
namespace cohort {

using Node = v1::Node;
using HeldAttempt = v1::HeldAttempt;
using NodeDetails = v1::GetNodeResponse;
using ClusterResources = v1::GetResourcesResponse;
using ClusterStatus = v1::GetStatusResponse;
using BackupSummary = v1::BackupStoreResponse;
// A job that goes on with an attempt from before a restore.
using Adoption = v1::AdoptAttemptResponse;
// Why a job waits.
using Explanation = v1::ExplainJobResponse;
// Something that happened in the cluster, as the head recorded it.
using Event = v1::Event;

// A program that owns actors, and its tasks as it counts them.
using Driver = v1::Driver;
using DriverList = v1::ListDriversResponse;
// What a rank's process does just now.
using RankStack = v1::GetStackResponse;
using RankCalls = v1::GetServedCallsResponse;

// What nodes are launched and ended, and for what.
using Autoscaling = v1::Autoscaling;
using CapacityRequest = v1::CapacityRequest;

// Whom the head lets in.
using AuditEntry = v1::AuditEntry;
using Token = v1::Token;
using AuthorityList = v1::Authorities;

// Of NodeDetails' history.
inline constexpr size_t kNodeHistoryMax = 32;

// Where an event stands among those that are read.
struct EventPlace {
  bool more = false;  // another one is there already
  // Events before this one that were asked for and are not kept any more.
  uint64_t skipped = 0;
  // The store was restored from a backup since the event before it was read:
  // from this number on its history is another one.
  bool history_replaced = false;
};

}  // namespace cohort
