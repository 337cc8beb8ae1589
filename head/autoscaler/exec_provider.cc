#include "head/autoscaler/exec_provider.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/log.h"
#include "common/node_labels.h"
#include "common/printable_text.h"
#include "common/resource_text.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/taint.h"
#include "head/autoscaler/bounded_program.h"
#include "head/autoscaler/provider_json.h"
#include "head/state/token_table.h"
#include "rpc/join_token.h"
#include "rpc/wire_values.h"

extern char** environ;

namespace cohort::head {
namespace {

constexpr size_t kInstancesMax = 100'000;

absl::StatusOr<std::string> ParseLaunched(const std::string& output) {
  COHORT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(output));
  COHORT_ASSIGN_OR_RETURN(std::string id,
                          TextOf(json, "id", kProviderIdBytesMax));
  if (id.empty()) return absl::InvalidArgumentError("its answer has no id");
  return id;
}

absl::StatusOr<ProvidedInstance> ParseInstance(const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError("an instance is not an object");
  }
  ProvidedInstance instance;
  COHORT_ASSIGN_OR_RETURN(instance.id, TextOf(json, "id", kProviderIdBytesMax));
  if (instance.id.empty()) {
    return absl::InvalidArgumentError("an instance has no id");
  }
  COHORT_ASSIGN_OR_RETURN(const std::string key, TextOf(json, "instance", 64));
  if (!key.empty()) {
    COHORT_ASSIGN_OR_RETURN(instance.instance, InstanceId::FromHex(key));
  }
  COHORT_ASSIGN_OR_RETURN(const std::string state, TextOf(json, "state", 64));
  if (state != "" && state != "pending" && state != "running" &&
      state != "failed") {
    return absl::InvalidArgumentError(absl::StrCat(
        "state is pending, running or failed, not ", Shown(state)));
  }
  instance.failed = state == "failed";
  instance.reason = ReasonOf(json);
  instance.notice = NoticeOf(json, "notice_seconds");
  return instance;
}

// "CPU=4,memory=8GiB", as the flag --resources takes it.
std::string CustomResources(const ResourceSet& resources) {
  std::vector<std::string> parts;
  for (const auto& [name, amount] : resources) {
    if (name == kCpu || name == kGpu || name == kMemory) continue;
    parts.push_back(absl::StrCat(name, "=", amount.ToString()));
  }
  return absl::StrJoin(parts, ",");
}

// With which `cohort-worker` becomes this node.
std::vector<std::string> WorkerFlags(const LaunchOrder& order) {
  const v1::NodeType& type = order.type;
  const ResourceSet resources =
      rpc::FromWire(type.resources()).value_or(ResourceSet());
  std::map<std::string, std::string> labels(type.labels().begin(),
                                            type.labels().end());
  labels[kNodeTypeLabel] = type.name();
  labels[kInstanceLabel] = order.instance.ToHex();
  std::vector<std::string> flags = {
      "--name",
      absl::StrCat(type.name(), "-", order.instance.ToHex().substr(0, 8)),
      "--labels", absl::StrJoin(labels, ",", absl::PairFormatter("="))};
  const auto add = [&flags](const char* flag, std::string value) {
    if (value.empty()) return;
    flags.emplace_back(flag);
    flags.push_back(std::move(value));
  };
  if (!resources.Get(kCpu).IsZero()) {
    add("--num-cpus", resources.Get(kCpu).ToString());
  }
  if (!resources.Get(kGpu).IsZero()) {
    add("--num-gpus", absl::StrCat(resources.Get(kGpu).WholeUnits()));
  }
  if (!resources.Get(kMemory).IsZero()) {
    add("--memory",
        SizeToText(resources.Get(kMemory).WholeUnits(), SizeRounding::kNone));
  }
  add("--resources", CustomResources(resources));
  for (const v1::Taint& taint : type.taints()) {
    add("--taint", rpc::FromWire(taint).ToString());
  }
  return flags;
}

}  // namespace

absl::StatusOr<std::vector<ProvidedInstance>> ParseInstances(
    const std::string& output) {
  COHORT_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(output));
  const auto list = json.find("instances");
  if (list == json.end() || !list->is_array()) {
    return absl::InvalidArgumentError("its answer has no list of instances");
  }
  if (list->size() > kInstancesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("it lists ", list->size(), " instances"));
  }
  std::vector<ProvidedInstance> instances;
  for (const Json& each : *list) {
    absl::StatusOr<ProvidedInstance> instance = ParseInstance(each);
    if (instance.ok()) {
      instances.push_back(*std::move(instance));
    } else {
      COHORT_LOG(kWarning, "instance_not_understood",
                 {"why", instance.status()});
    }
  }
  return instances;
}

ExecProvider::ExecProvider(ExecProviderOptions options, Executor& strand)
    : options_(std::move(options)),
      strand_(strand),
      pool_(options_.programs_max) {}

ExecProvider::~ExecProvider() { is_stopping_ = true; }

std::string ExecProvider::PathOf(const std::string& program) const {
  if (absl::StrContains(program, '/')) return program;
  return absl::StrCat(options_.program_directory, "/cohort-provider-", program);
}

absl::Status ExecProvider::Check(const std::string& program) const {
  const std::string path = PathOf(program);
  struct stat status = {};
  const bool is_whole = path[0] == '/' || !absl::StrContains(program, '/');
  if (is_whole && stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
      access(path.c_str(), X_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "provider ", Shown(program), " is not a program that can be run: ",
      Shown(path), " (name one by its whole path on the head's machine)"));
}

std::vector<std::string> ExecProvider::Environment(
    const ClusterId& cluster) const {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    if (!absl::StartsWith(*each, "COHORT_")) variables.emplace_back(*each);
  }
  const auto add = [&variables](const char* name, const std::string& value) {
    variables.push_back(absl::StrCat(name, "=", value));
  };
  add("COHORT_CLUSTER", cluster.ToHex());
  add("COHORT_ADDRESS", address_);
  add("COHORT_HEAD_STATE_DIR", options_.state_dir);
  add("COHORT_WORKER", options_.program_directory + "/cohort-worker");
  return variables;
}

std::string ExecProvider::JoinVariable(const InstanceId& instance) const {
  const rpc::Credential& cluster = options_.credential;
  if (cluster.authority().empty()) {
    return absl::StrCat("COHORT_CREDENTIAL_FILE=", options_.state_dir,
                        "/credential");
  }
  const auto token = rpc::Credential::OfToken(cluster, LaunchTokenId(instance));
  return absl::StrCat("COHORT_JOIN_TOKEN=", rpc::JoinToken::Of(token).ToText());
}

void ExecProvider::Run(std::vector<std::string> command,
                       std::vector<std::string> environment, Ended ended) {
  pool_.Post([this, command = std::move(command),
              environment = std::move(environment),
              ended = std::move(ended)]() mutable {
    absl::StatusOr<std::string> output = RunProgram(
        command, environment, {.timeout = options_.timeout}, is_stopping_);
    strand_.Post(
        [ended = std::move(ended), output = std::move(output)]() mutable {
          ended(std::move(output));
        });
  });
}

void ExecProvider::Launch(const std::string& program, const LaunchOrder& order,
                          Launched done) {
  std::vector<std::string> command = {
      PathOf(program), "launch", order.instance.ToHex(), order.type.name()};
  for (std::string& flag : WorkerFlags(order)) {
    command.push_back(std::move(flag));
  }
  std::vector<std::string> environment = Environment(order.cluster);
  environment.push_back(
      absl::StrCat("COHORT_PROVIDER_CONFIG=", order.type.provider_config()));
  environment.push_back(
      absl::StrCat("COHORT_SPOT=", order.type.spot() ? "1" : "0"));
  environment.push_back(JoinVariable(order.instance));
  Run(std::move(command), std::move(environment),
      [done = std::make_shared<Launched>(std::move(done))](
          absl::StatusOr<std::string> output) {
        if (!output.ok()) return std::move(*done)(output.status());
        std::move (*done)(ParseLaunched(*output));
      });
}

void ExecProvider::Terminate(const std::string& program,
                             const ClusterId& cluster, const std::string& id,
                             Done done) {
  Run({PathOf(program), "terminate", id}, Environment(cluster),
      [done = std::make_shared<Done>(std::move(done))](
          const absl::StatusOr<std::string>& output) {
        std::move (*done)(output.status());
      });
}

void ExecProvider::List(const std::string& program, const ClusterId& cluster,
                        Listed done) {
  Run({PathOf(program), "list"}, Environment(cluster),
      [done = std::make_shared<Listed>(std::move(done))](
          absl::StatusOr<std::string> output) {
        if (!output.ok()) return std::move(*done)(output.status());
        std::move (*done)(ParseInstances(*output));
      });
}

void ExecProvider::Watch(const std::string& program, const ClusterId& cluster,
                         Watched on_event) {
  std::vector<std::string> command = {PathOf(program), "watch"};
  if (watch_ != nullptr && watch_->command() == command) return;
  watch_ = nullptr;  // before the next one begins
  watch_ = std::make_unique<ProviderWatch>(
      std::move(command), Environment(cluster), strand_, std::move(on_event));
}

}  // namespace cohort::head
