#include "bench/sim_head.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "head/state/rows.h"
#include "head/testing/job_specs.h"

namespace cohort::bench {

SimHead::SimHead(const std::string& directory, OnDesired on_desired)
    : on_desired_(std::move(on_desired)) {
  auto store = head::RocksdbStore::Open({.path = directory});
  COHORT_CHECK(store.ok()) << store.status().ToString();
  store_ = std::make_unique<NotingStore>(*std::move(store));
  OnStrand([this] {
    head::ClusterLimits limits;
    limits.node_timeout = absl::Hours(1);  // nobody renews
    head::NodeLinks& links = *this;
    head::JobWatchers& watchers = *this;
    state_ = std::make_unique<head::ClusterState>(
        limits, clock_, random_, links, watchers, head::Rows());
    head::Transition transition;
    state_->TakeTerm(transition);
    const absl::Status taken = store_->Append(0, transition.TakeBatch());
    COHORT_CHECK(taken.ok()) << taken.ToString();
    commit_ = std::make_unique<head::Commit>(
        *store_, store_strand_, strand_, state_->cluster().term(),
        [](const absl::Status& status) {
          COHORT_CHECK(status.ok()) << status.ToString();
        });
  });
}

SimHead::~SimHead() {
  Flush();
  OnStrand([this] {
    commit_.reset();
    state_.reset();
  });
  store_strand_.Drain();
}

void SimHead::OnStrand(const std::function<void()>& task) {
  Latch done;
  strand_.Post([&] {
    task();
    done.Open();
  });
  done.Wait();
}

void SimHead::Flush() {
  Latch durable;
  strand_.Post([&] {
    commit_->AfterDurable([&](const absl::Status& status) {
      COHORT_CHECK(status.ok()) << status.ToString();
      durable.Open();
    });
  });
  durable.Wait();
}

NodeId SimHead::Join(const head::NodeRecord& record) {
  head::Registration registration;
  registration.id = record.id;
  registration.node = record.node;
  registration.node.set_host("10.0.0.1");
  registration.observed.set_full(true);
  head::Transition transition;
  const auto registered = state_->RegisterNode(registration, transition);
  COHORT_CHECK(registered.ok()) << registered.status().ToString();
  incarnations_[record.id] = registered->incarnation;
  transition.Then([this, node = record.id,
                   incarnation = registered->incarnation,
                   desired = registered->desired](const absl::Status& status) {
    COHORT_CHECK(status.ok()) << status.ToString();
    SendDesired(node, incarnation, desired);
  });
  commit_->Submit(std::move(transition));
  return record.id;
}

void SimHead::Submit(int num_workers, const std::string& per_worker,
                     std::function<void()> durable) {
  head::JobSpec spec;
  spec.set_name("bench");
  head::SetCommand(spec, {"./train", "--epochs", "10"});
  spec.mutable_scaling()->set_num_workers(num_workers);
  head::SetResources(spec, *ParseResources(per_worker));
  head::Transition transition;
  const auto job =
      state_->SubmitJob({.principal = "bench",
                         .request_id = absl::StrCat("request-", ++requests_),
                         .body_hash = std::string(32, 'h')},
                        "default", std::move(spec), transition);
  COHORT_CHECK(job.ok()) << job.status().ToString();
  transition.Then([durable = std::move(durable)](const absl::Status& status) {
    COHORT_CHECK(status.ok()) << status.ToString();
    durable();
  });
  commit_->Submit(std::move(transition));
}

void SimHead::Observe(const NodeId& node, const v1::ObservedPlace& place) {
  v1::Observed observed;
  *observed.add_places() = place;
  head::Transition transition;
  const absl::Status said =
      state_->Observe(node, incarnations_.at(node), observed, transition);
  COHORT_CHECK(said.ok()) << said.ToString();
  commit_->Submit(std::move(transition));
}

void SimHead::SendDesired(const NodeId& node, uint64_t,
                          const std::vector<v1::DesiredPlace>& places) {
  for (const v1::DesiredPlace& place : places) on_desired_(node, place);
}

}  // namespace cohort::bench
