#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "client/cli/autoscaler_text.h"
#include "client/cli/command.h"
#include "client/cli/daemon.h"
#include "client/cli/errors.h"
#include "client/json.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/resources.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/wire_values.h"

// `cohort autoscaler`: what nodes are launched and ended, and for what.
namespace cohort::cli {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr uint32_t kBundleCountMax = 10'000;

struct RequestFlags {
  std::string name;
  uint32_t num_cpus = 0;
  uint32_t num_gpus = 0;
  std::vector<std::string> bundles;
  std::string ttl;
};

void AddBundle(const ResourceSet& resources, uint32_t count,
               CapacityRequest& request) {
  auto& bundle = *request.add_bundles();
  *bundle.mutable_resources() = rpc::ToWire(resources);
  bundle.set_count(count);
}

// "4*CPU=8,GPU=1", or without a number one.
absl::Status ParseBundle(const std::string& text, CapacityRequest& request) {
  std::string resources = text;
  uint32_t count = 1;
  const size_t star = text.find('*');
  if (star != std::string::npos) {
    resources = text.substr(star + 1);
    if (!absl::SimpleAtoi(text.substr(0, star), &count) || count == 0 ||
        count > kBundleCountMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--bundles ", Shown(text),
                       ": a bundle is [N*]CPU=8,GPU=1, with N "
                       "from 1 to ",
                       kBundleCountMax));
    }
  }
  const absl::StatusOr<ResourceSet> parsed = ParseResources(resources);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--bundles ", Shown(text), ": ", parsed.status().message()));
  }
  AddBundle(*parsed, count, request);
  return absl::OkStatus();
}

absl::StatusOr<CapacityRequest> ToRequest(const RequestFlags& flags) {
  CapacityRequest request;
  request.set_name(flags.name);
  const auto each = [&](const char* resource, uint32_t count) {
    if (count == 0) return;
    ResourceSet one;
    one.Set(resource, Amount::FromUnits(1));
    AddBundle(one, count, request);
  };
  each(kCpu, flags.num_cpus);
  each(kGpu, flags.num_gpus);
  for (const std::string& bundle : flags.bundles) {
    COHORT_RETURN_IF_ERROR(ParseBundle(bundle, request));
  }
  if (request.bundles().empty()) {
    return absl::InvalidArgumentError(
        "nothing is requested: give --num-cpus, --num-gpus or --bundles");
  }
  return request;
}

absl::StatusOr<int> Request(const Invocation& invocation,
                            const RequestFlags& flags) {
  const absl::StatusOr<CapacityRequest> request = ToRequest(flags);
  if (!request.ok()) return UsageError(std::string(request.status().message()));
  absl::Duration ttl = absl::InfiniteDuration();
  if (!flags.ttl.empty()) {
    const absl::StatusOr<absl::Duration> parsed = ParseDuration(flags.ttl);
    if (!parsed.ok() || *parsed <= absl::ZeroDuration()) {
      return UsageError(
          absl::StrCat("--ttl ", Shown(flags.ttl), ": ",
                       parsed.ok() ? "it is above 0"
                                   : std::string(parsed.status().message())));
    }
    ttl = *parsed;
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_RETURN_IF_ERROR(cluster->RequestCapacity(*request, ttl));
  COHORT_RETURN_IF_ERROR(Print(absl::StrCat(
      "capacity ", OneLine(flags.name), " is requested",
      flags.ttl.empty() ? "" : absl::StrCat(" for ", DurationToText(ttl)))));
  return kExitOk;
}

absl::StatusOr<int> Apply(const Invocation& invocation,
                          const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(const std::string text,
                          ReadFile(path, kFileBytesMax));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  const absl::Status applied = cluster->ApplyClusterFile(text);
  if (absl::IsInvalidArgument(applied)) {
    return UsageError(absl::StrCat(OneLine(path), ": ", applied.message()));
  }
  COHORT_RETURN_IF_ERROR(applied);
  COHORT_RETURN_IF_ERROR(Print(absl::StrCat(OneLine(path), " is applied")));
  return kExitOk;
}

absl::StatusOr<int> Show(const Invocation& invocation,
                         std::string (*text)(const Autoscaling&, absl::Time,
                                             const TableView&)) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const Autoscaling autoscaling,
                          cluster->GetAutoscaling());
  COHORT_RETURN_IF_ERROR(invocation.json
                             ? Print(ToJson(autoscaling))
                             : PrintRaw(text(autoscaling, MachineClock().Wall(),
                                             ViewFor(invocation))));
  return kExitOk;
}

}  // namespace

void AddAutoscaler(CLI::App& cohort, Invocation& invocation) {
  CLI::App* const noun = cohort.add_subcommand(
      "autoscaler", "Launch nodes for waiting work and end idle nodes");
  noun->require_subcommand(1);

  CLI::App* const status = AddCommand(
      *noun, "status", "Show node types, instances, and work that gets no node",
      invocation, [&invocation] { return Show(invocation, AutoscalingText); });
  AddOutputFlags(*status, invocation);

  auto file = std::make_shared<std::string>();
  CLI::App* const apply =
      AddCommand(*noun, "apply", "Replace the cluster file", invocation,
                 [&invocation, file] { return Apply(invocation, *file); });
  apply->add_option("FILE", *file, "YAML, as docs/autoscaling.md describes it")
      ->required();

  CLI::App* const check = noun->add_subcommand("check", "Check a cluster file");
  check->add_option("FILE", *file, "The cluster file")->required();
  check->callback([&invocation, file] {
    invocation.run = [file]() -> absl::StatusOr<int> {
      return BecomeDaemon("cohort-head", {"check-cluster-file", *file});
    };
  });

  auto flags = std::make_shared<RequestFlags>();
  CLI::App* const request = AddCommand(
      *noun, "request", "Request room, whether it is used or not", invocation,
      [&invocation, flags] { return Request(invocation, *flags); });
  request
      ->add_option("NAME", flags->name,
                   "The request; yours of this name is replaced")
      ->required();
  request->add_option("--num-cpus", flags->num_cpus,
                      "This many bundles of one CPU each");
  request->add_option("--num-gpus", flags->num_gpus,
                      "This many bundles of one GPU each");
  request
      ->add_option("--bundles", flags->bundles,
                   "[N*]CPU=8,GPU=1: N of these, each on one node; more than "
                   "once for several")
      ->option_text("B");
  request
      ->add_option("--ttl", flags->ttl,
                   "For how long, as 1h (default: until it is withdrawn)")
      ->option_text("T");

  CLI::App* const requests =
      AddCommand(*noun, "requests", "List the requests for room", invocation,
                 [&invocation] { return Show(invocation, CapacityTable); });
  AddOutputFlags(*requests, invocation);

  auto name = std::make_shared<std::string>();
  auto owner = std::make_shared<std::string>();
  CLI::App* const withdraw = AddCommand(
      *noun, "withdraw", "End a request for room", invocation,
      [&invocation, name, owner]() -> absl::StatusOr<int> {
        COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                                Connect(invocation, kChangeDeadline));
        COHORT_RETURN_IF_ERROR(cluster->WithdrawCapacity(*name, *owner));
        COHORT_RETURN_IF_ERROR(
            Print(absl::StrCat("capacity ", OneLine(*name), " is withdrawn")));
        return kExitOk;
      });
  withdraw->add_option("NAME", *name, "The request")->required();
  withdraw
      ->add_option("--owner", *owner,
                   "Whose it is, as `requests` shows it: for admins (default: "
                   "yours)")
      ->option_text("S");
}

}  // namespace cohort::cli
