#include "bench/node_swarm.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

#include "client/cluster.h"
#include "cohort/v1/node.pb.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "rpc/wire_values.h"

namespace cohort::bench {
namespace {

constexpr absl::Duration kSettle = absl::Milliseconds(300);

std::string Beat(const v1::Stamp& stamp, uint64_t incarnation) {
  v1::WorkerMessage message;
  *message.mutable_stamp() = stamp;
  message.set_incarnation(incarnation);
  message.mutable_heartbeat();
  return message.SerializeAsString();
}

}  // namespace

std::string RegisterOf(int number) {
  v1::WorkerMessage message;
  v1::Register& node = *message.mutable_register_();
  node.mutable_protocol()->set_min_version(1);
  node.mutable_protocol()->set_max_version(1);
  std::string id(16, '\0');
  for (int i = 0; i < 4; ++i) {
    id[static_cast<size_t>(i)] = static_cast<char>(number >> (8 * i));
  }
  id[15] = 1;
  node.set_node_id(id);
  node.set_name(absl::StrCat("node-", number));
  node.set_host("127.0.0.1");
  node.set_pid(1 + number);
  node.set_daemon_nonce(static_cast<uint64_t>(number) + 1);
  *node.mutable_resources() =
      rpc::ToWire(*ParseResources("CPU=64,GPU=8,memory=512GiB"));
  for (int gpu = 0; gpu < 8; ++gpu) {
    v1::Device& device = *node.add_devices();
    device.set_id(absl::StrCat("GPU-", number, "-", gpu));
    device.set_kind("gpu");
    device.set_model("bench");
    device.set_memory_bytes(int64_t{80} << 30);
    device.set_simulated(true);
  }
  (*node.mutable_labels())["rack"] = absl::StrCat("r", number / 32);
  node.mutable_observed()->set_full(true);
  return message.SerializeAsString();
}

std::string BeatOf(int /*number*/, const std::string& answer) {
  v1::HeadMessage registered;
  if (!registered.ParseFromString(answer)) return "";
  return Beat(registered.stamp(), registered.registered().incarnation());
}

std::string FloorBeatOf(int number, const std::string& /*answer*/) {
  v1::Stamp stamp;
  stamp.set_cluster_id(std::string(16, 'c'));
  stamp.set_generation(std::string(16, 'g'));
  stamp.set_term(1);
  stamp.set_nonce(1);
  return Beat(stamp, static_cast<uint64_t>(number) + 1);
}

absl::StatusOr<Usage> UsageOf(int64_t pid) {
  COHORT_ASSIGN_OR_RETURN(const std::string stat,
                          ReadFile(absl::StrCat("/proc/", pid, "/stat")));
  // After the name, which may hold anything: state is field 3 of proc(5).
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(stat.rfind(')') + 2), ' ');
  int64_t user = 0;
  int64_t system = 0;
  int64_t pages = 0;
  if (fields.size() < 22 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system) ||
      !absl::SimpleAtoi(fields[21], &pages)) {
    return absl::InternalError(absl::StrCat("no usage of process ", pid));
  }
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return Usage{.cpu = absl::Seconds(static_cast<double>(user + system) / ticks),
               .mebibytes = static_cast<double>(pages * sysconf(_SC_PAGESIZE)) /
                            (1 << 20)};
}

absl::Status Side::Join() {
  COHORT_ASSIGN_OR_RETURN(idle_, UsageOf(pid_));
  const absl::Time start = absl::Now();
  swarm_ = std::make_unique<Swarm>(options_);
  COHORT_RETURN_IF_ERROR(swarm_->AwaitAnswers(absl::Minutes(2)));
  joined_ms_ = absl::ToDoubleMilliseconds(absl::Now() - start);
  swarm_->Pause();
  return absl::OkStatus();
}

absl::Status Side::Run(absl::Duration window, bool counts) {
  swarm_->Resume();
  absl::SleepFor(kSettle);
  COHORT_ASSIGN_OR_RETURN(const Usage before, UsageOf(pid_));
  const int64_t beats = swarm_->beats();
  absl::SleepFor(window);
  COHORT_ASSIGN_OR_RETURN(const Usage after, UsageOf(pid_));
  // On a busy machine the streams may have said less than they should: what
  // counts is what it costs to hear each of them once.
  const double rounds = static_cast<double>(swarm_->beats() - beats) /
                        static_cast<double>(options_.streams);
  swarm_->Pause();
  if (swarm_->lost() > 0) {
    return absl::UnavailableError(
        absl::StrCat(swarm_->lost(), " streams were ended by the server"));
  }
  mebibytes_ = after.mebibytes - idle_.mebibytes;
  if (!counts) return absl::OkStatus();
  cpu_percent_.values.push_back(
      100 * absl::FDivDuration(after.cpu - before.cpu, options_.period) /
      rounds);
  return absl::OkStatus();
}

}  // namespace cohort::bench
