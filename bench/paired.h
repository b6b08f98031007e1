#pragma once

#include <bench/quartiles.h>
#include <ddp/process_group.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace bench {

/// One of several ways to do the same thing.
struct Way {
  std::string name;
  /// Does it once; the seconds that it took.
  std::function<double()> run;
  std::vector<double> seconds;
};

/// Runs the ways in turns, each round beginning with another one, and keeps
/// what they took. `meet` is called before each: ranks begin together.
void run_in_turns(
    std::vector<Way>& ways,
    int64_t rounds,
    const std::function<void()>& meet = [] {});

/// Replaces each time by that of the rank that was slowest then. Collective.
void take_slowest(std::vector<Way>& ways, const ddp::ProcessGroup& group);

/// How many rounds fit into `seconds`, found by running some, which also warm
/// the ways up; all ranks get the same number. Collective.
int64_t rounds_within(
    double seconds,
    std::vector<Way>& ways,
    const std::function<void()>& meet = [] {},
    const ddp::ProcessGroup& group = {});

/// The result of `subject`: its time, and for each other way with that name
/// "ratio_<way>", the median of its time over the other's in the same round,
/// with "ratio_<way>_quartiles".
nlohmann::json result_of(
    const std::string& name,
    const Way& subject,
    const std::vector<Way>& ways);

/// One line for whoever started the program.
void print(const nlohmann::json& result);

double seconds_of(const std::function<void()>& function);

/// MiB, from a line of a file of /proc/self: "VmHWM:" of "status" (the most
/// memory that the process had), "VmRSS:" (what it has), or "Pss:" of
/// "smaps_rollup" (the same, but shared pages divided by who share them).
double memory_mib(const std::string& file, const std::string& line);

} // namespace bench
