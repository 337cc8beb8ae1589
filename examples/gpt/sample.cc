#include "examples/gpt/sample.h"

#include <algorithm>
#include <random>
#include <vector>

#include "torch/utils.h"

#include "common/status_macros.h"
#include "trainer/torch/device_memory.h"
#include "trainer/torch/training_device.h"

namespace cohort::gpt {
namespace {

constexpr double kTemperature = 0.8;

// How likely each byte comes next, on the CPU.
torch::Tensor Foretell(GptImpl& model, torch::Device device,
                       const std::string& text) {
  const size_t seen =
      std::min(text.size(), static_cast<size_t>(model.shape().context));
  std::vector<int64_t> bytes;
  for (const char c : text.substr(text.size() - seen)) {
    bytes.push_back(static_cast<uint8_t>(c));
  }
  const torch::Tensor input = torch_adapter::Upload(
      torch::from_blob(bytes.data(), {1, static_cast<int64_t>(seen)},
                       torch::kInt64),
      device);
  const torch::Tensor last = model.forward(input)[0][-1];
  return torch::softmax(last.to(torch::kFloat64) / kTemperature, 0).cpu();
}

}  // namespace

absl::StatusOr<std::string> Sample(GptImpl& model, torch::Device device,
                                   const std::string& prompt, int64_t count,
                                   uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text = prompt;
  COHORT_RETURN_IF_ERROR(torch_adapter::OnDevice(device, "a sample", [&] {
    const torch::NoGradGuard no_gradients;
    for (int64_t i = 0; i < count; ++i) {
      const torch::Tensor likely = Foretell(model, device, text);
      const auto* chance = likely.data_ptr<double>();
      // 53 bits, as a double has: the same on every machine.
      double left = static_cast<double>(random() >> 11) * 0x1.0p-53;
      int64_t byte = 0;
      while (byte < kVocabulary - 1 && left >= chance[byte]) {
        left -= chance[byte++];
      }
      text.push_back(static_cast<char>(byte));
    }
    return absl::OkStatus();
  }));
  return text.substr(prompt.size());
}

}  // namespace cohort::gpt
