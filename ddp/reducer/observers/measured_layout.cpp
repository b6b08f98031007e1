#include <ddp/reducer/observers/measured_layout.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace ddp::detail {
namespace {

/// The reductions of one group of neighbors; `add` adds a gradient.
class Segment {
 public:
  explicit Segment(const ReductionCost& cost) : cost_(cost) {}

  void add(const TimedGradient& gradient) {
    kinds_.insert(gradient.kind);
    bytes_ += gradient.bytes;
  }

  double seconds() const {
    return static_cast<double>(kinds_.size()) * cost_.latency +
        static_cast<double>(bytes_) * cost_.per_byte;
  }

 private:
  const ReductionCost& cost_;
  std::set<size_t> kinds_;
  int64_t bytes_ = 0;
};

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The earliest time at which the gradients before each place are reduced.
using Ends = std::vector<double>;

/// Sets `ends` to the times with one more bucket than for `before`, or with any
/// number if both are the same object. `last` gets the starts of that bucket.
void add_bucket(
    const std::vector<TimedGradient>& gradients,
    const ReductionCost& cost,
    const Ends& before,
    Ends& ends,
    std::vector<size_t>& last) {
  last.assign(ends.size(), 0);
  for (size_t place = 1; place < ends.size(); ++place) {
    Segment segment(cost);
    const double ready = gradients[place - 1].ready;
    for (size_t begin = place; begin-- > 0;) {
      segment.add(gradients[begin]);
      if (ready + segment.seconds() >= ends[place]) {
        break; // no bucket that begins earlier ends earlier
      }
      const double end = std::max(before[begin], ready) + segment.seconds();
      if (end < ends[place]) {
        ends[place] = end;
        last[place] = begin;
      }
    }
  }
}

} // namespace

std::vector<size_t> cut_by_time(
    const std::vector<TimedGradient>& gradients,
    const ReductionCost& cost) {
  const Ends never(gradients.size() + 1, kNever);
  auto ends = never;
  ends[0] = 0;
  auto earliest = ends;
  std::vector<std::vector<size_t>> lasts(1);
  add_bucket(gradients, cost, earliest, earliest, lasts.front());
  const double enough = earliest.back() * (1 + kSlack);
  lasts.clear();
  while (ends.back() > enough) {
    const auto before = std::exchange(ends, never);
    add_bucket(gradients, cost, before, ends, lasts.emplace_back());
  }
  std::vector<size_t> counts(lasts.size());
  size_t place = gradients.size();
  for (size_t i = lasts.size(); i-- > 0;) {
    counts[i] = place - lasts[i][place];
    place = lasts[i][place];
  }
  return counts;
}

} // namespace ddp::detail
