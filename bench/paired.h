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
  /// Does it once; the seconds that it took.
  std::function<double()> run;
  std::vector<double> seconds{};
};

/// A variant that calls `function`, and takes as long as that.
Variant timed(const std::string& name, std::function<void()> function);

/// Runs the variants in turns, each round beginning with another one, and keeps
/// what they took. `barrier` is called before each: ranks begin together.
void run_in_turns(
    std::vector<Variant>& variants,
    int64_t rounds,
    const std::function<void()>& barrier = [] {});

/// Replaces each time by that of the rank that was slowest then. Collective.
void take_slowest(
    std::vector<Variant>& variants,
    const ddp::ProcessGroup& group);

/// How many rounds fit into `seconds`, found by running some, which also warm
/// the variants up; all ranks get the same number. Collective.
int64_t rounds_within(
    double seconds,
    std::vector<Variant>& variants,
    const std::function<void()>& barrier = [] {},
    const ddp::ProcessGroup& group = {});

/// The result of `subject`: its time, and for each other variant
/// "ratio_<variant>", the median of its time over the other's in the same
/// round, with "ratio_<variant>_quartiles".
nlohmann::json result_of(
    const std::string& name,
    const Variant& subject,
    const std::vector<Variant>& variants);

/// One line for whoever started the program.
void print(const nlohmann::json& result);

double seconds_of(const std::function<void()>& function);

/// MiB, from a line of a file of /proc/self: "VmHWM:" of "status" (the most
/// memory that the process had), "VmRSS:" (what it has), or "Pss:" of
/// "smaps_rollup" (the same, but shared pages divided by who share them).
double memory_mib(const std::string& file, const std::string& line);

} // namespace bench
