#pragma once

#include <bench/quartiles.h>
#include <ddp/process_group.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace bench {

/// One of several ways to do the same thing.
struct Variant {
  std::string name;
  /// Runs the variant once, and returns its seconds.
  std::function<double()> run;
  std::vector<double> seconds{};
};

/// A variant that times `function`.
Variant timed(const std::string& name, std::function<void()> function);

/// Runs the variants in turns, and keeps their times. Each round begins with a
/// different variant. Calls `barrier` before each run, so that ranks begin
/// together.
void run_in_turns(
    std::vector<Variant>& variants,
    int64_t rounds,
    const std::function<void()>& barrier = [] {});

/// Replaces each time with the slowest rank's time in the same run. Collective.
void take_slowest(
    std::vector<Variant>& variants,
    const ddp::ProcessGroup& group);

/// Runs some rounds, which also warm the variants up, and returns the number
/// that fits into `seconds`. All ranks get rank 0's number. Collective.
int64_t rounds_within(
    double seconds,
    std::vector<Variant>& variants,
    const std::function<void()>& barrier = [] {},
    const ddp::ProcessGroup& group = {});

/// The result of `subject`: its time, and for each other variant
/// "ratio_<variant>", the median of the subject's time divided by the other's
/// in the same round, with "ratio_<variant>_quartiles".
nlohmann::json result_of(
    const std::string& name,
    const Variant& subject,
    const std::vector<Variant>& variants);

/// Prints one line of JSON.
void print(const nlohmann::json& result);

double seconds_of(const std::function<void()>& function);

} // namespace bench
