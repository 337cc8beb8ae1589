#include "head/store/transition.h"

#include "head/store/records_codec.h"

namespace cohort::head {

void Transition::Put(const ClusterRecord& record) { cluster_ = record; }

Batch Transition::TakeBatch() {
  if (cluster_.has_value()) batch_.push_back(ToWrite(*cluster_));
  cluster_.reset();
  return std::exchange(batch_, {});
}

void Transition::Put(const NodeRecord& record) {
  batch_.push_back(ToWrite(record));
}

void Transition::Put(const JobRecord& record) {
  batch_.push_back(ToWrite(record));
}

void Transition::Put(const AttemptRecord& record) {
  batch_.push_back(ToWrite(record));
}

void Transition::Put(const ArrayRecord& record) {
  batch_.push_back(ToWrite(record));
}

size_t Transition::Put(const RequestRecord& record) {
  batch_.push_back(ToWrite(record));
  return BytesOf(batch_.back());
}

void Transition::Put(const PackageRecord& record) {
  batch_.push_back(ToWrite(record));
}

size_t Transition::Put(const EventRecord& record) {
  batch_.push_back(ToWrite(record));
  return BytesOf(batch_.back());
}

void Transition::Put(const WaitReasonRecord& record) {
  batch_.push_back(ToWrite(record));
}

void Transition::DeleteNode(const NodeId& node) {
  batch_.push_back({Table::kNodes, NodeKey(node), std::nullopt});
}

void Transition::DeleteJob(const JobId& job) {
  batch_.push_back({Table::kJobs, JobKey(job), std::nullopt});
}

void Transition::DeleteAttempt(const AttemptId& attempt) {
  batch_.push_back({Table::kAttempts, AttemptKey(attempt), std::nullopt});
}

void Transition::DeleteArray(const JobId& array) {
  batch_.push_back({Table::kArrays, ArrayKey(array), std::nullopt});
}

void Transition::DeleteRequest(const RequestRecord& record) {
  batch_.push_back({Table::kRequests,
                    RequestRowKey(record.principal, record.request_id),
                    std::nullopt});
}

void Transition::DeletePackage(const std::string& hash) {
  batch_.push_back({Table::kPackages, PackageKey(hash), std::nullopt});
}

void Transition::DeleteEvent(uint64_t number) {
  batch_.push_back({Table::kEvents, EventKey(number), std::nullopt});
}

void Transition::DeleteWaitReason(uint64_t number) {
  batch_.push_back({Table::kWaitReasons, WaitReasonKey(number), std::nullopt});
}

}  // namespace cohort::head
