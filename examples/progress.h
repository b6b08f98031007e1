#pragma once

#include <chrono>
#include <cstdint>
#include <string>

/// Shows how far an epoch is: a bar that redraws itself on a terminal, else a
/// plain line at each tenth of the way.
class Progress {
 public:
  /// `total`: images of one epoch over all ranks. A silent one shows nothing.
  Progress(std::string title, int64_t total, bool silent);

  void update(int64_t done, double loss);

 private:
  std::string title_;
  int64_t total_;
  bool silent_;
  bool terminal_;
  int64_t tenths_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
};
