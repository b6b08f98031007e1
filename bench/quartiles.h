#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace bench {

struct Quartiles {
  double low = 0;
  double median = 0;
  double high = 0;
};

/// The quartiles of at least one value, linearly interpolated.
inline Quartiles quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double q) {
    const double rank = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(rank);
    const auto above = std::min(below + 1, values.size() - 1);
    const double part = rank - static_cast<double>(below);
    return values[below] + part * (values[above] - values[below]);
  };
  return {quantile(0.25), quantile(0.5), quantile(0.75)};
}

} // namespace bench
