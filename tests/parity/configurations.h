#pragma once

#include <ddp/ddp.h>
#include <tests/parity/nets.h>

#include <sstream>
#include <vector>

// The configurations compared with Python; ddp_parity.py uses the same words.

namespace ddp::parity {

/// Which rank has the most steps; each next rank has one fewer, which requires
/// a Join.
enum class Uneven { kNo, kFirstLongest, kLastLongest };

/// How gradients are cleared between two reductions.
enum class Clear { kToNone, kToZero, kNever };

struct Configuration {
  std::string name;
  std::string net;
  ReducerOptions options = {};
  Clear clear = Clear::kToNone;
  /// Gradients are averaged after every `sync_every` steps.
  int64_t sync_every = 1;
  /// Whether a DistributedDataParallel wraps the net; else a Reducer is
  /// attached to the net.
  bool wrapped = false;
  Uneven uneven = Uneven::kNo;
  bool divide_by_initial_world_size = true;

  int64_t steps(int64_t rank, int64_t size) const;
};

/// The number of reductions of each configuration.
constexpr int64_t kReductions = 6;

inline int64_t Configuration::steps(int64_t rank, int64_t size) const {
  const auto all = kReductions * sync_every;
  switch (uneven) {
    case Uneven::kFirstLongest:
      return all - rank;
    case Uneven::kLastLongest:
      return all - (size - 1 - rank);
    default:
      return all;
  }
}

/// One configuration per line: its name, its net, and words for differences
/// from the defaults. In kept_views some rank takes each branch, since Python
/// averages globally unused gradients once more, which rounds them.
constexpr const char* kConfigurations = R"(
defaults                 layers
zeroed                   layers               zeroed
views                    layers               views
views_zeroed             layers               views zeroed
small_buckets            narrow-layers        small
cap_list                 narrow-layers        caps
first_cap                layers               first-cap
unused                   branches-at-times    unused
unused_large             layers               unused
unused_small_buckets     branches-at-times    unused small
unused_cap_list          branches-at-times    unused caps
unused_views_zeroed      alternating-branches unused views zeroed
unused_skipped           branches-by-step     unused small skip
static                   layers               static
static_views_zeroed      layers               static views zeroed
static_unused            branches-by-rank     static
static_checkpoints       checkpoints          static small
accumulated              narrow-layers        small every-3
accumulated_views_zeroed narrow-layers        small views zeroed every-3
accumulated_unused       branches-at-times    unused every-3
dtypes                   dtypes               small
dtypes_views_zeroed      dtypes               small views zeroed
sparse                   words
sparse_accumulated       words                every-3
own_buffers              images               own-buffers
wrapped                  images               wrapped
wrapped_accumulated      images               wrapped every-3
channels_last            channels-last-images own-buffers
kept                     branches-at-times    unused kept
kept_views               alternating-branches unused views kept
oddities                 oddities             small
join                     layers               first-long
join_by_live             narrow-layers        small last-long live
join_views_zeroed        layers               views small zeroed last-long live
join_wrapped             images               wrapped first-long
join_wrapped_accumulated images               wrapped every-3 last-long
)";

inline std::vector<Configuration> configurations() {
  const std::map<std::string, std::function<void(Configuration&)>> meanings = {
      {"views", [](auto& c) { c.options.gradient_as_bucket_view(true); }},
      {"small", [](auto& c) { c.options.bucket_cap_mb(0.01); }},
      {"caps",
       [](auto& c) {
         c.options.bucket_cap_mb_list({0.005, 0.05, 0.01});
       }},
      {"first-cap", [](auto& c) { c.options.first_bucket_cap_mb(0.01); }},
      {"unused", [](auto& c) { c.options.find_unused_parameters(true); }},
      {"skip", [](auto& c) { c.options.skip_all_reduce_unused_params(true); }},
      {"static", [](auto& c) { c.options.static_graph(true); }},
      {"own-buffers", [](auto& c) { c.options.broadcast_buffers(false); }},
      {"zeroed", [](auto& c) { c.clear = Clear::kToZero; }},
      {"kept", [](auto& c) { c.clear = Clear::kNever; }},
      {"every-3", [](auto& c) { c.sync_every = 3; }},
      {"wrapped", [](auto& c) { c.wrapped = true; }},
      {"first-long", [](auto& c) { c.uneven = Uneven::kFirstLongest; }},
      {"last-long", [](auto& c) { c.uneven = Uneven::kLastLongest; }},
      {"live", [](auto& c) { c.divide_by_initial_world_size = false; }}};
  std::vector<Configuration> result;
  std::istringstream lines(kConfigurations + 1);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    auto& added = result.emplace_back();
    words >> added.name >> added.net;
    for (std::string word; words >> word;) {
      meanings.at(word)(added);
    }
  }
  return result;
}

inline void clear_gradients(const torch::nn::Module& net, Clear how) {
  for (auto& parameter : net.parameters()) {
    auto& grad = parameter.mutable_grad();
    if (how == Clear::kToNone) {
      grad.reset();
    } else if (how == Clear::kToZero && grad.defined()) {
      grad.zero_();
    }
  }
}

/// The net's gradients, their strides, its parameters and buffers, by name.
/// Sparse gradients are converted to dense tensors; their indices are included.
inline StateDict state_of(const torch::nn::Module& net) {
  StateDict state;
  for (const auto& item : net.named_parameters()) {
    const auto& grad = item.value().grad();
    state.insert("value." + item.key(), item.value());
    if (grad.defined() && grad.is_sparse()) {
      state.insert("grad." + item.key(), grad.to_dense());
      state.insert("indices." + item.key(), grad.coalesce().indices());
    } else if (grad.defined()) {
      state.insert("grad." + item.key(), grad);
      state.insert("strides." + item.key(), torch::tensor(grad.strides()));
    }
  }
  for (const auto& item : net.named_buffers()) {
    state.insert("value." + item.key(), item.value());
  }
  return state;
}

} // namespace ddp::parity
