// Compares epochs of ddp::DataLoader with those of LibTorch's loader and of
// Python's DataLoader, in turns, for samples that cost computation, copying or
// next to nothing.

#include <bench/commands.h>
#include <bench/paired.h>
#include <bench/python_peer.h>

#include <ddp/samplers/data_loader.h>
#include <torch/data.h>

#include <array>
#include <optional>

namespace bench {
namespace {

/// python_peer.py has the same kinds.
enum class Kind { kDecode, kCopy, kTiny };

struct Epoch {
  Kind kind;
  const char* name;
  int64_t samples;
  size_t batch_size;
};

constexpr std::array<Epoch, 3> kEpochs{
    {{Kind::kDecode, "decode", 512, 32},
     {Kind::kCopy, "copy", 128, 32},
     {Kind::kTiny, "tiny", 20000, 256}}};

struct Samples : torch::data::datasets::Dataset<Samples> {
  explicit Samples(const Epoch& epoch)
      : kind(epoch.kind), count(epoch.samples) {
    const int64_t side = kind == Kind::kCopy ? 256 : 64;
    values = kind == Kind::kTiny
        ? torch::randn({count, 16})
        : torch::randint(256, {count, 3, side, side}, torch::kByte);
  }

  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    auto value = values[i];
    if (kind == Kind::kCopy) { // a crop, as floats
      value = value.narrow(1, i % 32, 224).narrow(2, i % 32, 224);
      value = value.to(torch::kFloat).div_(255);
    } else if (kind == Kind::kDecode) { // 24 passes over the image
      value = value.to(torch::kFloat);
      for (int pass = 0; pass < 8; ++pass) {
        value.mul_(1.01).add_(0.5).clamp_(0, 255);
      }
    }
    return {value, label};
  }
  std::optional<size_t> size() const override {
    return count;
  }

  Kind kind;
  int64_t count;
  at::Tensor values;
  at::Tensor label = torch::zeros({}, torch::kLong);
};

template <typename Loader>
Variant epoch_of(const std::string& name, std::unique_ptr<Loader> loader) {
  return timed(name, [loader = std::shared_ptr<Loader>(std::move(loader))] {
    for (const auto& batch : *loader) {
      (void)batch;
    }
  });
}

void measure(
    const Epoch& epoch,
    size_t workers,
    double seconds,
    const std::optional<PythonPeer>& python) {
  const auto stacked = Samples(epoch).map(torch::data::transforms::Stack<>());
  const torch::data::samplers::SequentialSampler sampler(epoch.samples);
  std::vector<Variant> variants{
      epoch_of(
          "ddp",
          ddp::make_data_loader(
              stacked,
              sampler,
              ddp::DataLoaderOptions(epoch.batch_size).workers(workers))),
      epoch_of(
          "libtorch",
          torch::data::make_data_loader(
              stacked,
              sampler,
              torch::data::DataLoaderOptions(epoch.batch_size)
                  .workers(workers)))};
  if (python) {
    python->tell(c10::str(
        "loader ",
        epoch.name,
        " ",
        epoch.samples,
        " ",
        epoch.batch_size,
        " ",
        workers));
    variants.push_back({"python", [&] { return python->tell("epoch"); }});
  }
  run_in_turns(variants, rounds_within(seconds, variants));
  auto result = result_of(
      c10::str("loader_", epoch.name, "_", workers, "_workers"),
      variants.front(),
      variants);
  result["us_per_sample"] = result["seconds"].get<double>() * 1e6 /
      static_cast<double>(epoch.samples);
  print(result);
}

} // namespace

void measure_loader(const Arguments& arguments) {
  const auto cases = kEpochs.size() * (arguments.size() - 1);
  const double seconds =
      std::stod(arguments.at(0)) / static_cast<double>(cases);
  std::optional<PythonPeer> python;
  PythonPeer::start(python);
  for (const auto& epoch : kEpochs) {
    for (size_t i = 1; i < arguments.size(); ++i) {
      measure(epoch, std::stoul(arguments[i]), seconds, python);
    }
  }
}

} // namespace bench
