#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "client/cli/command.h"
#include "client/cli/command_line.h"
#include "client/cli/daemon.h"
#include "client/cli/errors.h"
#include "client/cli/private_server.h"
#include "client/private_cluster.h"
#include "rpc/certificate.h"

namespace {

// A closed stream's number would go to a file or socket of ours, which would
// then be read or get our text: each is opened so that writing fails.  False
// when standard output was closed.
bool OccupyClosedStreams() {
  bool has_output = true;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (fd == STDOUT_FILENO) has_output = false;
    open("/dev/null", O_RDONLY);  // takes the lowest number: fd
  }
  return has_output;
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_output = OccupyClosedStreams();
  // `cohort jobs list | head` ends quietly, whatever the parent ignores.
  std::signal(SIGPIPE, SIG_DFL);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // Of the head's commands `backup` asks a head that runs.
  const bool is_client = arguments.size() > 1 && arguments[0] == "head" &&
                         arguments[1] == "backup";
  if (!arguments.empty() && !is_client &&
      (arguments.front() == "head" || arguments.front() == "worker")) {
    const std::string daemon = "cohort-" + arguments.front();
    arguments.erase(arguments.begin());
    return cohort::cli::Fail(cohort::cli::BecomeDaemon(daemon, arguments),
                             /*json=*/false);
  }
  if (!arguments.empty() &&
      arguments.front() == cohort::client::kPrivateCommand) {
    arguments.erase(arguments.begin());
    return cohort::cli::ServePrivateCluster(arguments);
  }
  cohort::rpc::RequireTls13();
  if (!has_output) {
    return cohort::cli::Fail(
        absl::FailedPreconditionError(
            "standard output is closed (send it to a file, or to /dev/null)"),
        cohort::cli::AsksForJson(arguments));
  }
  cohort::cli::Invocation invocation;
  if (const std::optional<int> ended =
          cohort::cli::ParseCommandLine(std::move(arguments), invocation)) {
    return *ended;
  }
  const absl::StatusOr<int> code = invocation.run();
  return code.ok() ? *code : cohort::cli::Fail(code.status(), invocation.json);
}
