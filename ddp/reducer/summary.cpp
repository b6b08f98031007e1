#include <ddp/statistics.h>

#include <common/text_table.h>
#include <ddp/module_state.h>
#include <ddp/reducer.h>
#include <ddp/reducer/reducer_impl.h>

#include <torch/nn/module.h>

#include <array>
#include <cstdio>
#include <map>
#include <set>

namespace ddp {
namespace {

using Duration = Statistics::Duration;
using Sizes = std::vector<int64_t>;

std::string time_text(Duration time) {
  std::array<char, 40> text{};
  std::snprintf(
      text.data(),
      text.size(),
      "%.1f ms",
      static_cast<double>(time.count()) / 1e6);
  return text.data();
}

/// "Linear" of "torch::nn::LinearImpl".
std::string type_text(const torch::nn::Module& module) {
  auto name = module.name();
  const std::string end = "Impl";
  const auto scope = name.rfind("::", name.find('<'));
  if (scope != std::string::npos) {
    name.erase(0, scope + 2);
  }
  if (name.size() > end.size() &&
      name.compare(name.size() - end.size(), end.size(), end) == 0) {
    name.erase(name.size() - end.size());
  }
  return name;
}

/// The totals of a module's own parameters.
struct Totals {
  void add(const Totals& other) {
    numbers += other.numbers;
    bytes += other.bytes;
    gradient_bytes += other.gradient_bytes;
  }

  int64_t numbers = 0;
  int64_t bytes = 0;
  int64_t gradient_bytes = 0;
  std::set<int> buckets;
  /// The special properties of some parameters.
  std::set<std::string> notes;
};

/// Counts each parameter once, with its bucket.
class ModuleTotals {
 public:
  explicit ModuleTotals(const Reducer& reducer) {
    const auto& parameters = ReducerImpl::of(reducer).parameters;
    for (const auto& parameter : parameters) {
      reduced_[parameter.tensor.unsafeGetTensorImpl()].sparse =
          parameter.sparse;
    }
    size_t number = 0;
    for (const auto& bucket : reducer.buckets()) {
      ++number;
      for (const size_t index : bucket) {
        reduced_[parameters[index].tensor.unsafeGetTensorImpl()].bucket =
            number;
      }
    }
  }

  Totals of(const torch::nn::Module& module) {
    Totals totals;
    for (const auto& parameter : module.parameters(/*recurse=*/false)) {
      add(parameter, totals);
    }
    return totals;
  }

 private:
  struct Reduced {
    size_t bucket = 0; // 0: none, as in a group of one
    bool sparse = false;
  };

  void add(const at::Tensor& parameter, Totals& totals) {
    const auto* key = parameter.unsafeGetTensorImpl();
    const auto entry = reduced_.find(key);
    const bool reduced = entry != reduced_.end();
    const auto bucket = reduced ? entry->second.bucket : 0;
    if (bucket > 0) {
      totals.buckets.insert(bucket);
    }
    if (!seen_.insert(key).second) {
      totals.notes.insert("shared");
      return;
    }
    const auto bytes = static_cast<int64_t>(parameter.nbytes());
    totals.numbers += parameter.numel();
    totals.bytes += bytes;
    if (!reduced) {
      totals.notes.insert("ignored");
    } else if (!parameter.requires_grad()) {
      totals.notes.insert("frozen");
    } else if (entry->second.sparse) {
      totals.notes.insert("sparse");
    } else if (bucket > 0) {
      totals.gradient_bytes += bytes;
    }
  }

  std::map<const c10::TensorImpl*, Reduced> reduced_;
  std::set<const c10::TensorImpl*> seen_;
};

std::vector<std::string> row(
    const std::string& name,
    const std::string& type,
    const Totals& totals) {
  const auto notes = c10::Join(", ", totals.notes);
  const bool none = totals.buckets.empty();
  return {
      name,
      type,
      none ? notes
           : number_list({totals.buckets.begin(), totals.buckets.end()}) +
              (notes.empty() ? "" : "; " + notes),
      grouped(totals.numbers),
      size_text(totals.bytes),
      size_text(totals.gradient_bytes)};
}

std::string modules_text(const torch::nn::Module& net, const Reducer& reducer) {
  TextTable table(/*left=*/3);
  table.add({"module", "type", "buckets", "parameters", "bytes", "gradients"});
  ModuleTotals totals(reducer);
  Totals total;
  const auto add = [&](const std::string& name, const auto& module) {
    if (!module.parameters(/*recurse=*/false).empty()) {
      const auto own = totals.of(module);
      total.add(own);
      table.add(row(name, type_text(module), own));
    }
  };
  add("(itself)", net);
  for (const auto& item : net.named_modules("", /*include_self=*/false)) {
    add(item.key(), *item.value());
  }
  table.add(row("total", "", total));
  return table.text();
}

std::string sizes_text(const Sizes& sizes) {
  if (sizes.empty()) {
    return "none";
  }
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    sum += size;
  }
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  return std::to_string(sizes.size()) +
      (sizes.size() == 1 ? " of " + size_text(sum)
                         : " of " + size_text(*least) + " to " +
               size_text(*most) + ", " + size_text(sum) + " in all");
}

std::string statistics_text(const Statistics& s) {
  TextTable table(/*left=*/2);
  table.add({"reductions", grouped(s.iteration) + " by " + s.comm_hook});
  table.add({"buckets", sizes_text(s.bucket_sizes)});
  if (s.has_rebuilt_buckets) {
    table.add({"rebuilt", sizes_text(s.rebuilt_bucket_sizes)});
  }
  if (s.num_timed == 0) {
    return table.text();
  }
  table.add({"unused", size_text(s.unused_parameter_size)});
  TextTable times(/*left=*/1);
  times.add({"times", "last", "average"});
  const auto add = [&](const char* name,
                       std::optional<Duration> last,
                       std::optional<Duration> average) {
    if (last) {
      times.add({name, time_text(*last), time_text(*average)});
    }
  };
  add("forward", s.forward_compute_time, s.avg_forward_compute_time);
  add("backward", s.backward_compute_time, s.avg_backward_compute_time);
  add("communication", s.backward_comm_time, s.avg_backward_comm_time);
  add("overlap",
      s.backward_compute_comm_overlap_time,
      s.avg_backward_compute_comm_overlap_time);
  return table.text() + "\n" + times.text() + "of " + grouped(s.num_timed) +
      " timed backward passes\n";
}

} // namespace

std::string detail::summary(
    const torch::nn::Module& net,
    const Reducer& reducer) {
  const auto* plain = &net;
  while (const auto* wrapper = dynamic_cast<const WrappedModule*>(plain)) {
    plain = &wrapper->wrapped();
  }
  return modules_text(*plain, reducer) + "\n" +
      statistics_text(reducer.statistics());
}

} // namespace ddp
