#include "trainer/train/run.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <iostream>
#include <numeric>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/comm.h"
#include "trainer/shared_storage.h"
#include "trainer/train/plain_part.h"

namespace cohort::train {
namespace {

using trainer::Buffer;
using trainer::ReduceOp;
using trainer::SafetensorsFile;

// A message about a gang that waits longer says so and fails.
constexpr absl::Duration kTimeout = absl::Seconds(trainer::kGangTimeoutSeconds);
// Of ranks that wait for others to write their share of a checkpoint.
constexpr absl::Duration kSaveTimeout = absl::Hours(1);
constexpr absl::Duration kTellEvery = absl::Seconds(1);
// Behind what ranks agree on at each step whatever they report.
constexpr size_t kAgreedFirst = 4;
// A rank that spends so much less of its time in collectives than another is
// one that the others wait for.
constexpr double kStragglerShare = 0.1;
// Of collective_shares, so that a report stays small.
constexpr size_t kRanksShown = 64;

// So that ranks that report other metrics than their peers find out: small
// enough that the mean of equal ones is that number.
double FingerprintOf(const std::map<std::string, Metric>& metrics) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const auto& [name, metric] : metrics) {
    for (const char c : name + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
  }
  return static_cast<double>(hash % (1 << 20));
}

// Those that the run shows itself.
absl::Status CheckMetricName(const std::string& name) {
  if (!IsOwnMetric(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", name, "\" is a metric of every run (report under another name)"));
}

// `rank`: whose it is; -1: that of all of them together.
absl::Status NotANumber(const std::string& name, double value, int64_t step,
                        int rank) {
  return absl::InternalError(
      absl::StrCat(name, " is ", value, " at step ", step,
                   rank < 0 ? "" : absl::StrCat(" on rank ", rank),
                   " (lower the learning rate, or look for damaged input)"));
}

// What a rank gives for its share when one of its metrics is not a number.
constexpr double kBadShare = -1;

// The first rank that gave that; -1: none.
int BadRank(std::span<const double> shares) {
  const auto bad =
      std::ranges::find_if(shares, [](double share) { return share < 0; });
  return bad == shares.end() ? -1 : static_cast<int>(bad - shares.begin());
}

}  // namespace

Batches::Iterator Batches::begin() {
  if (loader_ != nullptr && run_.status().ok()) {
    if (run_.Fail(run_.BeginBatches(*loader_)).ok() && run_.GoesOn()) Read();
  }
  return Iterator(*this);
}

void Batches::Read() {
  const absl::Duration begin = run_.clock_.Monotonic();
  absl::StatusOr<std::optional<trainer::Batch>> batch = loader_->Next();
  run_.loader_wait_ += run_.clock_.Monotonic() - begin;
  if (run_.Fail(batch.status()).ok()) batch_ = *std::move(batch);
  run_.in_step_ = batch_.has_value();
}

void Batches::Next() {
  trainer::Batch done = *std::move(batch_);
  batch_.reset();
  run_.EndStep(done);
  loader_->Recycle(std::move(done));
  if (run_.GoesOn() && !run_.epoch_over_) Read();
}

Epoch Epochs::Iterator::operator*() const {
  run_.epoch_over_ = false;
  run_.epoch_begun_ = false;
  // Before the loop draws any of a new epoch's; in the middle of one what it
  // draws first was drawn before.
  if (run_.cursor_ == 0) run_.Note(run_.checkpoints_.RestoreRandom());
  return {run_, run_.epoch_};
}

Epochs::Iterator& Epochs::Iterator::operator++() {
  run_.EndEpoch();
  return *this;
}

bool Epochs::Iterator::operator!=(End /*end*/) const {
  run_.epochs_ = count_;
  if (run_.GoesOn() && run_.epoch_ < count_) return true;
  // While what the loop has prepared is there.
  if (run_.status_.ok() && run_.step_ > 0) run_.Note(run_.Save());
  run_.Note(run_.FinishCheckpoint());
  return false;
}

Run::Run(trainer::Session& session, Backend* backend, const Clock& clock,
         Options options)
    : session_(session),
      backend_(backend),
      clock_(clock),
      options_(std::move(options)),
      epoch_start_(clock.Monotonic()),
      checkpoints_(session, backend, clock,
                   {.score_attribute = options_.score_attribute,
                    .score_is_loss = options_.score_is_loss,
                    .package = options_.package,
                    .spec = options_.spec}) {}

Run::~Run() = default;

void Run::Note(absl::Status why) {
  if (status_.ok()) status_ = std::move(why);
}

absl::Status Run::Fail(absl::Status why) {
  Note(why);
  return why;
}

void Run::Log(absl::string_view line) {
  if (is_lead()) std::cout << line << std::endl;
}

void Run::SetCollectiveTimeout(absl::Duration timeout) {
  collective_timeout_ = timeout;
  comm().LimitDeadlines(timeout);
}

absl::Status Run::Open() {
  SetCollectiveTimeout(kTimeout);
  const auto& place = session_.place();
  // Ranks of one node see the same files.
  if (place.node_count > 1) {
    COHORT_RETURN_IF_ERROR(Fail(
        trainer::CheckSharedStorage(comm(), place.checkpoint_root, kTimeout)));
  }
  const std::string path =
      place.restore ? place.restore->path : options_.resume_from;
  if (path.empty()) {
    RewriteMetrics();
    return absl::OkStatus();
  }
  const auto from = checkpoints_.Restore(path, history_);
  COHORT_RETURN_IF_ERROR(Fail(from.status()));
  for (size_t i = 0; i < history_.size(); ++i) {
    for (const auto& [name, value] : history_.Row(i).metrics) {
      metrics_[name] = value;
    }
  }
  step_ = from->step;
  epoch_ = from->epoch;
  cursor_ = from->cursor;
  Log(absl::StrFormat("resuming from step %d in epoch %d: %s", step_,
                      epoch_ + 1, path));
  RewriteMetrics();
  return absl::OkStatus();
}

absl::Status Run::Close(absl::Status loop) {
  Note(std::move(loop));
  Note(FinishCheckpoint());
  if (status_.ok()) Note(ShowMetrics());
  // Who waits for slower ranks to end has its own timeout (Session::Finish).
  comm().LimitDeadlines(absl::InfiniteDuration());
  TellMetrics(/*is_last=*/true);
  return status_;
}

// ---- what is saved ----

absl::StatusOr<const SafetensorsFile*> Run::Saved(
    const std::string& name) const {
  COHORT_RETURN_IF_ERROR(status_);
  return checkpoints_.Saved(name);
}

std::string Run::FreeName(const std::string& name) const {
  std::set<std::string> taken;
  for (const auto& part : parts_) taken.insert(part->name());
  std::string free = name;
  for (int i = 2; taken.contains(free) || RunCheckpoints::IsOwnName(free); ++i)
    free = absl::StrCat(name, "-", i);
  return free;
}

void Run::Add(std::shared_ptr<Part> part) { parts_.push_back(std::move(part)); }

absl::Status Run::Prepare(const std::string& name, std::span<float> values) {
  return Fail(PreparePlain(*this, name, values));
}
absl::Status Run::Prepare(const std::string& name, std::span<double> values) {
  return Fail(PreparePlain(*this, name, values));
}

absl::StatusOr<std::string> Run::SavedState(const std::string& name) const {
  COHORT_RETURN_IF_ERROR(status_);
  return checkpoints_.SavedState(name);
}

absl::Status Run::StateError(const std::string& name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the checkpoint's state \"", name,
      "\" is of another type (the program that wrote it was another one)"));
}

// ---- the loop ----

trainer::Loader* Run::Loader(std::shared_ptr<const trainer::Dataset> dataset,
                             const DataOptions& options) {
  if (!status_.ok()) return nullptr;
  if (dataset->size() < world()) {
    Note(absl::InvalidArgumentError(
        absl::StrCat("the dataset has ", dataset->size(), " samples for ",
                     world(), " ranks: each needs one at least")));
    return nullptr;
  }
  auto loader = trainer::Loader::Create(
      *dataset,
      {.dataset_size = dataset->size(),
       .world = world(),
       .rank = rank(),
       .seed = options.seed,
       .shuffle = options.shuffle,
       .drop_last = options.drop_last},
      {.batch_size = options.batch_size, .workers = options.workers});
  if (!Fail(loader.status()).ok()) return nullptr;
  if (loaders_.empty()) {
    const absl::Status same = checkpoints_.SetData(
        options.seed, {{"batch", absl::StrCat(options.batch_size)},
                       {"drop_last", options.drop_last ? "true" : "false"},
                       {"shuffle", options.shuffle ? "true" : "false"},
                       {"train_samples", absl::StrCat(dataset->size())}});
    if (!Fail(same).ok()) return nullptr;
  }
  datasets_.push_back(std::move(dataset));
  return loaders_.emplace_back(*std::move(loader)).get();
}

absl::Status Run::BeginBatches(trainer::Loader& loader) {
  if (std::exchange(epoch_begun_, true)) {
    return absl::FailedPreconditionError(
        "an epoch has one loop over Batches (join the data sets, or make a run "
        "of each)");
  }
  COHORT_RETURN_IF_ERROR(checkpoints_.RestoreRandom());
  COHORT_RETURN_IF_ERROR(loader.StartEpoch(epoch_, cursor_));
  epoch_size_ = loader.epoch_size();
  epoch_start_ = clock_.Monotonic();
  epoch_start_cursor_ = cursor_;
  loader_wait_ = absl::ZeroDuration();
  steps_of_epoch_ = 0;
  collectives_before_ = comm().time_in_calls();
  return absl::OkStatus();
}

void Run::EndStep(const trainer::Batch& batch) {
  in_step_ = false;
  if (status_.ok()) Note(TryEndStep(batch));
  reported_.clear();
}

absl::Status Run::TryEndStep(const trainer::Batch& batch) {
  ++step_;
  cursor_ = batch.cursor;
  epoch_over_ = batch.last;
  const double seconds =
      absl::ToDoubleSeconds(clock_.Monotonic() - epoch_start_);
  const auto samples = static_cast<double>(cursor_ - epoch_start_cursor_);
  samples_per_second_ = seconds > 0 ? samples / seconds : 0;
  step_seconds_ = seconds / static_cast<double>(++steps_of_epoch_);
  COHORT_RETURN_IF_ERROR(ShareStep());
  COHORT_RETURN_IF_ERROR(ShowMetrics());
  if (may_go_on_saving_) COHORT_RETURN_IF_ERROR(GoOnSaving(false));
  // What is due at an epoch's last batch is saved once the epoch is over.
  const bool may_save = !epoch_over_ && GoesOn() && !IsBetween();
  if (!checkpoints_.is_due() || !may_save) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(Save());
  // While there is time.
  return is_leaving_ ? FinishCheckpoint() : absl::OkStatus();
}

absl::Status Run::ShareStep() {
  COHORT_RETURN_IF_ERROR(Settle());
  const std::optional<trainer::RunNotice> notice = session_.notice();
  const bool is_leaving =
      notice.has_value() && notice->deadline < absl::InfiniteDuration();
  const bool interval_over = is_lead() && checkpoints_.IsIntervalOver();
  const double fingerprint = FingerprintOf(reported_);
  std::vector<double> numbers = {is_leaving ? 1.0 : 0.0,
                                 interval_over ? 1.0 : 0.0, fingerprint,
                                 checkpoints_.IsReady() ? 1.0 : 0.0};
  try {
    for (const auto& [name, metric] : reported_) {
      numbers.push_back(metric.Read());
    }
  } catch (const std::exception& thrown) {
    return absl::InternalError(absl::StrCat("cannot read a metric of step ",
                                            step_, ": ", thrown.what()));
  }
  const size_t reported_end = numbers.size();
  const bool is_bad =
      !std::all_of(numbers.begin() + kAgreedFirst, numbers.end(),
                   [](double number) { return std::isfinite(number); });
  AppendShares(numbers, is_bad);
  // Every rank has the same number of samples in a step: the mean of means is
  // the mean.
  COHORT_RETURN_IF_ERROR(Agree(numbers, ReduceOp::kAverage));
  const auto shares = std::span<const double>(numbers).subspan(reported_end);
  const int bad_rank = BadRank(shares.subspan(1));
  if (bad_rank < 0) TakeShares(shares);
  if (numbers[2] != fingerprint) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ranks reported different metrics at step ", step_,
                     " (every rank is to report the same names at each step)"));
  }
  Metrics means;
  size_t next = kAgreedFirst;
  for (const auto& [name, metric] : reported_) {
    means[name] = numbers[next++];
    if (!std::isfinite(means[name])) {
      return NotANumber(name, means[name], step_, bad_rank);
    }
  }
  history_.Add(step_, epoch_ + 1, means);
  for (const auto& [name, mean] : means) metrics_[name] = mean;
  AppendMetrics();
  is_leaving_ = numbers[0] > 0;
  // Of all of them, whatever a division has rounded.
  may_go_on_saving_ = numbers[3] > 1 - 0.5 / world();
  checkpoints_.NoteStep(step_, numbers[1] > 0, is_leaving_);
  return absl::OkStatus();
}

// This rank's shares of the epoch's time, at its place among all ranks': the
// mean of these vectors times the world is what each rank has.
void Run::AppendShares(std::vector<double>& numbers, bool is_bad) const {
  const double seconds =
      absl::ToDoubleSeconds(clock_.Monotonic() - epoch_start_);
  const auto share = [&](absl::Duration part) {
    return seconds > 0 ? absl::ToDoubleSeconds(part) / seconds : 0;
  };
  numbers.push_back(share(loader_wait_));
  const size_t ranks = numbers.size();
  numbers.resize(ranks + static_cast<size_t>(world()));
  numbers[ranks + static_cast<size_t>(rank())] =
      is_bad ? kBadShare : share(comm().time_in_calls() - collectives_before_);
}

void Run::TakeShares(std::span<const double> shares) {
  loader_share_ = shares[0];
  const std::span<const double> collective = shares.subspan(1);
  collective_share_ =
      std::accumulate(collective.begin(), collective.end(), 0.0);
  collective_shares_.clear();
  for (const double share : collective) {
    if (collective_shares_.size() == kRanksShown) break;
    collective_shares_.push_back(std::round(share * world() * 1e3) / 1e3);
  }
  // The others wait for it in collectives, and it for nobody.
  const auto [least, most] = std::ranges::minmax_element(collective);
  const bool is_apart =
      (*most - *least) * world() > kStragglerShare && world() > 1;
  slowest_rank_ = is_apart ? static_cast<int>(least - collective.begin()) : -1;
}

absl::Status Run::Agree(std::vector<double>& numbers, ReduceOp op) {
  const absl::Status agreed =
      comm().AllReduce(Buffer::Of(std::span(numbers)), op, kTimeout);
  if (!absl::IsInvalidArgument(agreed)) return agreed;
  return Annotate(agreed, "every rank is to report and evaluate alike");
}

bool Run::IsBetween() const {
  return std::ranges::any_of(
      parts_, [](const auto& part) { return part->IsBetween(); });
}

absl::Status Run::Share() {
  for (const auto& part : parts_) COHORT_RETURN_IF_ERROR(part->Share());
  return absl::OkStatus();
}

absl::Status Run::Settle() {
  for (const auto& part : parts_) COHORT_RETURN_IF_ERROR(part->Settle());
  return absl::OkStatus();
}

void Run::EndEpoch() {
  if (!status_.ok()) return;
  if (!epoch_over_) {
    if (!GoesOn()) return;  // StopAfter
    return Note(absl::FailedPreconditionError(absl::StrCat(
        "epoch ", epoch_ + 1, " was left after step ", step_,
        ", before its last batch (end a run early with StopAfter)")));
  }
  ++epoch_;
  cursor_ = 0;
  epoch_over_ = false;
  checkpoints_.NoteEpochEnd();
  if (checkpoints_.is_due() && !IsBetween()) Note(Save());
}

absl::Status Run::Average(std::span<float> values) {
  COHORT_RETURN_IF_ERROR(status_);
  return Fail(
      comm().AllReduce(Buffer::Of(values), ReduceOp::kAverage, kTimeout));
}
absl::Status Run::Average(std::span<double> values) {
  COHORT_RETURN_IF_ERROR(status_);
  return Fail(
      comm().AllReduce(Buffer::Of(values), ReduceOp::kAverage, kTimeout));
}

void Run::Report(const std::map<std::string, Metric>& metrics) {
  if (!in_step_) {
    return Note(absl::FailedPreconditionError(
        "Report was called outside of a step (report in the loop over Batches; "
        "Evaluate reports by itself)"));
  }
  for (const auto& [name, metric] : metrics) {
    Note(CheckMetricName(name));
    reported_.insert_or_assign(name, metric);
  }
}

double Run::EpochMean(const std::string& name) const {
  return history_.MeanOfEpoch(epoch_ + 1, name);
}

absl::StatusOr<double> Run::Evaluate(
    const std::string& name, const trainer::Dataset& dataset,
    const std::function<Metric(const trainer::Batch&)>& score,
    int64_t batch_size) {
  COHORT_RETURN_IF_ERROR(status_);
  COHORT_RETURN_IF_ERROR(Fail(CheckMetricName(name)));
  if (batch_size < 1 || dataset.size() == 0) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
        name, " cannot be evaluated on ", dataset.size(),
        " samples in batches of ", batch_size, " (both must be positive)")));
  }
  COHORT_RETURN_IF_ERROR(Fail(Share()));
  const auto sum = [&]() -> absl::StatusOr<double> {
    double mine = 0;
    int64_t batch_number = 0;
    for (int64_t begin = 0; begin < dataset.size(); begin += batch_size) {
      if (batch_number++ % world() != rank()) continue;
      const auto size =
          static_cast<size_t>(std::min(batch_size, dataset.size() - begin));
      std::vector<float> inputs(size *
                                static_cast<size_t>(dataset.input_size()));
      std::vector<int64_t> labels(size);
      trainer::Batch batch;
      batch.ids.resize(size);
      std::iota(batch.ids.begin(), batch.ids.end(), begin);
      COHORT_RETURN_IF_ERROR(dataset.Read(batch.ids, inputs, labels));
      batch.inputs = inputs;
      batch.labels = labels;
      const Metric of_batch = score(batch);
      COHORT_RETURN_IF_ERROR(Settle());
      mine += of_batch.Read();
    }
    return mine;
  };
  const absl::StatusOr<double> mine = sum();
  COHORT_RETURN_IF_ERROR(Fail(mine.status()));
  std::vector<double> all = {*mine};
  COHORT_RETURN_IF_ERROR(Fail(Agree(all, ReduceOp::kSum)));
  const double mean = all[0] / static_cast<double>(dataset.size());
  if (!std::isfinite(mean)) return Fail(NotANumber(name, mean, step_, -1));
  metrics_[name] = mean;
  history_.Add(step_, epoch_ + 1, {{name, mean}});
  RewriteMetrics();
  COHORT_RETURN_IF_ERROR(Fail(ShowMetrics()));
  if (name == options_.score_attribute) COHORT_RETURN_IF_ERROR(NoteScore());
  return mean;
}

absl::Status Run::NoteScore() {
  if (!checkpoints_.NoteScore(history_, step_)) return status_;
  // What is evaluated behind an epoch's last batch is saved once that is over.
  checkpoints_.MakeDue();
  return in_step_ || epoch_over_ ? status_ : Fail(Save());
}

// What was trained is worth more than its picture.
void Run::SayIfNot(const absl::Status& written) {
  if (written.ok()) return;
  std::cerr << "cohort: " << written.message() << std::endl;
}

void Run::WriteColumn(const std::string& metric, const std::string& path) {
  if (!status_.ok() || !is_lead() || path.empty()) return;
  SayIfNot(history_.WriteColumn(metric, path));
}

void Run::DrawCurve(const CurveOptions& options, const std::string& path) {
  if (!status_.ok() || !is_lead() || path.empty()) return;
  const absl::Status written = WriteLossCurve(history_, options, path);
  SayIfNot(written);
  if (written.ok()) Log(absl::StrCat(options.metric, " curve: ", path));
}

void Run::TellMetrics(bool is_last) {
  if (options_.on_metrics == nullptr || !is_lead()) return;
  const absl::Duration now = clock_.Monotonic();
  if (!is_last && now - told_at_ < kTellEvery) return;
  told_at_ = now;
  Metrics told = metrics_;
  told["step"] = static_cast<double>(step_);
  told["epoch"] = static_cast<double>(epoch_ + 1);
  options_.on_metrics(told);
}

absl::Status Run::ShowMetrics() {
  TellMetrics(/*is_last=*/false);
  const int64_t epoch =
      epochs_ > 0 ? std::min(epoch_ + 1, epochs_) : epoch_ + 1;
  nlohmann::ordered_json shown = {{"epoch", epoch}, {"step", step_}};
  for (const auto& [name, value] : metrics_) shown[name] = value;
  shown["samples_per_s"] = std::round(SamplesPerSecond() * 10) / 10;
  if (epoch_size_ > 0) {
    shown["loader_share"] = std::round(loader_share_ * 1e3) / 1e3;
    shown["collective_share"] = std::round(collective_share_ * 1e3) / 1e3;
    shown["step_ms"] = std::round(step_seconds_ * 1e6) / 1e3;
    shown["collective_shares"] = collective_shares_;
    if (slowest_rank_ >= 0) shown["slowest_rank"] = slowest_rank_;
  }
  if (epochs_ > 0 && epoch_size_ > 0) {
    const double passes =
        static_cast<double>(epoch_) +
        static_cast<double>(cursor_) / static_cast<double>(epoch_size_);
    shown["progress"] = std::min(
        1.0, std::round(1e4 * passes / static_cast<double>(epochs_)) / 1e4);
  }
  return session_.Report(shown.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// ---- checkpoints ----

absl::Status Run::Checkpoint() {
  // Its state is not that of a step yet.
  if (in_step_) checkpoints_.MakeDue();
  return in_step_ || !status_.ok() ? status_ : Fail(Save());
}

absl::Status Run::FinishCheckpoint() {
  COHORT_RETURN_IF_ERROR(status_);
  return checkpoints_.is_writing() ? Fail(GoOnSaving(/*to_the_end=*/true))
                                   : absl::OkStatus();
}

absl::Status Run::GoOnSaving(bool to_the_end) {
  may_go_on_saving_ = false;
  comm().LimitDeadlines(kSaveTimeout);
  const absl::Cleanup limit = [this] {
    comm().LimitDeadlines(collective_timeout_);
  };
  COHORT_ASSIGN_OR_RETURN(const bool is_there,
                          checkpoints_.GoOn(to_the_end, kSaveTimeout));
  if (is_there) Log(absl::StrCat("checkpoint: ", checkpoint()->path));
  return absl::OkStatus();
}

absl::Status Run::Save() {
  COHORT_RETURN_IF_ERROR(status_);
  if (!checkpoints_.TakeTurn(step_)) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(FinishCheckpoint());
  COHORT_RETURN_IF_ERROR(Share());
  return checkpoints_.Begin({.step = step_,
                             .epoch = epoch_ + (epoch_over_ ? 1 : 0),
                             .cursor = epoch_over_ ? 0 : cursor_},
                            parts_, history_, metrics_);
}

// ---- the metrics' file: what it lacks, a checkpoint has ----

void Run::AppendMetrics() {
  if (!is_lead() || options_.metrics_file.empty() || history_.size() == 0) {
    return;
  }
  const HistoryRow row = history_.Row(history_.size() - 1);
  if (row.step != step_) return;
  std::ofstream(options_.metrics_file, std::ios::app)
      << History::ToJsonLine(row);
}

void Run::RewriteMetrics() {
  if (!is_lead() || options_.metrics_file.empty()) return;
  std::ofstream file(options_.metrics_file, std::ios::trunc);
  for (size_t i = 0; i < history_.size(); ++i) {
    file << History::ToJsonLine(history_.Row(i));
  }
}

}  // namespace cohort::train
