#include "client/cli/command.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "client/cli/completion.h"
#include "client/cli/errors.h"
#include "common/host_port.h"
#include "common/mutex.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/credential.h"

namespace cohort::cli {
namespace {

// Says once an outage that the head is away.  Thread-safe.
class AwayNotice {
 public:
  void OnRetry(const absl::Status& why) {
    const absl::Duration now = MonotonicNow();
    MutexLock lock(mutex_);
    // Tries are at most a second apart: a longer pause is another outage.
    if (now - last_ > absl::Seconds(5)) {
      since_ = now;
      said_ = false;
    }
    last_ = now;
    if (said_ || now - since_ < absl::Seconds(1)) return;
    said_ = true;
    Say(absl::StrCat(MessageLine(why.message()), "; trying again"));
  }

 private:
  Mutex mutex_;
  absl::Duration last_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  absl::Duration since_ ABSL_GUARDED_BY(mutex_);
  bool said_ ABSL_GUARDED_BY(mutex_) = false;
};

// Errors in what a flag names are errors of the command line, whatever the
// code.
absl::Status CheckFlags(const Invocation& invocation) {
  if (!invocation.address.empty()) {
    const absl::StatusOr<HostPort> address = ParseHostPort(invocation.address);
    if (!address.ok()) {
      return FlagError("--address", address.status());
    }
    if (address->port == 0) {
      return UsageError(absl::StrCat("--address ", Shown(invocation.address),
                                     ": give the port that the head has"));
    }
  }
  if (!invocation.credential_file.empty()) {
    const absl::Status loaded =
        rpc::Credential::Load(invocation.credential_file).status();
    if (!loaded.ok()) {
      return FlagError("--credential-file", loaded);
    }
  }
  return absl::OkStatus();
}

}  // namespace

CLI::App* AddCommand(CLI::App& parent, const std::string& name,
                     const std::string& description, Invocation& invocation,
                     std::function<absl::StatusOr<int>()> run) {
  CLI::App* command = parent.add_subcommand(name, description);
  command
      ->add_option("--address", invocation.address,
                   "The head (default: $COHORT_ADDRESS, else the cluster of "
                   "`cohort login`, else that of `cohort up`)")
      ->option_text("HOST:PORT");
  command
      ->add_option(
          "--credential-file", invocation.credential_file,
          "Its credential (default: $COHORT_CREDENTIAL_FILE, else that "
          "of the same cluster)")
      ->option_text("FILE");
  command->callback(
      [&invocation, run = std::move(run)] { invocation.run = run; });
  return command;
}

void AddJsonFlag(CLI::App& command, Invocation& invocation) {
  command.add_flag("--json", invocation.json,
                   "Print JSON; errors are one JSON object on stderr");
}

void AddOutputFlags(CLI::App& command, Invocation& invocation) {
  CLI::Option* const output = command.add_option_function<std::string>(
      "-o,--output",
      [&invocation](const std::string& text) {
        invocation.wide = text == "wide";
        invocation.json |= text == "json";
      },
      "wide: whole ids and every column, however long the lines; json: as "
      "--json");
  output->check([](const std::string& text) {
    return text == "wide" || text == "json"
               ? ""
               : absl::StrCat(Shown(text), ": give wide or json");
  });
  OfferValues(output, {"wide", "json"})->option_text("wide|json");
  AddJsonFlag(command, invocation);
}

bool AsksForJson(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--json" || word == "-ojson" || word == "--output=json") {
      return true;
    }
    if ((word == "-o" || word == "--output") && i + 1 < arguments.size() &&
        arguments[i + 1] == "json") {
      return true;
    }
  }
  return false;
}

TableView ViewFor(const Invocation& invocation) {
  return {.wide = invocation.wide,
          .columns = invocation.wide ? 0 : LineColumns(STDOUT_FILENO)};
}

absl::StatusOr<std::unique_ptr<Cluster>> Connect(const Invocation& invocation,
                                                 absl::Duration deadline) {
  COHORT_RETURN_IF_ERROR(CheckFlags(invocation));
  ClusterOptions options;
  options.address = invocation.address;
  options.credential_file = invocation.credential_file;
  options.deadline = deadline;
  if (!invocation.json) {
    // Shared: calls may end after this function and on other threads.
    auto notice = std::make_shared<AwayNotice>();
    options.on_retry = [notice](const absl::Status& why) {
      notice->OnRetry(why);
    };
  }
  return Cluster::Connect(std::move(options));
}

absl::StatusOr<int> ParseInt(absl::string_view flag, const std::string& text,
                             int min, int max) {
  int value = 0;
  // SimpleAtoi takes spaces and a plus.
  const bool is_plain =
      !text.empty() &&
      (absl::ascii_isdigit(static_cast<unsigned char>(text.front())) ||
       text.front() == '-') &&
      !absl::ascii_isspace(static_cast<unsigned char>(text.back()));
  if (is_plain && absl::SimpleAtoi(text, &value) && value >= min &&
      value <= max) {
    return value;
  }
  return UsageError(absl::StrCat(
      flag, " ", Shown(text), ": give a whole number from ", min, " to ", max));
}

absl::Status Print(absl::string_view text) {
  return PrintRaw(absl::StrCat(text, "\n"));
}

absl::Status PrintRaw(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    // As SIGPIPE, also where the parent process has it ignored.
    if (n < 0 && errno == EPIPE) _exit(128 + SIGPIPE);
    if (n < 0) return ErrnoStatus(errno, "write to standard output");
    text.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

void Say(absl::string_view text) {
  std::fputs(absl::StrCat("cohort: ", OneLine(text), "\n").c_str(), stderr);
}

}  // namespace cohort::cli
