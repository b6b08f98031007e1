#include <launcher/cli/rank_count.h>

#include <common/processors.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

int gpu_count(
    const std::optional<std::string>& devices,
    const std::string& root) {
  return visible_gpus(devices ? devices->c_str() : nullptr, root + "/dev");
}

} // namespace

int rank_count(
    const OptionValue& value,
    const std::optional<std::string>& devices,
    const std::string& root) {
  if (value.text == "cpu") {
    return available_cpus(root);
  }
  if (value.text == "gpu" || value.text == "auto") {
    const int gpus = gpu_count(devices, root);
    if (gpus == 0 && value.text == "gpu") {
      usage_error(
          value.source +
          " gpu: no GPU is visible (/dev/nvidia*, CUDA_VISIBLE_DEVICES, "
          "--devices); try --nproc-per-node cpu");
    }
    return gpus > 0 ? gpus : available_cpus(root);
  }
  const bool is_number = !value.text.empty() &&
      value.text.find_first_not_of("-0123456789") == std::string::npos;
  if (!is_number) {
    refuse_value(value, "a positive number, cpu, gpu or auto");
  }
  return static_cast<int>(integer_of(value, 1, kMaxLocalRanks));
}

} // namespace ddp
