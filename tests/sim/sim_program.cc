#include "tests/sim/sim_program.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "head/state/job_table.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "rpc/enum_text.h"

namespace cohort::sim {
namespace {

// Longer than any simulation.
constexpr const char* kForeverMs = "100000000";
// To be heard again after a cut: the head may start meanwhile, or stand still.
constexpr absl::Duration kReopenWithin = absl::Seconds(2);
// So long after a cut another may follow, lest two be as long as one.
constexpr absl::Duration kBetweenCuts = absl::Seconds(20);

}  // namespace

Program::Program(World world, std::string name, bool knows_cuts)
    : world_(world),
      name_(std::move(name)),
      knows_cuts_(knows_cuts),
      client_(world, name_, /*forgets_its_id=*/false),
      channel_(world.network.Connect(name_, "head", world.credential)) {}

Program::~Program() = default;

const std::string& Program::violation() const {
  return violation_.empty() ? client_.violation() : violation_;
}

void Program::Violate(std::string what) {
  if (violation_.empty()) violation_ = absl::StrCat(what, ", of ", name_);
}

void Program::Start(bool faulty) {
  faulty_ = faulty;
  Begin();
}

void Program::Calm() { faulty_ = false; }

void Program::Finish() {
  finishing_ = true;
  if (life_ == nullptr) return;
  world_.counters.Count("program_ended");
  life_->session->End(absl::ZeroDuration());
  // Long enough for the word to leave.
  world_.executor.PostAfter(absl::Seconds(1), [this] { EndLife(); });
}

void Program::Restored(const std::function<bool(const JobId&)>& holds) {
  client_.Restored(holds);
  if (life_ == nullptr) return;
  life_->may_be_over = true;
  life_->is_older_store = true;
}

void Program::Begin() {
  if (finishing_) return;
  ended_.clear();
  life_ = std::make_unique<Life>(world_.executor);
  life_->timeout = absl::Milliseconds(3000 + world_.random.Below(9000));
  life_->session = std::make_unique<actor::DriverSession>(
      actor::DriverSession::Options{.name = name_, .timeout = life_->timeout},
      *channel_, life_->process, world_.random,
      actor::DriverSession::Events{
          .on_standing = [this](const auto& told) { OnStanding(told); },
          .on_room_wanted =
              [this](bool wanted) {
                if (wanted) world_.counters.Count("room_wanted");
              },
          .on_over = [this](const absl::Status& why) { OnOver(why); }});
  Tick();
}

void Program::Tick() {
  life_->process.PostAfter(
      absl::Milliseconds(100 + world_.random.Below(1200)), [this] {
        const auto driver = life_->session->AwaitOpen(absl::ZeroDuration());
        if (driver.ok() && !finishing_) Act(*driver);
        if (life_ != nullptr) Tick();
      });
}

void Program::Act(const DriverId& driver) {
  WatchAll();
  const uint64_t kind = world_.random.Below(24);
  if (kind < 6) return Create(driver);
  if (kind < 8) return client_.StopOne();
  if (!knows_cuts_) return Cut(2 * life_->timeout);  // And no other end.
  if (kind == 8) {
    world_.counters.Count("program_ended");
    life_->session->End(absl::ZeroDuration());
    world_.executor.PostAfter(absl::Milliseconds(world_.random.Below(20)),
                              [this] { EndLife(); });
  } else if (kind == 9 && faulty_) {
    world_.counters.Count("program_killed");
    EndLife();
  } else if (kind == 10 && faulty_) {
    Cut(absl::Milliseconds(world_.random.Below(16'000)));
  }
}

void Program::Create(const DriverId& driver) {
  client_.Submit(absl::StrCat(name_, "-actor-", created_++), ActorSpec(driver));
}

v1::JobSpec Program::ActorSpec(const DriverId& driver) {
  v1::JobSpec spec;
  v1::ActorStart& start = *spec.mutable_launch()->mutable_actor();
  start.set_class_name("7Counter");
  start.set_secret(std::string(32, 's'));
  spec.mutable_actor()->set_class_name("Counter");
  head::SetCommand(spec, {"run", kForeverMs});
  auto& scaling = *spec.mutable_scaling();
  scaling.set_num_workers(1);
  const auto cpus = static_cast<int64_t>(world_.random.Below(2));
  if (cpus > 0) head::SetResource(spec, kCpu, Amount::FromUnits(cpus));
  spec.mutable_run()->set_grace_us(1'000'000);
  const uint64_t kind = world_.random.Below(5);
  if (kind == 0) {
    world_.counters.Count("actor_detached");
    start.set_detached(true);
    head::SetCommand(spec, {"run", "3000"});
  } else {
    spec.mutable_actor()->set_driver_id(std::string(driver.bytes()));
  }
  if (kind == 1) {
    world_.counters.Count("executor_created");
    spec.mutable_actor()->set_executor(true);
    return spec;
  }
  spec.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
  if (kind == 2) {
    world_.counters.Count("group_created");
    v1::ActorDimension& dimension = *spec.mutable_actor()->add_dimensions();
    dimension.set_name("replicas");
    dimension.set_size(2);
    scaling.set_num_workers(2);
    constexpr v1::RestartPolicy kPolicies[] = {v1::RESTART_POLICY_ALL,
                                               v1::RESTART_POLICY_ONE,
                                               v1::RESTART_POLICY_NONE};
    spec.mutable_run()->set_restart(kPolicies[world_.random.Below(3)]);
  } else if (world_.random.Below(2) == 0) {
    spec.set_name(absl::StrCat("counter-", world_.random.Below(2)));
  }
  return spec;
}

void Program::WatchAll() {
  for (const auto& [request, job] : client_.acknowledged()) {
    if (!life_->watched.insert(job).second) continue;
    life_->session->Watch(job);
  }
}

void Program::Cut(absl::Duration time) {
  const absl::Duration now = world_.clock.Monotonic();
  if (now < cut_until_ + kBetweenCuts) return;
  world_.counters.Count("program_cut");
  cut_until_ = now + time;
  if (knows_cuts_ && time + kReopenWithin >= life_->timeout) {
    life_->may_be_over = true;
  }
  world_.network.Partition(name_, "head");
  world_.executor.PostAfter(time,
                            [this] { world_.network.Heal(name_, "head"); });
}

void Program::EndLife() {
  if (life_ == nullptr) return;
  client_.Die();
  life_->process.Kill();
  ended_.push_back(std::move(life_));
  world_.executor.PostAfter(absl::ZeroDuration(), [this] { ended_.clear(); });
  world_.executor.PostAfter(absl::Milliseconds(world_.random.Below(4000)),
                            [this] {
                              if (life_ == nullptr) Begin();
                            });
}

void Program::OnStanding(const v1::ActorStanding& standing) {
  const absl::StatusOr<JobId> job = JobId::FromBytes(standing.job_id());
  if (!job.ok() || !world_.checks_durability) return;
  world_.counters.Count("actor_told");
  const std::string key = head::RowKey(*job);
  const auto value = world_.disk.FindSynced(head::Table::kJobs, key);
  if (!value.has_value()) {
    // An older store says of those after it that they are not there.
    if (life_->is_older_store) return;
    return Violate(absl::StrCat(
        "DS-1: told of actor ", job->ToText(), ", which is not durable, to be ",
        EnumText(standing.state()), " (", standing.reason(), ")"));
  }
  storage::v1::JobRow row;
  const absl::Status read =
      head::ParseRow(head::Table::kJobs, key, *value, row);
  if (!read.ok()) return Violate(absl::StrCat("DS-1: ", read.ToString()));
  if (standing.incarnation() > row.incarnations()) {
    Violate(absl::StrCat("DS-1: told of process ", standing.incarnation(),
                         " of actor ", job->ToText(), ", which has durably ",
                         row.incarnations()));
  }
  // Else it may be of the slot, which has no row here.
  if (standing.state() == v1::JOB_STATE_STOPPED &&
      row.state() != v1::JOB_STATE_STOPPED) {
    Violate(absl::StrCat("DS-1: actor ", job->ToText(), " was told to be ",
                         EnumText(standing.state()), " (", standing.reason(),
                         "), and is durably ", EnumText(row.state())));
  }
}

void Program::OnOver(const absl::Status& why) {
  world_.counters.Count("session_over");
  if (!life_->may_be_over) {
    Violate(absl::StrCat("DS-4: a session is over that was not away for ",
                         absl::FormatDuration(life_->timeout), ": ",
                         why.ToString()));
  }
  EndLife();
}

}  // namespace cohort::sim
