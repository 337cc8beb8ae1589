#include "client/cli/actor_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/fields.h"
#include "client/cli/job_text.h"
#include "client/message_text.h"
#include "common/printable_text.h"
#include "common/spread.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

constexpr size_t kActorNameBytesMax = 24;

bool IsGroup(const Job& actor) {
  return !actor.spec().actor().dimensions().empty();
}

// The number of places that its dimensions have.
int SizeOf(const Job& group) {
  int size = 1;
  for (const auto& each : group.spec().actor().dimensions()) {
    size *= static_cast<int>(each.size());
  }
  return size;
}

bool Runs(const Rank& rank) {
  return rank.state() == v1::PROCESS_STATE_RUNNING;
}

// The actor's rank; for a group its first, which stands for all.
const Rank* ProcessOf(const Job& actor) {
  return actor.ranks().empty() ? nullptr : &actor.ranks(0);
}

int RestartsOf(const Job& actor) {
  return actor.failures() + actor.infra_restarts();
}

// "host=2 x gpu=4".
std::string ShapeText(const v1::ActorSpec& spec) {
  return absl::StrJoin(spec.dimensions(), " x ",
                       [](std::string* out, const v1::ActorDimension& each) {
                         absl::StrAppend(out, each.name(), "=", each.size());
                       });
}

// For a group only if all are in one place: `groups get` shows the others.
std::string WhereText(const Job& actor) {
  std::vector<std::string> names;
  for (const Rank& rank : actor.ranks()) {
    if (rank.node_name().empty()) continue;
    if (std::find(names.begin(), names.end(), rank.node_name()) ==
        names.end()) {
      names.push_back(rank.node_name());
    }
  }
  if (names.empty()) return "-";
  return names.size() == 1 ? names.front()
                           : absl::StrCat(names.size(), " nodes");
}

std::string PidText(const Job& actor) {
  const Rank* const process = ProcessOf(actor);
  if (process == nullptr || IsGroup(actor) || !Runs(*process) ||
      process->pid() == 0) {
    return "-";
  }
  return absl::StrCat(process->pid());
}

std::string DriverText(const Job& actor, bool wide) {
  const std::string& driver = actor.spec().actor().driver_id();
  if (driver.empty()) return "-";
  return wide ? IdText(driver) : ShortId(driver);
}

std::string AmountText(const Job& actor, const char* name) {
  return ResourcesOf(actor.spec().scaling().resources_per_worker())
      .Get(name)
      .ToString();
}

std::string ClassText(const Job& actor) {
  const std::string& name = actor.spec().actor().class_name();
  return IsGroup(actor) ? absl::StrCat(name, " x ", SizeOf(actor)) : name;
}

// "3/4": of those slots that the answer has.
std::string RunningText(const Job& group) {
  return absl::StrCat(
      std::count_if(group.ranks().begin(), group.ranks().end(), Runs), "/",
      group.num_workers());
}

// "host=1 gpu=3": the last dimension is the fastest.
std::string PlaceText(const v1::ActorSpec& spec, int actor) {
  std::vector<std::string> parts;
  auto rest = static_cast<uint32_t>(actor);
  for (int i = spec.dimensions_size() - 1; i >= 0; --i) {
    const v1::ActorDimension& each = spec.dimensions(i);
    const uint32_t size = std::max<uint32_t>(each.size(), 1);
    parts.push_back(absl::StrCat(each.name(), "=", rest % size));
    rest /= size;
  }
  std::reverse(parts.begin(), parts.end());
  return absl::StrJoin(parts, " ");
}

// The places of the actors of a slot, which may be many.
std::string PlacesText(const Job& group, int slot) {
  const v1::ActorSpec& spec = group.spec().actor();
  const int slots = std::max<int>(1, group.num_workers());
  const Spread spread(std::max(SizeOf(group), slots), slots);
  const int first = spread.FirstOf(slot);
  const int last = first + spread.CountOf(slot) - 1;
  return first == last ? PlaceText(spec, first)
                       : absl::StrCat(PlaceText(spec, first), " to ",
                                      PlaceText(spec, last));
}

std::string SlotsTable(const Job& group, const TableView& view) {
  Table table({"SLOT", "PLACE", "NODE", "PID", "STATE", "RESTARTS", "GPUS"});
  for (const Rank& rank : group.ranks()) {
    table.Add({absl::StrCat(rank.rank()), PlacesText(group, rank.rank()),
               rank.node_name().empty() ? "-" : rank.node_name(),
               rank.pid() == 0 ? "-" : absl::StrCat(rank.pid()),
               EnumText(rank.state()), absl::StrCat(rank.failures()),
               absl::StrJoin(rank.gpu_ids(), ",")});
  }
  return table.ToString(view.columns);
}

void AddProcess(const Job& actor, Fields& fields) {
  const Rank* const process = ProcessOf(actor);
  if (process == nullptr || IsGroup(actor)) return;
  fields.Add("node", process->node_name());
  fields.Add("pid", PidText(actor));
  fields.Add("gpus", absl::StrJoin(process->gpu_ids(), ","));
}

// Whose restarts are counted.
const char* EachText(const Job& actor) {
  if (!IsGroup(actor)) return ", ";
  return SizeOf(actor) > actor.num_workers() ? " of each process, "
                                             : " of each actor, ";
}

std::string RestartsText(const Job& actor) {
  const int max = actor.spec().run().max_failures();
  return absl::StrCat(
      actor.failures(), " of ", max < 0 ? "any number" : absl::StrCat(max),
      EachText(actor), actor.infra_restarts(), " after a lost node or keeper");
}

}  // namespace

std::string ActorsTable(const std::vector<Job>& actors, absl::Time now,
                        const TableView& view) {
  if (!view.wide) {
    Table table({"ID", "NAME", "CLASS", "STATE", "NODE", "PID", "RESTARTS",
                 "CPU", "GPU", "AGE", "WHY"});
    for (const Job& actor : actors) {
      table.Add({ShortId(actor.job_id()), Cut(actor.name(), kActorNameBytesMax),
                 Cut(ClassText(actor), kActorNameBytesMax),
                 EnumText(actor.state()), WhereText(actor), PidText(actor),
                 absl::StrCat(RestartsOf(actor)), AmountText(actor, kCpu),
                 AmountText(actor, kGpu),
                 RoundedAge(now - rpc::FromWire(actor.submitted_at())),
                 Shortened(actor.reason())});
    }
    return table.ToString(view.columns);
  }
  Table table({"ID", "NAME", "NAMESPACE", "CLASS", "STATE", "NODE", "PID",
               "RESTARTS", "RESOURCES", "SUBMITTED", "DRIVER", "WHY"});
  for (const Job& actor : actors) {
    table.Add(
        {IdText(actor.job_id()), actor.name(), actor.namespace_(),
         ClassText(actor), EnumText(actor.state()), WhereText(actor),
         PidText(actor), absl::StrCat(RestartsOf(actor)),
         ResourcesOf(actor.spec().scaling().resources_per_worker()).ToString(),
         TimeText(actor.submitted_at()), DriverText(actor, true),
         actor.reason()});
  }
  return table.ToString();
}

std::string GroupsTable(const std::vector<Job>& groups, absl::Time now,
                        const TableView& view) {
  Table table({"ID", "NAME", "CLASS", "STATE", "SHAPE", "RUNNING", "NODES",
               "RESTARTS", "AGE", "DRIVER", "WHY"});
  for (const Job& group : groups) {
    table.Add({view.wide ? IdText(group.job_id()) : ShortId(group.job_id()),
               view.wide ? group.name() : Cut(group.name(), kActorNameBytesMax),
               group.spec().actor().class_name(), EnumText(group.state()),
               ShapeText(group.spec().actor()), RunningText(group),
               WhereText(group), absl::StrCat(RestartsOf(group)),
               RoundedAge(now - rpc::FromWire(group.submitted_at())),
               DriverText(group, view.wide),
               view.wide ? group.reason() : Shortened(group.reason())});
  }
  return table.ToString(view.columns);
}

std::string ActorText(const Job& actor, const TableView& view) {
  const v1::ActorSpec& spec = actor.spec().actor();
  Fields fields;
  fields.Add("id", IdText(actor.job_id()));
  fields.Add("name", actor.name());
  fields.Add("namespace",
             actor.namespace_() == "default" ? "" : actor.namespace_());
  fields.Add("class", spec.class_name());
  fields.Add("state", EnumText(actor.state()));
  fields.Add("reason", actor.reason());
  if (IsGroup(actor)) {
    fields.Add("shape", ShapeText(spec));
    fields.Add("running", RunningText(actor));
  }
  fields.Add("driver", spec.driver_id().empty() ? "none: detached"
                                                : IdText(spec.driver_id()));
  const v1::ScalingConfig& scaling = actor.spec().scaling();
  fields.Add("resources",
             ResourcesOf(scaling.resources_per_worker()).ToString());
  fields.Add("selectors", absl::StrJoin(scaling.selectors(), "; "));
  fields.Add("accelerator", scaling.accelerator_type());
  AddProcess(actor, fields);
  fields.Add("restarts", RestartsText(actor));
  fields.Add("submitted", TimeText(actor.submitted_at()));
  fields.Add("started", TimeText(actor.started_at()));
  fields.Add("ended", TimeText(actor.ended_at()));
  for (const std::string& cause : actor.causes()) fields.Add("cause", cause);
  std::string text = fields.text();
  if (IsGroup(actor) && !actor.ranks().empty()) {
    absl::StrAppend(&text, "\n", SlotsTable(actor, view));
  }
  return absl::StrCat(text, TailText(actor));
}

}  // namespace cohort::cli
