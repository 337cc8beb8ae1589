#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/cli/job_name.h"
#include "client/cli/table.h"
#include "client/cluster.h"
#include "common/job_id.h"

// What the nouns of the command line share.
namespace cohort::cli {

// How long a command that only asks tries to reach the head.
inline constexpr absl::Duration kReadDeadline = absl::Seconds(5);
// And one that changes something: a head on its way back is worth waiting for.
inline constexpr absl::Duration kChangeDeadline = absl::Seconds(30);

// A command line while it is read: the noun that was named puts what is to be
// done into `run`.  Lives in main.
struct Invocation {
  // Flags of every command that talks to the head.
  std::string address;
  std::string credential_file;
  bool json = false;
  bool wide = false;  // of -o wide
  // What follows "--"; none when there is no "--".
  std::optional<std::vector<std::string>> rest;
  // Gives the exit code.
  std::function<absl::StatusOr<int>()> run;
};

// Adds a command below `parent` that talks to the head; `run` is what it does.
CLI::App* AddCommand(CLI::App& parent, const std::string& name,
                     const std::string& description, Invocation& invocation,
                     std::function<absl::StatusOr<int>()> run);
// The flag --json for it.
void AddJsonFlag(CLI::App& command, Invocation& invocation);
// And -o wide|json, for commands that print tables.
void AddOutputFlags(CLI::App& command, Invocation& invocation);

// Whether arguments ask for JSON, also those that cannot be read.
bool AsksForJson(const std::vector<std::string>& arguments);

// How the tables of a command look on its standard output.
TableView ViewFor(const Invocation& invocation);

// Each adds its commands to the `cohort` command.
void AddRun(CLI::App& cohort, Invocation& invocation);
void AddSubmit(CLI::App& cohort, Invocation& invocation);
void AddJobs(CLI::App& cohort, Invocation& invocation);
void AddJobFiles(CLI::App& jobs, Invocation& invocation);
void AddJobMetrics(CLI::App& jobs, Invocation& invocation);
void AddPlot(CLI::App& cohort, Invocation& invocation);
void AddCheckpoints(CLI::App& cohort, Invocation& invocation);
// Below `cohort` and the nouns whose logs there are.
void AddLogs(CLI::App& parent, const JobScope& scope, Invocation& invocation);
void AddActors(CLI::App& cohort, Invocation& invocation);
void AddGroups(CLI::App& cohort, Invocation& invocation);
void AddDrivers(CLI::App& cohort, Invocation& invocation);
void AddTasks(CLI::App& cohort, Invocation& invocation);
void AddStack(CLI::App& cohort, Invocation& invocation);
void AddTimeline(CLI::App& cohort, Invocation& invocation);
void AddExplain(CLI::App& cohort, Invocation& invocation);
void AddStatus(CLI::App& cohort, Invocation& invocation);
void AddNodes(CLI::App& cohort, Invocation& invocation);
void AddGpus(CLI::App& cohort, Invocation& invocation);
void AddDrain(CLI::App& cohort, Invocation& invocation);  // and undrain
void AddAutoscaler(CLI::App& cohort, Invocation& invocation);
void AddAudit(CLI::App& cohort, Invocation& invocation);
void AddTokens(CLI::App& cohort, Invocation& invocation);  // and users
void AddAuthorities(CLI::App& cohort, Invocation& invocation);
void AddClusters(CLI::App& cohort, Invocation& invocation);
void AddResources(CLI::App& cohort, Invocation& invocation);
void AddEvents(CLI::App& cohort, Invocation& invocation);
void AddVersion(CLI::App& cohort, Invocation& invocation);
void AddHead(CLI::App& cohort, Invocation& invocation);
void AddOrphans(CLI::App& cohort, Invocation& invocation);
void AddUp(CLI::App& cohort, Invocation& invocation);
void AddDown(CLI::App& cohort, Invocation& invocation);

// The cluster that the flags, the environment or `cohort up` name.
// InvalidArgument when a flag is wrong; otherwise as Cluster::Connect.  Calls
// that wait for the head for a second say so on stderr, unless it is --json's.
absl::StatusOr<std::unique_ptr<Cluster>> Connect(const Invocation& invocation,
                                                 absl::Duration deadline);

// A whole number from `min` to `max`.  InvalidArgument, naming `flag`.
absl::StatusOr<int> ParseInt(absl::string_view flag, const std::string& text,
                             int min, int max);

// Writes to stdout, and a newline.  A reader that went away ends the program
// quietly; other errors are returned.
absl::Status Print(absl::string_view text);
// As it is, without a newline.
absl::Status PrintRaw(absl::string_view text);
// Writes "cohort: ", the text as one line, and a newline to stderr.
void Say(absl::string_view text);

}  // namespace cohort::cli
