#include "trainer/train/plain_part.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "trainer/comm/comm.h"
#include "trainer/train/run.h"

namespace cohort::train {
namespace {

using trainer::TensorType;
using trainer::TensorView;

constexpr char kValues[] = "values";

class PlainPart final : public Part {
 public:
  PlainPart(std::string name, TensorView view)
      : Part(std::move(name)), view_(std::move(view)) {}

  absl::StatusOr<trainer::CheckpointFile> Save() override {
    return trainer::CheckpointFile{.name = name(), .tensors = {view_}};
  }

 private:
  const TensorView view_;
};

template <typename T>
absl::Status PrepareValues(Run& run, const std::string& name,
                           std::span<T> values, TensorType type) {
  COHORT_RETURN_IF_ERROR(run.status());
  if (run.FreeName(name) != name) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", name, "\" was prepared before (give each its own name)"));
  }
  COHORT_ASSIGN_OR_RETURN(const trainer::SafetensorsFile* saved,
                          run.Saved(name));
  if (saved != nullptr) {
    COHORT_ASSIGN_OR_RETURN(const TensorView view, saved->Find(kValues));
    if (view.type != type || view.bytes.size() != values.size_bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the checkpoint's \"", name, "\" has ", view.bytes.size(),
          " bytes, not ", values.size_bytes(), " of that type"));
    }
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  }
  COHORT_RETURN_IF_ERROR(
      run.comm().Broadcast(trainer::Buffer::Of(values), 0,
                           absl::Seconds(trainer::kGangTimeoutSeconds)));
  run.Add(std::make_shared<PlainPart>(
      name, TensorView{kValues,
                       type,
                       {static_cast<int64_t>(values.size())},
                       std::as_bytes(values)}));
  return absl::OkStatus();
}

}  // namespace

absl::Status PreparePlain(Run& run, const std::string& name,
                          std::span<float> values) {
  return PrepareValues(run, name, values, TensorType::kF32);
}
absl::Status PreparePlain(Run& run, const std::string& name,
                          std::span<double> values) {
  return PrepareValues(run, name, values, TensorType::kF64);
}

}  // namespace cohort::train
