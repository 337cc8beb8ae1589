#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "common/build_info.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/stop_signal.h"
#include "head/head.h"
#include "head/options.h"

namespace cohort::head {
namespace {

// The command line as it was typed.
struct Flags {
  std::string address = "127.0.0.1:7710";
  std::string state_dir;
  std::string ready_file;
  std::string node_timeout = "10s";
  bool is_volatile = false;
  bool insecure_bind = false;
};

std::string DefaultStateDir() {
  if (geteuid() == 0) return "/var/lib/cohort/head";
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "." : home,
                      "/.local/state/cohort/head");
}

void Define(CLI::App& app, Flags& flags) {
  app.add_option("--address", flags.address,
                 "Where to listen: HOST:PORT, port 0 for a free one")
      ->capture_default_str();
  app.add_option("--state-dir", flags.state_dir,
                 "The control store, packages and the credential (default: " +
                     DefaultStateDir() + ")");
  app.add_option("--ready-file", flags.ready_file,
                 "Written, with the address, once the head serves");
  app.add_option("--node-timeout", flags.node_timeout,
                 "Silence after which a node is dead")
      ->capture_default_str();
  app.add_flag("--volatile", flags.is_volatile,
               "Allow a state directory on a tmpfs, lost with the machine");
  app.add_flag("--insecure-bind", flags.insecure_bind,
               "Allow an address that is not loopback, without TLS");
}

absl::StatusOr<HeadOptions> ToOptions(const Flags& flags) {
  HeadOptions options;
  COHORT_ASSIGN_OR_RETURN(options.address, ParseHostPort(flags.address));
  options.state_dir =
      flags.state_dir.empty() ? DefaultStateDir() : flags.state_dir;
  options.ready_file = flags.ready_file;
  COHORT_ASSIGN_OR_RETURN(options.node_timeout,
                          ParseDuration(flags.node_timeout));
  options.is_volatile = flags.is_volatile;
  options.insecure_bind = flags.insecure_bind;
  COHORT_RETURN_IF_ERROR(options.Validate());
  return options;
}

int Fail(int code, const absl::Status& status) {
  std::fprintf(stderr, "cohort-head: %s\n",
               std::string(status.message()).c_str());
  return code;
}

int Main(int argc, char** argv) {
  StopSignal stop;
  SetLogProgram("head");
  CLI::App app("The head daemon: keeps the cluster's state and places work.",
               "cohort-head");
  app.set_version_flag("--version", std::string(GetBuildInfo().version));
  Flags flags;
  Define(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const absl::StatusOr<HeadOptions> options = ToOptions(flags);
  if (!options.ok()) return Fail(kExitUsage, options.status());

  std::atomic<bool> fatal = false;
  const auto head = Head::Start(*options, [&](const absl::Status& status) {
    COHORT_LOG(kError, "head_ends", {"why", status.message()});
    fatal = true;
    stop.Raise();
  });
  if (!head.ok()) {
    return Fail(
        absl::IsInvalidArgument(head.status()) ? kExitUsage : kExitFailure,
        head.status());
  }
  stop.Wait();
  return fatal ? kExitFailure : kExitOk;
}

}  // namespace
}  // namespace cohort::head

int main(int argc, char** argv) { return cohort::head::Main(argc, argv); }
