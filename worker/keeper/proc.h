#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// What /proc says about processes.  std and Linux only; used by keeper and
// daemon.
namespace cohort::keeper {

struct ProcessStat {
  pid_t pid = 0;
  char state = '?';  // Z and X are dead
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  uint64_t start_time = 0;  // clock ticks after boot

  bool dead() const { return state == 'Z' || state == 'X'; }
};

// The fields of one /proc/PID/stat; nullopt when it is not one.
std::optional<ProcessStat> ParseProcessStat(const std::string& text);

// nullopt when there is no such process.
std::optional<ProcessStat> ReadProcessStat(pid_t pid);

// Every process that we can see, by pid.
std::map<pid_t, ProcessStat> ReadProcesses();

// The environment that `pid` was started with; empty when we may not read it.
std::vector<std::string> ReadEnvironment(pid_t pid);

// Of this boot of the machine.
std::string ReadBootId();

// Names of the variables by which the processes of a keeper are found.
inline constexpr char kAttemptVariable[] = "COHORT_ATTEMPT_ID";
inline constexpr char kProcessVariable[] = "COHORT_KEEPER_PROCESS";
// The keeper's runtime directory, which no other keeper has.
inline constexpr char kPlaceVariable[] = "COHORT_KEEPER_PLACE";

// What `environment` sets `name` to; empty when it does not.
std::string ValueOf(const std::vector<std::string>& environment,
                    const std::string& name);

// Sends `signal` to exactly this process, not to a later one with its pid.
// False when it is gone or we may not.
bool SignalExactly(const ProcessStat& process, int signal);

// Those of `processes` that descend from `ancestor`, itself not included.
std::vector<pid_t> DescendantsOf(pid_t ancestor,
                                 const std::map<pid_t, ProcessStat>& processes);

}  // namespace cohort::keeper
