#include "head/autoscaler/autoscaler_service.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/duration_text.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/autoscaler/scale_input.h"
#include "head/state/cluster_file.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kInstancesShown = 1'000;
constexpr int kUnservedShown = 100;
constexpr size_t kNameBytesMax = 64;
constexpr int kBundlesMax = 64;
constexpr int64_t kBundleCountMax = 10'000;

// "2 gpu and 1 cpu".
std::string CountsText(const std::map<std::string, int>& counts) {
  std::vector<std::string> parts;
  for (const auto& [type, count] : counts) {
    parts.push_back(absl::StrCat(count, " ", type));
  }
  return absl::StrJoin(parts, " and ");
}

std::string WholeSeconds(absl::Duration duration) {
  return DurationToText(absl::Trunc(
      std::max(duration, absl::ZeroDuration()) + absl::Milliseconds(500),
      absl::Seconds(1)));
}

std::string AwaitedText(const ScalePlan::Awaited& awaited) {
  return absl::StrCat("the time limit of job ", awaited.job,
                      " makes room for it on node ", awaited.node, " within ",
                      WholeSeconds(awaited.in));
}

// Why an idle node stays for so long.
std::string HeldText(const std::vector<JobId>& jobs, absl::Duration left) {
  return absl::StrCat(", is kept for ", WholeSeconds(left), " with what ",
                      jobs.size(), jobs.size() == 1 ? " job" : " jobs",
                      " wrote only there (cohort jobs "
                      "get-files ",
                      jobs.front().ToText(), " DIR fetches it)");
}

std::string NotEndedText(const Autoscaler::NotEnded& vain,
                         absl::Duration wait) {
  return absl::StrCat("the provider did not end it, asked ", vain.tries,
                      vain.tries == 1 ? " time" : " times", ", again in ",
                      WholeSeconds(wait), ": ", vain.why);
}

// Of those of these types that are on their way, the one that was asked for
// first: for this job, or else for another one.  Null: there is none.
const InstanceRecord* FirstLaunching(const Fleet& fleet, const JobId& job,
                                     const std::map<std::string, int>& types) {
  const InstanceRecord* first = nullptr;
  const auto rank = [&job](const InstanceRecord& instance) {
    return std::pair(instance.job_id() != IdBytes(job),
                     instance.created_at_us());
  };
  for (const auto& [id, instance] : fleet.instances()) {
    if (!IsLaunching(instance) || !types.contains(instance.node_type())) {
      continue;
    }
    if (first == nullptr || rank(instance) < rank(*first)) first = &instance;
  }
  return first;
}

}  // namespace

AutoscalerService::AutoscalerService(Autoscaler& autoscaler, StateHost& host,
                                     const Provider* provider, Executor& strand,
                                     const Clock& clock)
    : autoscaler_(autoscaler),
      host_(host),
      provider_(provider),
      strand_(strand),
      clock_(clock),
      self_(std::make_shared<AutoscalerService*>(this)) {}

AutoscalerService::~AutoscalerService() { *self_ = nullptr; }

// ---- what people are told ----

std::string AutoscalerService::ScalingOf(const JobId& job) const {
  const auto served = autoscaler_.plan().served.find(job);
  if (served != autoscaler_.plan().served.end())
    return LaunchingText(job, served->second);
  const auto awaited = autoscaler_.plan().awaited.find(job);
  if (awaited != autoscaler_.plan().awaited.end()) {
    return absl::StrCat(
        "no node is launched for it: ", AwaitedText(awaited->second),
        ", which is sooner than a launch");
  }
  for (const ScalePlan::Unserved& each : autoscaler_.plan().unserved) {
    if (each.job == job) {
      return absl::StrCat("no node is launched for it: ", each.why);
    }
  }
  return "";
}

// "2 gpu nodes are being launched for it, requested 40s ago, usually 1m35s".
std::string AutoscalerService::LaunchingText(
    const JobId& job, const std::map<std::string, int>& nodes) const {
  int count = 0;
  absl::Duration usual;
  for (const auto& [type, number] : nodes) {
    count += number;
    const auto health = autoscaler_.health().types().find(type);
    if (health != autoscaler_.health().types().end())
      usual = std::max(usual, health->second.usual);
  }
  std::string text =
      absl::StrCat(CountsText(nodes), count == 1 ? " node " : " nodes ");
  if (autoscaler_.is_dry_run())
    return absl::StrCat(text, "would be launched for it");
  absl::StrAppend(&text, count == 1 ? "is" : "are", " being launched for it");
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  const InstanceRecord* const first =
      state.ok() ? FirstLaunching((*state)->fleet(), job, nodes) : nullptr;
  if (first != nullptr) {
    absl::StrAppend(
        &text, ", requested ",
        WholeSeconds(clock_.Wall() - FromMicros(first->created_at_us())),
        " ago");
  }
  if (usual > absl::ZeroDuration()) {
    absl::StrAppend(&text, ", usually ", WholeSeconds(usual));
  }
  if (first != nullptr && !first->reason().empty()) {
    absl::StrAppend(&text, "; the provider says: ", first->reason());
  }
  return text;
}

void AutoscalerService::ShowTypes(const Fleet& fleet,
                                  v1::Autoscaling& shown) const {
  for (const v1::NodeType& type : fleet.file()->node_types()) {
    v1::NodeTypeStatus& status = *shown.add_node_types();
    *status.mutable_type() = type;
    for (const auto& [id, instance] : fleet.instances()) {
      if (instance.node_type() != type.name()) continue;
      if (IsLaunching(instance)) {
        status.set_launching(status.launching() + 1);
      } else if (instance.state() == v1::INSTANCE_STATE_JOINED) {
        status.set_running(status.running() + 1);
      } else {
        status.set_ending(status.ending() + 1);
      }
    }
    const auto health = autoscaler_.health().types().find(type.name());
    if (health == autoscaler_.health().types().end()) continue;
    status.set_failures(static_cast<uint32_t>(health->second.failures));
    status.set_failure(health->second.failure);
    if (health->second.failures > 0) {
      status.set_tried_again_at_us(ToMicros(health->second.again_at_wall));
    }
    status.set_usual_launch_us(absl::ToInt64Microseconds(health->second.usual));
  }
}

void AutoscalerService::ShowNext(const ClusterState& state,
                                 v1::Autoscaling& shown) const {
  const Fleet& fleet = state.fleet();
  std::map<std::pair<std::string, std::string>, int> launches;
  if (autoscaler_.is_dry_run()) {
    for (const ScalePlan::Launch& each : autoscaler_.plan().launches) {
      const std::string of =
          each.job == JobId()
              ? ""
              : absl::StrCat(" of job ", NameOfJob(state, each.job));
      ++launches[{each.type, absl::StrCat(each.why, of)}];
    }
    for (const auto& [launch, count] : launches) {
      shown.add_next(absl::StrCat("would launch ", count, " ", launch.first,
                                  ": ", launch.second));
    }
  }
  for (const auto& [job, awaited] : autoscaler_.plan().awaited) {
    if (shown.next_size() == kUnservedShown) return;
    shown.add_next(
        absl::StrCat("job ", NameOfJob(state, job),
                     " waits without a launch: ", AwaitedText(awaited)));
  }
  const absl::Duration now = clock_.Monotonic();
  for (const auto& [node, entry] : autoscaler_.idle()) {
    const absl::Duration since = entry.since;
    const InstanceRecord* const instance = fleet.OfNode(node);
    const v1::NodeType* const type =
        instance == nullptr ? nullptr : fleet.FindType(instance->node_type());
    const NodeRecord* const record = state.nodes().Find(node);
    if (type == nullptr || record == nullptr) continue;
    const absl::Duration left =
        since + absl::Microseconds(type->idle_timeout_us()) - now;
    const std::string idle = absl::StrCat(
        "node ", record->node.name(), " has been idle for ",
        DurationToText(absl::Trunc(now - since, absl::Seconds(1))));
    if (const auto held = autoscaler_.held_for().find(node);
        held != autoscaler_.held_for().end()) {
      shown.add_next(absl::StrCat(
          idle,
          HeldText(held->second,
                   since + absl::Microseconds(fleet.file()->data_timeout_us()) -
                       now)));
      continue;
    }
    if (state.HasDeadlineAhead(node)) {
      const absl::Time deadline =
          rpc::FromWire(record->node.drain().deadline());
      shown.add_next(
          absl::StrCat(idle, ", stays until the deadline of its drain, in ",
                       WholeSeconds(deadline - clock_.Wall())));
      continue;
    }
    shown.add_next(absl::StrCat(
        idle,
        left > absl::ZeroDuration()
            ? absl::StrCat(", ends in ",
                           DurationToText(absl::Ceil(left, absl::Seconds(1))),
                           " if nothing needs it")
            : ", kept because it is needed"));
    if (shown.next_size() == kUnservedShown) break;
  }
}

v1::Autoscaling AutoscalerService::Show(const ClusterState& state) const {
  v1::Autoscaling shown;
  const Fleet& fleet = state.fleet();
  shown.set_is_dry_run(autoscaler_.is_dry_run());
  for (const auto& [key, capacity] : fleet.capacity()) {
    *shown.add_requests() = capacity;
  }
  if (!refused_.empty()) shown.add_next(refused_);
  if (!fleet.file().has_value()) return shown;
  shown.set_is_configured(true);
  *shown.mutable_file() = *fleet.file();
  shown.set_provider(fleet.file()->provider());
  shown.set_provider_error(autoscaler_.provider_error());
  ShowTypes(fleet, shown);
  for (const auto& [id, instance] : fleet.instances()) {
    if (static_cast<size_t>(shown.instances_size()) == kInstancesShown) break;
    v1::Instance& each = *shown.add_instances();
    each = instance;
    const auto vain = autoscaler_.not_ended().find(id);
    if (vain != autoscaler_.not_ended().end()) {
      each.set_reason(absl::StrCat(
          instance.reason(), instance.reason().empty() ? "" : "; ",
          NotEndedText(vain->second,
                       autoscaler_.AskedAgainAt(id) - clock_.Monotonic())));
    }
  }
  for (const ScalePlan::Unserved& each : autoscaler_.plan().unserved) {
    if (shown.unserved_size() == kUnservedShown) break;
    v1::Unserved& unserved = *shown.add_unserved();
    unserved.set_job_id(IdBytes(each.job));
    unserved.set_name(each.job == JobId() ? each.name
                                          : NameOfJob(state, each.job));
    unserved.set_why(each.why);
  }
  shown.set_served(autoscaler_.plan().served.size());
  ShowNext(state, shown);
  return shown;
}

// ---- calls ----

absl::Status AutoscalerService::Apply(
    const rpc::Principal& principal, const v1::ApplyClusterFileRequest& request,
    ClusterState& state, Transition& transition) {
  COHORT_ASSIGN_OR_RETURN(ClusterFile file, ParseClusterFile(request.text()));
  COHORT_RETURN_IF_ERROR(CheckFile(file, state.fleet()));
  COHORT_RETURN_IF_ERROR(CheckProgram(file, state.fleet()));
  if (state.fleet().file().has_value()) {
    file.set_start_text_hash(state.fleet().file()->start_text_hash());
  }
  state.ApplyClusterFile(principal.name, std::move(file), transition);
  refused_.clear();
  autoscaler_.ForgetFailures();
  autoscaler_.Poke();
  return absl::OkStatus();
}

void AutoscalerService::ApplyAtStart(ClusterFile file) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return;
  const Fleet& fleet = (*state)->fleet();
  file.set_start_text_hash(std::string(Sha256::Of(file.text()).bytes()));
  // What a person has applied since then stays.
  if (fleet.file().has_value() &&
      fleet.file()->start_text_hash() == file.start_text_hash()) {
    return;
  }
  const absl::Status status = CheckFile(file, fleet);
  if (!status.ok()) {
    COHORT_LOG(kError, "cluster_file_refused", {"why", status});
    refused_ = absl::StrCat("the file of --cluster-file is not applied: ",
                            status.message());
    Transition transition;
    (*state)->NoteScaling("cluster_file_refused", refused_, transition);
    return host_.Submit(std::move(transition));
  }
  Transition transition;
  (*state)->ApplyClusterFile("head", std::move(file), transition);
  host_.Submit(std::move(transition));
}

// A user who may submit jobs runs programs on workers, not on the head.
absl::Status AutoscalerService::CheckProgram(const ClusterFile& file,
                                             const Fleet& fleet) {
  if (!absl::StrContains(file.provider(), '/') ||
      (fleet.file().has_value() &&
       fleet.file()->provider() == file.provider())) {
    return absl::OkStatus();
  }
  return SetReason(
      absl::PermissionDeniedError(absl::StrCat(
          "provider ", Shown(file.provider()),
          " is a program of the head's machine, which only `cohort head "
          "--cluster-file` names")),
      "foreign_program");
}

absl::Status AutoscalerService::CheckFile(const ClusterFile& file,
                                          const Fleet& fleet) const {
  if (provider_ == nullptr) {
    return absl::UnimplementedError("this head has no providers");
  }
  COHORT_RETURN_IF_ERROR(provider_->Check(file.provider()));
  if (fleet.file().has_value() && !fleet.instances().empty() &&
      fleet.file()->provider() != file.provider()) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            fleet.instances().size(), " instances are with provider ",
            fleet.file()->provider(),
            ", which another one could not end (apply a file without node "
            "types first, and wait until they are gone)")),
        "other_provider");
  }
  return absl::OkStatus();
}

absl::Status AutoscalerService::Request(
    const rpc::Principal& principal, const v1::RequestCapacityRequest& request,
    ClusterState& state, Transition& transition) {
  CapacityRecord capacity = request.request();
  if (!IsNameText(capacity.name()) || capacity.name().size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name of a request for capacity is printable text of 1 to ",
        kNameBytesMax, " bytes, not ", Shown(capacity.name())));
  }
  if (capacity.bundles().empty() || capacity.bundles_size() > kBundlesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request for capacity has 1 to ", kBundlesMax,
                     " bundles, not ", capacity.bundles_size()));
  }
  for (const auto& bundle : capacity.bundles()) {
    COHORT_ASSIGN_OR_RETURN(const ResourceSet resources,
                            rpc::FromWire(bundle.resources()));
    if (resources.empty() || bundle.count() == 0 ||
        bundle.count() > kBundleCountMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a bundle has resources and a count of 1 to ", kBundleCountMax));
    }
  }
  if (request.ttl_us() < 0) {
    return absl::InvalidArgumentError("--ttl is negative");
  }
  capacity.clear_expires_at_us();
  capacity.clear_origin();
  capacity.mutable_origin()->set_principal(principal.name);
  capacity.set_owner(principal.name);
  COHORT_RETURN_IF_ERROR(state.RequestCapacity(
      std::move(capacity),
      request.ttl_us() == 0 ? absl::InfiniteDuration()
                            : absl::Microseconds(request.ttl_us()),
      transition));
  autoscaler_.Poke();
  return absl::OkStatus();
}

absl::Status AutoscalerService::Withdraw(
    const rpc::Principal& principal, const v1::WithdrawCapacityRequest& request,
    ClusterState& state, Transition& transition) {
  std::string owner =
      request.owner().empty() ? principal.name : request.owner();
  // Users are listed without what tells them from other principals.
  if (!request.owner().empty() && owner != "cluster" &&
      !absl::StrContains(owner, '/')) {
    owner = absl::StrCat("user/", owner);
  }
  if (owner != principal.name && principal.role != rpc::Role::kAdmin) {
    return SetReason(
        absl::PermissionDeniedError(absl::StrCat(
            "request ", Shown(request.name()), " of ", Shown(owner),
            " is not of ", principal.name, " (an admin may withdraw it)")),
        "another_owner");
  }
  COHORT_RETURN_IF_ERROR(state.WithdrawCapacity(
      principal.name, {owner, request.name()}, transition));
  autoscaler_.Poke();
  return absl::OkStatus();
}

template <typename Req, typename Resp>
void AutoscalerService::Handle(
    rpc::Router& router, const rpc::UnaryMethod<Req, Resp>& method,
    absl::Status (AutoscalerService::*decide)(const rpc::Principal&, const Req&,
                                              ClusterState&, Transition&)) {
  router.Handle(
      method, strand_,
      [self = self_, decide](const std::shared_ptr<rpc::CallContext>& context,
                             const Req& request, rpc::Reply<Resp> reply) {
        if (*self == nullptr) return std::move(reply)(Gone());
        StateHost& host = (*self)->host_;
        const absl::StatusOr<ClusterState*> state =
            host.Writable(Admission::kClient);
        if (!state.ok()) return std::move(reply)(state.status());
        Transition transition;
        const absl::Status decided = ((*self)->*decide)(
            context->principal(), request, **state, transition);
        transition.Then([reply = std::move(reply),
                         decided](const absl::Status& status) mutable {
          if (!status.ok()) return std::move(reply)(status);
          if (!decided.ok()) return std::move(reply)(decided);
          std::move(reply)(Resp());
        });
        host.Submit(std::move(transition));
      });
}

void AutoscalerService::RegisterOn(rpc::Router& router) {
  Handle(router, rpc::kApplyClusterFile, &AutoscalerService::Apply);
  Handle(router, rpc::kRequestCapacity, &AutoscalerService::Request);
  Handle(router, rpc::kWithdrawCapacity, &AutoscalerService::Withdraw);
  router.Handle(rpc::kGetAutoscaler, strand_,
                [self = self_](const std::shared_ptr<rpc::CallContext>&,
                               const v1::GetAutoscalerRequest&,
                               rpc::Reply<v1::Autoscaling> reply) {
                  if (*self == nullptr) return std::move(reply)(Gone());
                  const absl::StatusOr<const ClusterState*> state =
                      (*self)->host_.Readable();
                  if (!state.ok()) return std::move(reply)(state.status());
                  v1::Autoscaling shown = (*self)->Show(**state);
                  (*self)->host_.AfterDurable(
                      [reply = std::move(reply), shown = std::move(shown)](
                          const absl::Status& status) mutable {
                        if (!status.ok()) return std::move(reply)(status);
                        std::move(reply)(std::move(shown));
                      });
                });
}

}  // namespace cohort::head
