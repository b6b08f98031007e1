#pragma once

#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/reducer_options.h>
#include <tests/parity/nets.h>

#include <string>
#include <vector>

// What is compared with Python; ddp_parity.py has the same table.

namespace ddp::parity {

/// Which ranks have fewer steps, each by one, so that a Join is needed.
enum class Uneven { kNo, kFirstLongest, kLastLongest };

/// What happens to gradients between two reductions.
enum class Clear { kToNone, kToZero, kNever };

struct Configuration {
  std::string name;
  std::string net = "layers";
  ReducerOptions options = {};
  Clear clear = Clear::kToNone;
  /// Every how many steps gradients are averaged.
  int64_t sync_every = 1;
  /// Whether the net goes into a DistributedDataParallel, or a Reducer is
  /// attached to it.
  bool wrapped = false;
  Uneven uneven = Uneven::kNo;
  bool divide_by_initial_world_size = true;

  int64_t steps(int64_t rank, int64_t size) const;
};

/// How often each configuration reduces.
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

inline std::vector<Configuration> configurations() {
  const ReducerOptions defaults;
  const auto views = ReducerOptions().gradient_as_bucket_view(true);
  const auto small = ReducerOptions().bucket_cap_mb(0.01);
  const auto unused = ReducerOptions().find_unused_parameters(true);
  const auto fixed = ReducerOptions().static_graph(true);
  const auto caps = ReducerOptions().bucket_cap_mb_list({0.005, 0.05, 0.01});
  const auto first_cap = ReducerOptions().first_bucket_cap_mb(0.01);
  const auto own_buffers = ReducerOptions().broadcast_buffers(false);
  return {
      {"defaults"},
      {"zeroed", "layers", defaults, Clear::kToZero},
      {"views", "layers", views},
      {"views_zeroed", "layers", views, Clear::kToZero},
      {"small_buckets", "narrow layers", small},
      {"cap_list", "narrow layers", caps},
      {"first_cap", "layers", first_cap},
      {"unused", "branches at times", unused},
      {"unused_large", "layers", unused},
      {"unused_small_buckets",
       "branches at times",
       ReducerOptions(unused).bucket_cap_mb(0.01)},
      {"unused_cap_list",
       "branches at times",
       ReducerOptions(caps).find_unused_parameters(true)},
      {"unused_views_zeroed",
       "alternating branches",
       ReducerOptions(unused).gradient_as_bucket_view(true),
       Clear::kToZero},
      {"unused_skipped",
       "branches by step",
       ReducerOptions(unused).bucket_cap_mb(0.01).skip_all_reduce_unused_params(
           true)},
      {"static", "layers", fixed},
      {"static_views_zeroed",
       "layers",
       ReducerOptions(fixed).gradient_as_bucket_view(true),
       Clear::kToZero},
      {"static_unused", "branches by rank", fixed},
      {"static_checkpoints",
       "checkpoints",
       ReducerOptions(fixed).bucket_cap_mb(0.01)},
      {"accumulated", "narrow layers", small, Clear::kToNone, 3},
      {"accumulated_views_zeroed",
       "narrow layers",
       ReducerOptions(small).gradient_as_bucket_view(true),
       Clear::kToZero,
       3},
      {"accumulated_unused", "branches at times", unused, Clear::kToNone, 3},
      {"dtypes", "dtypes", small},
      {"dtypes_views_zeroed",
       "dtypes",
       ReducerOptions(small).gradient_as_bucket_view(true),
       Clear::kToZero},
      {"sparse", "words"},
      {"sparse_accumulated", "words", defaults, Clear::kToNone, 3},
      {"own_buffers", "images", own_buffers},
      {"wrapped", "images", defaults, Clear::kToNone, 1, true},
      {"wrapped_accumulated", "images", defaults, Clear::kToNone, 3, true},
      {"channels_last", "channels-last images", own_buffers},
      {"kept", "branches at times", unused, Clear::kNever},
      // Not with branches that nobody takes: Python averages what nobody used
      // once more there, which rounds it.
      {"kept_views",
       "alternating branches",
       ReducerOptions(unused).gradient_as_bucket_view(true),
       Clear::kNever},
      {"oddities", "oddities", small},
      {"join",
       "layers",
       defaults,
       Clear::kToNone,
       1,
       false,
       Uneven::kFirstLongest},
      {"join_by_live",
       "narrow layers",
       small,
       Clear::kToNone,
       1,
       false,
       Uneven::kLastLongest,
       false},
      {"join_views_zeroed",
       "layers",
       ReducerOptions(views).bucket_cap_mb(0.01),
       Clear::kToZero,
       1,
       false,
       Uneven::kLastLongest,
       false},
      {"join_wrapped",
       "images",
       defaults,
       Clear::kToNone,
       1,
       true,
       Uneven::kFirstLongest},
      {"join_wrapped_accumulated",
       "images",
       defaults,
       Clear::kToNone,
       3,
       true,
       Uneven::kLastLongest},
  };
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
/// Sparse gradients made dense, beside their indices.
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
