#include "client/cli/explain_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/message_text.h"
#include "common/printable_text.h"
#include "common/resource_text.h"
#include "rpc/enum_text.h"

namespace cohort::cli {
namespace {

// Limits of the text; `--json` has everything.
constexpr size_t kFailuresShown = 10;
constexpr size_t kHoldersShown = 3;  // of each resource
constexpr size_t kChangesShown = 6;

std::string Count(int64_t n, absl::string_view noun) {
  return absl::StrCat(n, " ", noun, n == 1 ? "" : "s");
}

// Rounded up, so that this much is enough.
std::string LackText(const std::string& resource, Amount amount) {
  return AmountText(resource, amount, SizeRounding::kUp);
}

// The predicate of "N nodes ...", without the number.
std::string FailureText(const v1::NodeFailure& failure) {
  const bool one = failure.nodes() == 1;
  const std::string have = one ? "has " : "have ";
  const std::string are = one ? "is " : "are ";
  if (failure.by() == "resource") {
    const Amount least = Amount::FromTenThousandths(failure.short_least());
    const Amount middle = Amount::FromTenThousandths(failure.short_median());
    std::string text = absl::StrCat(one ? "lacks " : "lack ", failure.what(),
                                    " ", LackText(failure.what(), least));
    if (!one) absl::StrAppend(&text, " or more (", failure.closest(), ")");
    if (one) absl::StrAppend(&text, " (", failure.closest(), ")");
    if (middle > least) {
      absl::StrAppend(&text, ", half of them ",
                      LackText(failure.what(), middle), " or more");
    }
    return text;
  }
  if (failure.by() == "taint") {
    return absl::StrCat(have, "the taint ", failure.what(),
                        ", which it does not tolerate");
  }
  if (failure.by() == "accelerator") {
    if (failure.what().empty()) {
      return absl::StrCat(have, "no GPU, or several models");
    }
    return absl::StrCat(have, failure.what());
  }
  if (failure.by() == "label") {
    return absl::StrCat(one ? "does" : "do", " not match ", failure.what());
  }
  if (failure.by() == "topology") {
    return absl::StrCat(have, "no label ", failure.what());
  }
  if (failure.by() == "device") {
    return absl::StrCat(have, "GPUs that are ", failure.what());
  }
  if (failure.by() == "domain") {
    return absl::StrCat(have, "room, but not in ", failure.what());
  }
  const std::string state =
      failure.what() == "ABSENT" ? "away (ABSENT)" : failure.what();
  if (failure.since_us() == 0) return absl::StrCat(are, state);
  return absl::StrCat(are, state, one ? " since " : ", the first since ",
                      TimeText(absl::FromUnixMicros(failure.since_us())));
}

std::string Workers(int64_t n) { return Count(n, "worker"); }

void AppendNodes(const v1::Blocker& blocker, std::string* text) {
  absl::StrAppend(text, "\nOf ", Count(blocker.nodes(), "node"), ":\n");
  std::vector<std::pair<int64_t, std::string>> lines;
  size_t shown = 0;
  int64_t others = 0;
  for (const v1::NodeFailure& failure : blocker.failures()) {
    if (failure.nodes() == 0) continue;
    if (++shown > kFailuresShown) {
      others += failure.nodes();
    } else {
      lines.emplace_back(failure.nodes(), FailureText(failure));
    }
  }
  if (others > 0) lines.emplace_back(others, "for other reasons");
  if (blocker.nodes_that_fit() > 0) {
    lines.emplace_back(
        blocker.nodes_that_fit(),
        absl::StrCat(blocker.nodes_that_fit() == 1 ? "has" : "have",
                     " room, for ", Workers(blocker.workers_that_fit())));
  }
  size_t width = 0;
  for (const auto& [nodes, line] : lines) {
    width = std::max(width, absl::StrCat(nodes).size());
  }
  for (const auto& [nodes, line] : lines) {
    const std::string number = absl::StrCat(nodes);
    absl::StrAppend(text, "  ", std::string(width - number.size(), ' '), number,
                    "  ", OneLine(line), "\n");
  }
}

// What keeps the gang though there is room for some of it.
void AppendTogether(const v1::Blocker& blocker, std::string* text) {
  for (const v1::NodeFailure& failure : blocker.failures()) {
    if (failure.by() != "domain" && failure.by() != "spread") continue;
    const int64_t short_by =
        Amount::FromTenThousandths(failure.short_least()).WholeUnits();
    const std::string found =
        absl::StrCat(blocker.num_workers() - short_by, " of ");
    if (failure.by() == "domain") {
      absl::StrAppend(text, "It must be all in one, and ",
                      OneLine(failure.what()), " comes nearest, with room for ",
                      found, Workers(blocker.num_workers()), ".\n");
    } else {
      absl::StrAppend(text,
                      "Each worker must have a node of its own: there is "
                      "room on ",
                      found, "the ", blocker.num_workers(),
                      " different nodes that it must have.\n");
    }
  }
}

void AppendHolders(const v1::Blocker& blocker, std::string* text) {
  if (blocker.holders().empty()) return;
  absl::StrAppend(text, blocker.never_fits()
                            ? "\nHeld by these, whose end alone does not "
                              "help:\n"
                            : "\nHeld by:\n");
  std::string resource;
  size_t shown = 0;
  for (const v1::Holder& holder : blocker.holders()) {
    if (holder.resource() != resource) shown = 0;
    resource = holder.resource();
    if (++shown > kHoldersShown) continue;
    absl::StrAppend(text, "  ", holder.resource(), " ",
                    AmountText(holder.resource(),
                               Amount::FromTenThousandths(holder.amount())),
                    " on ", Count(holder.nodes(), "node"), "  job ",
                    IdText(holder.job_id()), "\n");
  }
}

// "is held by ada", "waits: after 12ab, which is RUNNING".
std::string OtherText(const v1::Blocker& blocker) {
  return absl::StrCat(blocker.kind() == "held" ? "is " : "waits: ",
                      OneLine(blocker.text()));
}

void AppendBlocker(const v1::Blocker& blocker, std::string* text) {
  if (blocker.shape().empty()) {
    absl::StrAppend(text, "\nIt ", OtherText(blocker), "\n");
    return;
  }
  absl::StrAppend(text, "\nIt needs ", OneLine(blocker.shape()), ".\n");
  if (blocker.nodes() == 0) {
    absl::StrAppend(text, "No node is registered.\n");
    return;
  }
  if (blocker.never_fits()) {
    absl::StrAppend(text,
                    "It does not fit this cluster, not even if all nodes were "
                    "idle: it waits for other nodes.\n");
  } else {
    absl::StrAppend(text, "There is not room for that now.\n");
  }
  AppendNodes(blocker, text);
  AppendTogether(blocker, text);
  AppendHolders(blocker, text);
}

void AppendAhead(const v1::Ahead& ahead, std::string* text) {
  if (ahead.jobs() == 0) return;
  std::vector<std::string> first;
  for (const v1::Ahead::First& job : ahead.first()) {
    first.push_back(job.name().empty() ? IdText(job.job_id())
                                       : absl::StrCat(IdText(job.job_id()),
                                                      " (", job.name(), ")"));
  }
  absl::StrAppend(
      text, "\nAhead in line: ", ahead.more() ? "more than " : "",
      Count(ahead.jobs(), "job"), ", first ",
      OneLine(absl::StrJoin(first, ", ")),
      ".\nAny job that fits starts, so one behind it may come first, "
      "and it before those ahead.\n");
}

void AppendChanges(const Explanation& explanation, std::string* text) {
  if (!explanation.scaling().empty()) {
    absl::StrAppend(text, "\nAutoscaler: ", OneLine(explanation.scaling()),
                    ".\n");
  }
  const bool runs = explanation.element_id().empty() &&
                    explanation.state() != v1::JOB_STATE_PENDING;
  const char* const start =
      runs ? " would let those ranks start" : " would let it start";
  if (explanation.changes().empty()) {
    const bool short_of_room = std::any_of(
        explanation.blockers().begin(), explanation.blockers().end(),
        [](const v1::Blocker& blocker) { return !blocker.shape().empty(); });
    if (!short_of_room) return;
    const bool complete = explanation.changes_complete();
    absl::StrAppend(
        text,
        complete ? "\nNo change that is known" : "\nNo change was found that",
        start, complete ? ".\n" : "; the search was cut short.\n");
    return;
  }
  absl::StrAppend(text, "\nAny one of these", start, ":\n");
  size_t shown = 0;
  for (const v1::Remedy& change : explanation.changes()) {
    if (++shown > kChangesShown) {
      absl::StrAppend(
          text, "  and ",
          static_cast<size_t>(explanation.changes_size()) - kChangesShown,
          " more with --json\n");
      break;
    }
    absl::StrAppend(text, "  - ", OneLine(change.text()));
    if (!change.how().empty()) {
      absl::StrAppend(text, "  [", OneLine(change.how()), "]");
    }
    absl::StrAppend(text, "\n");
  }
}

void AppendHistory(const v1::WaitReason& reason, std::string* text) {
  absl::StrAppend(
      text, "\n", TimeText(absl::FromUnixMicros(reason.since_us())), " to ",
      reason.until_us() != 0 ? TimeText(absl::FromUnixMicros(reason.until_us()))
                             : "now",
      "\n  ", OneLine(reason.blocker().text()), "\n");
}

// The reason for waiting, in a few words.
std::string WaitText(const std::string& kind) {
  if (kind == "resources") return "for room";
  if (kind == "held") return "held";
  if (kind == "after") return "for the end of other jobs";
  if (kind == "array") return "for a place among those that may run at once";
  if (kind == "back_off") return "until their next attempt is due";
  if (kind == "start_time") return "until their start time";
  if (kind == "orphan") {
    return "for an orphan of theirs, to be adopted or ended";
  }
  return "for something else";
}

void AppendElements(const Explanation& explanation, std::string* text) {
  if (explanation.element_id().empty()) return;
  absl::StrAppend(text, "\n", OneLine(explanation.summary()), "\n");
  if (explanation.elements().empty()) return;
  absl::StrAppend(text, "\nElements that wait:\n");
  for (const v1::WaitingElements& elements : explanation.elements()) {
    absl::StrAppend(text, "  ", elements.count(), "  ",
                    WaitText(elements.kind()));
    if (!elements.first_id().empty()) {
      absl::StrAppend(text, ", first ", IdText(elements.first_id()));
    }
    absl::StrAppend(text, "\n");
  }
  absl::StrAppend(text, "\nOf ", IdText(explanation.element_id()), ":\n");
}

}  // namespace

std::string ExplanationText(const Explanation& explanation) {
  std::string text =
      absl::StrCat(!explanation.element_id().empty() ? "Array " : "Job ",
                   IdText(explanation.job_id()),
                   explanation.name().empty()
                       ? ""
                       : absl::StrCat(" (", OneLine(explanation.name()), ")"),
                   " is ", EnumText(explanation.state()));
  const bool waits = explanation.state() == v1::JOB_STATE_PENDING &&
                     !explanation.blockers().empty();
  if (explanation.element_id().empty() && !waits &&
      !explanation.summary().empty()) {
    absl::StrAppend(&text, ": ", OneLine(explanation.summary()));
  }
  absl::StrAppend(&text, ".\n");
  AppendElements(explanation, &text);
  for (const v1::Blocker& blocker : explanation.blockers()) {
    AppendBlocker(blocker, &text);
  }
  AppendAhead(explanation.ahead(), &text);
  AppendChanges(explanation, &text);
  for (const v1::WaitReason& reason : explanation.history()) {
    AppendHistory(reason, &text);
  }
  return text;
}

std::string NeverFitsText(const Explanation& explanation) {
  std::string room;
  std::string others;
  for (const v1::Blocker& blocker : explanation.blockers()) {
    if (!blocker.shape().empty()) {
      absl::StrAppend(&room, OneLine(blocker.text()), "\n");
    } else {
      absl::StrAppend(&others, "cohort: besides it ", OtherText(blocker), "\n");
    }
  }
  return absl::StrCat(room, others);
}

}  // namespace cohort::cli
